package limitsfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // time zones on machines that have none, such as small containers

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/throttle"
)

// parser walks the nodes of a file, so that every mistake keeps its line.
type parser struct {
	problems []Problem
	lines    map[string]int // of every path that is in the file
}

func (p *parser) wrong(node *yaml.Node, path, format string, args ...any) {
	p.problems = append(p.problems, Problem{node.Line, path, fmt.Sprintf(format, args...)})
}

// read is how one field is read.
type read = func(node *yaml.Node, path string)

// plain refuses what would make a file mean more than it says: a bomb of
// aliases, or a tag that somebody's tool was to act on.
func (p *parser) plain(node *yaml.Node, path string) bool {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		p.wrong(node, path, "anchors and aliases are not read; write it out")
	case node.Style&yaml.TaggedStyle != 0:
		p.wrong(node, path, "tags such as %.40q are not read; leave it out", node.Tag)
	default:
		return true
	}
	return false
}

// entries calls each for the entries of a mapping. Empty nodes are none.
func (p *parser) entries(node *yaml.Node, path string, each func(key, value *yaml.Node, path string)) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		p.wrong(node, path, "want fields, not %s", describe(node))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			p.wrong(key, path, "a field's name is a word")
		case !p.plain(key, at) || !p.plain(value, at):
		case seen[key.Value]:
			p.wrong(key, at, "it stands twice")
		default:
			seen[key.Value] = true
			p.lines[at] = key.Line
			each(key, value, at)
		}
	}
}

const unknownField = "unknown field"

// fields reads a mapping whose fields are known.
func (p *parser) fields(node *yaml.Node, path string, known map[string]read) {
	p.entries(node, path, func(key, value *yaml.Node, at string) {
		if read, ok := known[key.Value]; ok {
			read(value, at)
			return
		}
		p.wrong(key, at, unknownField+"%s", queue.Suggest(key.Value, slices.Sorted(maps.Keys(known))))
	})
}

// items reads a list.
func (p *parser) items(node *yaml.Node, path string, each read) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.SequenceNode {
		p.wrong(node, path, "want a list, not %s", describe(node))
		return
	}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.lines[at] = item.Line
		if p.plain(item, at) {
			each(item, at)
		}
	}
}

func (p *parser) text(into *string) read {
	return func(node *yaml.Node, path string) {
		if p.word(node, path) {
			*into = node.Value
		}
	}
}

// word reports what is no text. A number is one: names may be numbers.
func (p *parser) word(node *yaml.Node, path string) bool {
	ok := node.Kind == yaml.ScalarNode && node.Tag != "!!null"
	if !ok {
		p.wrong(node, path, "want a word, not %s", describe(node))
	}
	return ok
}

func (p *parser) texts(into *[]string) read {
	return func(node *yaml.Node, path string) {
		p.items(node, path, func(item *yaml.Node, at string) {
			var word string
			p.text(&word)(item, at)
			*into = append(*into, word)
		})
	}
}

// count reads a whole number of at least 1: a zero that was written is a mistake.
func (p *parser) count(into **int64) read {
	return func(node *yaml.Node, path string) {
		var n int64
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || node.Decode(&n) != nil {
			p.wrong(node, path, "want a whole number, not %s", describe(node))
			return
		}
		if n < 1 {
			p.wrong(node, path, "%d is less than 1", n)
			return
		}
		*into = &n
	}
}

func (p *parser) yes(into *bool) read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(into) != nil {
			p.wrong(node, path, "want true or false, not %s", describe(node))
		}
	}
}

func (p *parser) weight(into **float64) read {
	return func(node *yaml.Node, path string) {
		var w float64
		if node.Kind != yaml.ScalarNode || (node.Tag != "!!int" && node.Tag != "!!float") || node.Decode(&w) != nil {
			p.wrong(node, path, "want a number, not %s", describe(node))
			return
		}
		if !(w >= 0.001 && w <= 1000) {
			p.wrong(node, path, "%v is not within 0.001 to 1000", w)
			return
		}
		*into = &w
	}
}

func (p *parser) rate(into **throttle.Rate) read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode {
			p.wrong(node, path, "want a rate such as 300/s, not %s", describe(node))
			return
		}
		rate, err := throttle.ParseRate(node.Value)
		if err != nil {
			p.wrong(node, path, "%s", strings.TrimPrefix(err.Error(), "rate "))
			return
		}
		*into = &rate
	}
}

func (p *parser) sendWindow(into *queue.SendWindow) read {
	return func(node *yaml.Node, path string) {
		if !p.word(node, path) {
			return
		}
		window, err := queue.ParseSendWindow(node.Value)
		if err != nil {
			p.wrong(node, path, "%s", strings.TrimPrefix(err.Error(), "send window "))
			return
		}
		*into = window
	}
}

func (p *parser) location(into **time.Location) read {
	return func(node *yaml.Node, path string) {
		if !p.word(node, path) {
			return
		}
		// "" is UTC to package time, and Local another zone on each machine.
		name := node.Value
		loc, err := time.LoadLocation(name)
		if err != nil || name == "" || name == "Local" {
			p.wrong(node, path, "%.60q is no time zone such as Europe/Berlin or UTC", name)
			return
		}
		*into = loc
	}
}

func (p *parser) file(document *yaml.Node) queue.Limits {
	limits := queue.Limits{Queues: map[string]queue.QueueLimits{}, Tenants: map[string]queue.TenantLimits{}}
	if len(document.Content) != 1 {
		p.wrong(document, "", "it is empty: it needs queues with their limits")
		return limits
	}
	plans := map[string]queue.TenantLimits{}
	planOf := map[string]*yaml.Node{}
	root := document.Content[0]
	if !p.plain(root, "") {
		return limits
	}
	p.fields(root, "", map[string]read{
		"queues": func(node *yaml.Node, path string) {
			p.entries(node, path, func(key, value *yaml.Node, at string) { limits.Queues[key.Value] = p.queue(value, at) })
		},
		"plans": func(node *yaml.Node, path string) {
			p.entries(node, path, func(key, value *yaml.Node, at string) {
				plan := p.tenant(value, at, nil)
				if p.named(key, at, "plan") {
					plans[key.Value] = plan
				}
			})
		},
		"tenants": func(node *yaml.Node, path string) {
			p.entries(node, path, func(key, value *yaml.Node, at string) {
				tenant := p.tenant(value, at, func(plan *yaml.Node) { planOf[key.Value] = plan })
				if p.named(key, at, "tenant") {
					limits.Tenants[key.Value] = tenant
				}
			})
		},
	})
	if len(limits.Queues) == 0 && len(p.problems) == 0 {
		p.wrong(root, "queues", "there is none: nothing would be limited")
	}
	names := slices.Sorted(maps.Keys(plans))
	for tenant, node := range planOf {
		own, ok := limits.Tenants[tenant]
		if !ok {
			continue // its name was refused
		}
		plan, ok := plans[node.Value]
		if !ok {
			// Of a plan with mistakes the name still counts as there.
			if _, written := p.lines["plans."+node.Value]; !written {
				p.wrong(node, "tenants."+tenant+".plan", "there is no plan %.60q%s", node.Value, queue.Suggest(node.Value, names))
			}
			continue
		}
		limits.Tenants[tenant] = merge(plan, own)
	}
	p.checkMeaning(limits, plans, func(tenant string) string {
		if node := planOf[tenant]; node != nil {
			return node.Value
		}
		return ""
	})
	return limits
}

func (p *parser) queue(node *yaml.Node, path string) queue.QueueLimits {
	var q queue.QueueLimits
	var backlog, most *int64
	p.fields(node, path, map[string]read{
		"kinds":       p.texts(&q.Kinds),
		"max_backlog": p.count(&backlog),
		"max_queue":   p.count(&most),
		"send_windows": func(node *yaml.Node, path string) {
			q.SendWindows = map[string]queue.SendWindow{}
			p.entries(node, path, func(kind, value *yaml.Node, at string) {
				var window queue.SendWindow
				p.sendWindow(&window)(value, at)
				q.SendWindows[kind.Value] = window
			})
		},
		"limits": func(node *yaml.Node, path string) {
			p.items(node, path, func(item *yaml.Node, at string) { q.Limits = append(q.Limits, p.limit(item, at)) })
		},
	})
	if backlog != nil {
		q.MaxBacklog = *backlog
	}
	if most != nil {
		q.MaxQueue = *most
	}
	return q
}

func (p *parser) limit(node *yaml.Node, path string) queue.Limit {
	var l queue.Limit
	var algorithm string
	var change queue.Change
	known := p.changeFields(&change)
	known["name"] = p.text(&l.Name)
	known["algorithm"] = p.text(&algorithm)
	known["timezone"] = p.location(&l.Location)
	known["per"] = p.texts(&l.Per)
	known["unit"] = p.text(&l.Unit)
	known["adaptive"] = p.yes(&l.Adaptive)
	p.fields(node, path, known)
	l.Algorithm = throttle.Algorithm(algorithm)
	if algorithm == "" && change.Concurrency != nil {
		l.Algorithm = throttle.Concurrency // the field says it
	}
	if change.Rate != nil {
		l.Rate = *change.Rate
	}
	for into, from := range map[*int64]*int64{&l.Burst: change.Burst, &l.Capacity: change.Capacity, &l.Concurrency: change.Concurrency} {
		if from != nil {
			*into = *from
		}
	}
	return l
}

func (p *parser) changeFields(change *queue.Change) map[string]read {
	return map[string]read{
		"rate":        p.rate(&change.Rate),
		"burst":       p.count(&change.Burst),
		"capacity":    p.count(&change.Capacity),
		"concurrency": p.count(&change.Concurrency),
	}
}

// tenant reads what differs for a tenant, or for those of a plan.
func (p *parser) tenant(node *yaml.Node, path string, plan func(*yaml.Node)) queue.TenantLimits {
	var t queue.TenantLimits
	var weight *float64
	known := map[string]read{
		"weight":      p.weight(&weight),
		"send_window": p.sendWindow(&t.SendWindow),
		"limits": func(node *yaml.Node, path string) {
			t.Limits = map[string]map[string]queue.Change{}
			p.entries(node, path, func(name, value *yaml.Node, at string) {
				changes := map[string]queue.Change{}
				p.entries(value, at, func(limit, value *yaml.Node, at string) {
					var change queue.Change
					p.fields(value, at, p.changeFields(&change))
					changes[limit.Value] = change
				})
				t.Limits[name.Value] = changes
			})
		},
	}
	if plan != nil {
		known["plan"] = func(node *yaml.Node, path string) {
			if p.word(node, path) {
				plan(node)
			}
		}
	}
	p.fields(node, path, known)
	if weight != nil {
		t.Weight = *weight
	}
	return t
}

// merge puts a tenant's own settings before those of its plan.
func merge(plan, own queue.TenantLimits) queue.TenantLimits {
	merged := queue.TenantLimits{Weight: plan.Weight, SendWindow: plan.SendWindow, Limits: map[string]map[string]queue.Change{}}
	if own.Weight != 0 {
		merged.Weight = own.Weight
	}
	if !own.SendWindow.IsZero() {
		merged.SendWindow = own.SendWindow
	}
	for _, layer := range []queue.TenantLimits{plan, own} {
		for name, changes := range layer.Limits {
			if merged.Limits[name] == nil {
				merged.Limits[name] = map[string]queue.Change{}
			}
			for limit, change := range changes {
				merged.Limits[name][limit] = over(merged.Limits[name][limit], change)
			}
		}
	}
	return merged
}

// over is a change with the parts of another that are set put over it.
func over(base, top queue.Change) queue.Change {
	if top.Rate != nil {
		base.Rate = top.Rate
	}
	if top.Burst != nil {
		base.Burst = top.Burst
	}
	if top.Capacity != nil {
		base.Capacity = top.Capacity
	}
	if top.Concurrency != nil {
		base.Concurrency = top.Concurrency
	}
	return base
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// describe says what stands where something else was wanted.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if node.Tag == "!!null" {
		return "nothing"
	}
	return fmt.Sprintf("%.40q", node.Value)
}
