package limitsfile

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/strictyaml"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// time zones on machines that have none, such as small containers

// parser reads what a limits file holds.
type parser struct {
	*strictyaml.Parser
	budgets []limits.Limit

	ofBudgets map[string]map[string]limits.Change // by the path of a tenant or plan
	written   map[string]string                   // the paths in the file of what is said of budgets and reserves, by those in the set

	reserved []reserve
}

type read = strictyaml.Read

func (p *parser) weight(into *float64) read {
	return func(node *yaml.Node, path string) {
		var w float64
		if node.Kind != yaml.ScalarNode || (node.Tag != "!!int" && node.Tag != "!!float") || node.Decode(&w) != nil {
			p.Wrong(node, path, "must be a number, not %s", p.Describe(node))
			return
		}
		if !(w >= 0.001 && w <= 1000) {
			p.Wrong(node, path, "%v must be 0.001 to 1000", w)
			return
		}
		*into = w
	}
}

func (p *parser) sendWindow(into *sendwindow.Window) read {
	return func(node *yaml.Node, path string) {
		if !p.Word(node, path) {
			return
		}
		window, err := sendwindow.Parse(node.Value)
		if err != nil {
			p.Wrong(node, path, "%s", strings.TrimPrefix(err.Error(), "send window "))
			return
		}
		*into = window
	}
}

func (p *parser) durability(into *limits.Durability) read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode || node.Tag == "!!null" || node.Value == "" {
			p.Wrong(node, path, "must be %s or %s, not %s", limits.Primary, limits.Replicated, p.Describe(node))
			return
		}
		*into = limits.Durability(node.Value) // limits.Set.Validate rejects other words
	}
}

// partitions reads a number of partitions, or that of one of them, from 1.
func (p *parser) partitions(into *int) read {
	return func(node *yaml.Node, path string) {
		var n int64
		p.Most(&n)(node, path)
		*into = int(min(n, limits.MaxPartitions+1)) // limits.Set.Validate rejects more
	}
}

func (p *parser) location(into **time.Location) read {
	return func(node *yaml.Node, path string) {
		if !p.Word(node, path) {
			return
		}
		// "" is UTC to package time, and Local another zone on each machine.
		name := node.Value
		loc, err := time.LoadLocation(name)
		if err != nil || name == "" || name == "Local" {
			p.Wrong(node, path, "%.60q must be a time zone such as Europe/Berlin or UTC", name)
			return
		}
		*into = loc
	}
}

func (p *parser) file(root *yaml.Node) limits.Set {
	set := limits.Set{Queues: map[string]limits.Queue{}, Tenants: map[string]limits.Tenant{}, Groups: map[string]limits.Group{}}
	plans := map[string]limits.Tenant{}
	planOf, planned := map[string]*yaml.Node{}, map[string]bool{}
	p.Fields(root, "", map[string]read{
		"queues": func(node *yaml.Node, path string) {
			p.Entries(node, path, func(key, value *yaml.Node, at string) { set.Queues[key.Value] = p.queue(key.Value, value, at) })
		},
		"budgets": func(node *yaml.Node, path string) {
			p.Items(node, path, func(item *yaml.Node, at string) { p.budgets = append(p.budgets, p.budget(item, at)) })
		},
		"groups": func(node *yaml.Node, path string) {
			p.Entries(node, path, func(key, value *yaml.Node, at string) {
				var group limits.Group
				p.Fields(value, at, map[string]read{"limits": p.changes(&group.Limits)})
				if p.named(key, at, "group") {
					set.Groups[key.Value] = group
				}
			})
		},
		"plans": func(node *yaml.Node, path string) {
			p.Entries(node, path, func(key, value *yaml.Node, at string) {
				plan := p.tenant(value, at, nil)
				planned[key.Value] = true
				if p.named(key, at, "plan") {
					plans[key.Value] = plan
				}
			})
		},
		"tenants": func(node *yaml.Node, path string) {
			p.Entries(node, path, func(key, value *yaml.Node, at string) {
				tenant := p.tenant(value, at, func(plan *yaml.Node) { planOf[key.Value] = plan })
				if p.named(key, at, "tenant") {
					set.Tenants[key.Value] = tenant
				}
			})
		},
	})
	if len(set.Queues) == 0 && len(p.Problems) == 0 {
		p.Wrong(root, "queues", "required: nothing would be limited")
	}
	if n := p.changesWithPlans(set, plans, planOf); n > maxChanges {
		p.Problems = append(p.Problems, Problem{Path: "tenants", Line: p.lineOf("tenants"), Reason: fmt.Sprintf(
			"with those of their plans and budgets, they have %d changes of limits; the maximum is %d: use groups, or change the limits of the queues", n, maxChanges)})
		return limits.Set{}
	}
	p.share(set, plans)
	p.keep(set)
	for tenant, node := range planOf {
		own, ok := set.Tenants[tenant]
		if !ok {
			continue // its name was refused
		}
		plan, ok := plans[node.Value]
		if !ok {
			if !planned[node.Value] { // of a plan whose name is a mistake, that is enough
				p.Wrong(node, "tenants."+tenant+".plan", "unknown plan %.60q%s", node.Value, p.like(node.Value, maps.Keys(plans)))
			}
			continue
		}
		set.Tenants[tenant] = merge(plan, own)
	}
	p.keepForOthers(set)
	p.checkMeaning(set, plans, func(tenant string) string {
		if node := planOf[tenant]; node != nil {
			return node.Value
		}
		return ""
	})
	return set
}

// maxChanges bounds what plans and budgets make of a file: each tenant has all changes of its plan, and of a budget one
// for each of its queues. So 20 KB could take as much memory as there is.
const maxChanges = 1_000_000

// changesWithPlans returns how many changes of limits plans and tenants have together, with those of the tenants' plans.
func (p *parser) changesWithPlans(set limits.Set, plans map[string]limits.Tenant, planOf map[string]*yaml.Node) (n int) {
	queues := map[string]int{}
	for _, budget := range p.budgets {
		queues[budget.Name] = len(budget.Queues)
	}
	own := func(path string, t limits.Tenant) (n int) {
		for _, changes := range t.Limits {
			n += len(changes)
		}
		for budget := range p.ofBudgets[path] {
			n += queues[budget]
		}
		return n
	}
	ofPlan := map[string]int{}
	for name, plan := range plans {
		ofPlan[name] = own("plans."+name, plan)
		n += ofPlan[name]
	}
	for name, t := range set.Tenants {
		n += own("tenants."+name, t)
		if plan := planOf[name]; plan != nil {
			n += ofPlan[plan.Value]
		}
	}
	return n
}

func (p *parser) queue(name string, node *yaml.Node, path string) limits.Queue {
	var q limits.Queue
	p.Fields(node, path, map[string]read{
		"kinds":             p.Texts(&q.Kinds),
		"max_backlog":       p.Most(&q.MaxBacklog),
		"max_backlog_bytes": p.Size(&q.MaxBacklogBytes),
		"max_queue":         p.Most(&q.MaxQueue),
		"max_queue_bytes":   p.Size(&q.MaxQueueBytes),
		"max_retention":     p.Duration(&q.MaxRetention),
		"partitions":        p.partitions(&q.Partitions),
		"durability":        p.durability(&q.Durability),
		"conformance":       p.Yes(&q.Conformance),
		"send_windows": func(node *yaml.Node, path string) {
			q.SendWindows = map[string]sendwindow.Window{}
			p.Entries(node, path, func(kind, value *yaml.Node, at string) {
				var window sendwindow.Window
				p.sendWindow(&window)(value, at)
				q.SendWindows[kind.Value] = window
			})
		},
		"limits": func(node *yaml.Node, path string) {
			p.Items(node, path, func(item *yaml.Node, at string) {
				q.Limits = append(q.Limits, p.limitOf(name, item, at))
			})
		},
	})
	return q
}

// limit reads a limit, with more fields than those of any limit.
func (p *parser) limit(node *yaml.Node, path string, more map[string]read) limits.Limit {
	var l limits.Limit
	var algorithm string
	var change limits.Change
	known := p.changeFields(&change)
	maps.Copy(known, more)
	known["name"] = p.Text(&l.Name)
	known["algorithm"] = p.Text(&algorithm)
	known["timezone"] = p.location(&l.Location)
	known["per"] = p.Texts(&l.Per)
	known["unit"] = p.Text(&l.Unit)
	known["adaptive"] = p.Yes(&l.Adaptive)
	known["ramp"] = func(node *yaml.Node, path string) { l.Ramp, l.Rate = p.ramp(node, path) }
	p.Fields(node, path, known)
	l.Algorithm = throttle.Algorithm(algorithm)
	if algorithm == "" && change.Concurrency != nil {
		l.Algorithm = throttle.Concurrency // the field says it
	}
	if change.Rate != nil && l.Ramp != nil {
		p.Wrong(node, path+".rate", "leave it out: the limit's rate is ramp.to")
		change.Rate = nil
	}
	return l.With(change)
}

// ramp reads a ramp, and the rate to which it grows.
func (p *parser) ramp(node *yaml.Node, path string) (*limits.Ramp, throttle.Rate) {
	var r limits.Ramp
	var from, to *throttle.Rate
	p.Fields(node, path, map[string]read{
		"from": p.Rate(&from), "to": p.Rate(&to), "over": p.Duration(&r.Over), "hold_above": p.percent(&r.HoldAbove),
	})
	for _, name := range []string{"from", "to", "over"} {
		if _, written := p.Lines[path+"."+name]; !written {
			p.Wrong(node, path, "must have from, to and over, as in {from: 50/day, to: 20000/day, over: 30d}")
			break
		}
	}
	if from == nil || to == nil || r.Over == 0 {
		return nil, throttle.Rate{}
	}
	r.From = *from
	return &r, *to
}

// percent reads a part in percent.
func (p *parser) percent(into *float64) read {
	return func(node *yaml.Node, path string) {
		text, found := strings.CutSuffix(node.Value, "%")
		percent, err := strconv.ParseFloat(text, 64)
		if node.Kind != yaml.ScalarNode || !found || err != nil || !(percent > 0 && percent <= 100) {
			p.Wrong(node, path, "must be more than 0%% and at most 100%%, not %s", p.Describe(node))
			return
		}
		*into = percent / 100
	}
}

func (p *parser) changeFields(change *limits.Change) map[string]read {
	return map[string]read{
		"rate":        p.Rate(&change.Rate),
		"burst":       p.Count(&change.Burst),
		"capacity":    p.Count(&change.Capacity),
		"concurrency": p.Count(&change.Concurrency),
	}
}

// capacityOrNone reads a changed capacity: 0 leaves the bucket without the bound that the queue's limit has.
func (p *parser) capacityOrNone(into **int64) read {
	return func(node *yaml.Node, path string) {
		if node.Kind == yaml.ScalarNode && node.Tag == "!!int" && node.Value == "0" {
			*into = new(int64)
			return
		}
		p.Count(into)(node, path)
	}
}

// changes reads changes of limits, by queue and name.
func (p *parser) changes(into *map[string]map[string]limits.Change) read {
	return func(node *yaml.Node, path string) {
		*into = map[string]map[string]limits.Change{}
		p.Entries(node, path, func(name, value *yaml.Node, at string) {
			changes := map[string]limits.Change{}
			p.Entries(value, at, func(limit, value *yaml.Node, at string) {
				var change limits.Change
				known := p.changeFields(&change)
				known["capacity"] = p.capacityOrNone(&change.Capacity)
				p.Fields(value, at, known)
				changes[limit.Value] = change
			})
			(*into)[name.Value] = changes
		})
	}
}

// tenant reads what differs for a tenant, or for those of a plan.
func (p *parser) tenant(node *yaml.Node, path string, plan func(*yaml.Node)) limits.Tenant {
	var t limits.Tenant
	known := map[string]read{
		"weight":      p.weight(&t.Weight),
		"guarantee":   p.percent(&t.Guarantee),
		"send_window": p.sendWindow(&t.SendWindow),
		"group":       p.Text(&t.Group),
		"limits":      p.changes(&t.Limits),
		"budgets": func(node *yaml.Node, at string) {
			p.ofBudgets[path] = map[string]limits.Change{}
			p.Entries(node, at, func(name, value *yaml.Node, at string) {
				var change limits.Change
				p.Fields(value, at, p.changeFields(&change))
				p.ofBudgets[path][name.Value] = change
			})
		},
	}
	known["partition"] = func(node *yaml.Node, path string) {
		p.Wrong(node, path, "a plan has no partition: set that of each tenant")
	}
	if plan != nil {
		known["partition"] = p.partitions(&t.Partition)
		known["plan"] = func(node *yaml.Node, path string) {
			if p.Word(node, path) {
				plan(node)
			}
		}
	}
	p.Fields(node, path, known)
	return t
}

// merge puts a tenant's own settings before those of its plan.
func merge(plan, own limits.Tenant) limits.Tenant {
	merged := limits.Tenant{
		Weight: cmp.Or(own.Weight, plan.Weight), Guarantee: cmp.Or(own.Guarantee, plan.Guarantee), Group: cmp.Or(own.Group, plan.Group),
		SendWindow: plan.SendWindow, Partition: own.Partition, Limits: map[string]map[string]limits.Change{},
	}
	if !own.SendWindow.IsZero() {
		merged.SendWindow = own.SendWindow
	}
	for _, layer := range []limits.Tenant{plan, own} {
		for name, changes := range layer.Limits {
			if merged.Limits[name] == nil {
				merged.Limits[name] = map[string]limits.Change{}
			}
			for limit, change := range changes {
				merged.Limits[name][limit] = over(merged.Limits[name][limit], change)
			}
		}
	}
	return merged
}

// over is a change with the parts of another that are set put over it.
func over(base, top limits.Change) limits.Change {
	return limits.Change{
		Rate: cmp.Or(top.Rate, base.Rate), Burst: cmp.Or(top.Burst, base.Burst),
		Capacity: cmp.Or(top.Capacity, base.Capacity), Concurrency: cmp.Or(top.Concurrency, base.Concurrency),
	}
}
