package limitsfile

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// reserve is what a limit keeps for one side: the other side gets a limit of its own, of the rest.
type reserve struct {
	queue, limit string
	of           limits.Side // that may use only the rest
	rest         int64       // percent
	at           string      // where the file says so
}

// name returns the name of the limit of the rest.
func (r reserve) name() string { return r.limit + "-" + string(r.of) }

// reserves reads what a limit keeps, as {direct: 20%}.
func (p *parser) reserves(kept *[]reserve) read {
	side := func(of limits.Side) read {
		return func(node *yaml.Node, path string) {
			var percent int64
			text, found := strings.CutSuffix(node.Value, "%")
			_, err := fmt.Sscanf(text, "%d", &percent)
			if node.Kind != yaml.ScalarNode || !found || err != nil || fmt.Sprint(percent) != text || percent < 1 || percent > 99 {
				p.Wrong(node, path, "must be 1%% to 99%%, in whole percent, not %s", p.Describe(node))
				return
			}
			*kept = append(*kept, reserve{of: of, rest: 100 - percent, at: path})
		}
	}
	return func(node *yaml.Node, path string) {
		p.Fields(node, path, map[string]read{"direct": side(limits.Jobs), "jobs": side(limits.Direct)})
	}
}

// keep gives each queue the limits of the rest that its reserves leave, and the tenants and plans that
// have other numbers of a limit the same part of those.
func (p *parser) keep(set limits.Set, plans map[string]limits.Tenant) {
	for _, r := range p.reserved {
		q, of := set.Queues[r.queue], limits.Limit{}
		for _, limit := range q.Limits {
			if limit.Name == r.limit {
				of = limit
				p.written[fmt.Sprintf("queues.%s.limits[%d]", r.queue, len(q.Limits))] = r.at
				q.Limits = append(q.Limits, r.limitOf(limit))
				break
			}
		}
		set.Queues[r.queue] = q
		for kind, all := range map[string]map[string]limits.Tenant{"tenants": set.Tenants, "plans": plans} {
			for name, t := range all {
				change, differs := t.Limits[r.queue][r.limit]
				if _, own := t.Limits[r.queue][r.name()]; differs && !own {
					t.Limits[r.queue][r.name()] = r.part(of, change)
					where := kind + "." + name + ".limits." + r.queue + "."
					p.written[where+r.name()] = where + r.limit
				}
			}
		}
	}
}

// limitOf returns the limit of the rest.
func (r reserve) limitOf(l limits.Limit) limits.Limit {
	rest := l.With(r.part(l, limits.Change{Rate: &l.Rate, Concurrency: &l.Concurrency}))
	rest.Name, rest.For = r.name(), r.of
	if rest.Algorithm == throttle.LeakyBucket {
		rest.Algorithm, rest.Capacity = throttle.TokenBucket, 0 // the limit itself spaces the calls of both
	}
	return rest
}

// slack is what calls of one side may catch up on after those of the other: each gets its slot up to store.Horizon
// ahead, in turn with the others.
const slack = 250 * time.Millisecond

// part returns the part of a limit's numbers that is the rest: of a window or a concurrency that of its count,
// rounded down; of any other rate exactly that part, and what may go at once.
func (r reserve) part(l limits.Limit, c limits.Change) limits.Change {
	rate := l.With(c).Rate
	switch l.Algorithm {
	case throttle.TokenBucket, throttle.LeakyBucket:
		exact := big.NewRat(rate.Count*r.rest, 100)
		rate = throttle.Rate{Count: exact.Num().Int64(), Period: rate.Period * time.Duration(exact.Denom().Int64())}
		burst := l.With(c).Burst * r.rest / 100
		if rate.Period > 0 {
			burst = max(burst, 1+int64(math.Ceil(float64(rate.Count)*slack.Seconds()/rate.Period.Seconds())))
		}
		return limits.Change{Rate: &rate, Burst: &burst}
	case throttle.Concurrency:
		return limits.Change{Concurrency: new(l.With(c).Concurrency * r.rest / 100)}
	}
	rate.Count = rate.Count * r.rest / 100
	return limits.Change{Rate: &rate}
}
