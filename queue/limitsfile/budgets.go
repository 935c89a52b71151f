package limitsfile

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// budget reads a limit that several queues share.
func (p *parser) budget(node *yaml.Node, path string) limits.Limit {
	queues := []string{}
	before := len(p.Problems)
	l := p.limit(node, path, map[string]read{"queues": p.Texts(&queues)})
	l.Queues = queues
	if len(queues) == 0 && len(p.Problems) == before {
		p.Wrong(node, path+".queues", "required: name two queues or more, which share the budget")
	}
	l.Algorithm = cmp.Or(l.Algorithm, throttle.FixedWindow)
	return l
}

// like suggests a name for the first mistakes only: each suggestion takes a while.
func (p *parser) like(word string, names iter.Seq[string]) string {
	if len(p.Problems) >= check.MaxErrors {
		return ""
	}
	return check.SuggestAmong(word, names)
}

// share gives each queue of a budget its limit, and the changes that tenants and plans have of it.
func (p *parser) share(set limits.Set, plans map[string]limits.Tenant) {
	p.written = map[string]string{}
	queuesOf := map[string][]string{}
	known := !slices.ContainsFunc(p.Problems, func(one Problem) bool { return strings.HasPrefix(one.Path, "budgets") })
	for i, budget := range p.budgets {
		at := fmt.Sprintf("budgets[%d]", i)
		queuesOf[budget.Name] = budget.Queues
		listed := map[string]bool{}
		for j, name := range budget.Queues {
			q, known := set.Queues[name]
			if !known {
				path := fmt.Sprintf("%s.queues[%d]", at, j)
				p.Problems = append(p.Problems, Problem{Path: path, Line: p.lineOf(path), Reason: fmt.Sprintf("unknown queue %s%s", check.Quote(name), p.like(name, maps.Keys(set.Queues)))})
			} else if !listed[name] {
				listed[name] = true
				p.written[fmt.Sprintf("queues.%s.limits[%d]", name, len(q.Limits))] = at
				q.Limits = append(q.Limits, budget)
				set.Queues[name] = q
			}
		}
	}
	for path, changes := range p.ofBudgets {
		kind, name, _ := strings.Cut(path, ".")
		all := set.Tenants
		if kind == "plans" {
			all = plans
		}
		t, there := all[name]
		if !there {
			continue // its name was refused
		}
		for budget, change := range changes {
			at := path + ".budgets." + budget
			if _, there := queuesOf[budget]; known && !there {
				p.Problems = append(p.Problems, Problem{Path: at, Reason: "there is no budget of this name" + p.like(budget, maps.Keys(queuesOf)), Line: p.lineOf(at)})
			}
			for _, queue := range queuesOf[budget] {
				if t.Limits == nil {
					t.Limits = map[string]map[string]limits.Change{}
				}
				if t.Limits[queue] == nil {
					t.Limits[queue] = map[string]limits.Change{}
				}
				t.Limits[queue][budget] = change
				p.written[path+".limits."+queue+"."+budget] = at
			}
		}
		all[name] = t
	}
}

// inFile returns the path in the file of what a path in the set is about.
func (p *parser) inFile(path string) string {
	for at := path; at != ""; at = around(at) {
		if written, ok := p.written[at]; ok {
			return written + path[len(at):]
		}
	}
	return path
}
