package limitsfile

import (
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// named checks the name of a tenant or plan.
func (p *parser) named(key *yaml.Node, path, what string) bool {
	reason := check.Text(key.Value, check.MaxTenant)
	if reason != "" {
		p.Wrong(key, path, "name of a %s: %s", what, reason)
	}
	return reason == ""
}

// checkMeaning adds what package queue finds wrong, with the lines that it
// speaks of, except for what follows from mistakes that were found before.
func (p *parser) checkMeaning(set limits.Set, plans map[string]limits.Tenant, planOf func(tenant string) string) {
	written := newMistakes(p.Problems)
	added := map[Problem]bool{}
	add := func(problem Problem) {
		problem.Path = p.inFile(problem.Path)
		problem.Line = p.lineOf(problem.Path)
		if !written.explain(problem.Path) && !added[problem] { // each queue of a budget says the same
			added[problem] = true
			p.Problems = append(p.Problems, problem)
		}
	}
	inPlans := map[string]bool{}
	alone := map[string]limits.Tenant{}
	for name, plan := range plans {
		plan.Guarantee = 0 // it counts once for each tenant
		alone[name] = plan
	}
	// A plan that nobody has is checked, too: its mistakes would come with its
	// first tenant.
	for _, problem := range p.meaning(limits.Set{Queues: set.Queues, Groups: set.Groups, Tenants: alone}) {
		rest, ours := strings.CutPrefix(problem.Path, "tenants.")
		if !ours {
			continue // the mistakes of queues and groups come with the set
		}
		inPlans[rest] = true
		problem.Path = "plans." + rest
		add(problem)
	}
	for _, problem := range p.meaning(set) {
		rest, isTenant := strings.CutPrefix(problem.Path, "tenants.")
		tenant, change, _ := strings.Cut(rest, ".limits.")
		if isTenant && inPlans[planOf(tenant)+".limits."+change] {
			continue // reported once, with the plan
		}
		add(problem)
	}
}

// meaning is what package queue says about limits.
func (p *parser) meaning(set limits.Set) []Problem {
	all := validation.Unjoin(set.Validate())
	problems := make([]Problem, len(all))
	for i, err := range all {
		problems[i] = Problem{Reason: err.Error()}
		if field, ok := errors.AsType[*validation.Error](err); ok {
			problems[i] = Problem{Path: field.Field, Reason: field.Reason}
		}
	}
	return problems
}

// lineOf is the line of a path, or of the nearest thing around it: what is
// missing has no line of its own.
func (p *parser) lineOf(path string) int {
	for ; path != ""; path = around(path) {
		if line, ok := p.Lines[path]; ok {
			return line
		}
	}
	return 0
}

// around is the path of what holds a path; "" for the file.
func around(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// mistakes are the paths of what could not be read.
type mistakes struct {
	at     map[string]bool
	limits map[string]bool // limits and changes of limits that were read in part
	queues map[string]bool // queues that were read in part
	kinds  map[string]bool // paths of queues whose kinds may not have been read
}

var limitPath = regexp.MustCompile(`^queues\..+\.limits\[\d+\]|^budgets\[\d+\]|^(?:plans|tenants|groups)\..+\.limits\.[^.]+\.[^.]+`)

func newMistakes(problems []Problem) mistakes {
	m := mistakes{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, problem := range problems {
		m.at[problem.Path] = true
		if at, _, _ := strings.Cut(problem.Path, ".kinds"); at != problem.Path {
			m.kinds[at] = true
		}
		if problem.Unknown {
			m.kinds[around(problem.Path)] = true
		}
		if limit := limitPath.FindString(problem.Path); limit != "" {
			m.limits[limit] = true
		}
		// Names may hold dots, so every part of the path may be the queue's.
		queue, _ := strings.CutPrefix(problem.Path, "queues.")
		for ; queue != "" && queue != problem.Path; queue = around(queue) {
			m.queues[queue] = true
		}
	}
	return m
}

// explain tells whether a problem at a path may follow from a mistake: half a
// limit lacks what stands in its other half, a limit that could not be read is
// missed by the tenants who change it, and kinds that could not be read by their
// windows. The rest shows once that is mended.
func (m mistakes) explain(path string) bool {
	if m.limits[limitPath.FindString(path)] {
		return true
	}
	for at := path; at != ""; at = around(at) {
		if m.at[at] {
			return true
		}
	}
	if queue, _, ok := strings.Cut(path, ".send_windows."); ok && m.kinds[queue] {
		return true
	}
	if strings.HasPrefix(path, "queues.") {
		return false
	}
	_, queue, _ := strings.Cut(path, ".limits.")
	for ; queue != ""; queue = around(queue) {
		if m.queues[queue] {
			return true
		}
	}
	return m.at[""] || m.at["queues"]
}
