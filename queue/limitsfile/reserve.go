package limitsfile

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// reserve is what a limit keeps for one side: the other side gets a limit of its own, of the rest.
type reserve struct {
	queue string
	limit limits.Limit
	of    limits.Side // that may use only the rest
	rest  int64       // percent
	at    string      // where the file says so
}

// name returns the name of the limit of the rest.
func (r reserve) name() string { return r.limit.Name + "-" + string(r.of) }

// reserves reads what a limit keeps, as {direct: 20%}.
func (p *parser) reserves(kept *[]reserve) read {
	side := func(of limits.Side) read {
		return func(node *yaml.Node, path string) {
			text, found := strings.CutSuffix(node.Value, "%")
			percent, _ := strconv.ParseInt(text, 10, 64)
			if node.Kind != yaml.ScalarNode || !found || strconv.FormatInt(percent, 10) != text || percent < 1 || percent > 99 {
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

// limitOf reads a limit of a queue, and what it keeps.
func (p *parser) limitOf(queue string, node *yaml.Node, path string) limits.Limit {
	var side string
	var kept []reserve
	limit := p.limit(node, path, map[string]read{"for": p.Text(&side), "reserve": p.reserves(&kept)})
	limit.For = limits.Side(side)
	if len(kept) > 0 && limit.Algorithm == throttle.LeakyBucket && limit.Unit != "" {
		p.Wrong(node, path+".reserve", "a leaky_bucket with a unit keeps nothing: use a token_bucket, or two limits with for")
	}
	if len(kept) > 0 && limit.Ramp != nil {
		p.Wrong(node, path+".reserve", "a limit with a ramp keeps nothing: use two limits with for")
	}
	for _, r := range kept {
		r.queue, r.limit = queue, limit
		p.reserved = append(p.reserved, r)
	}
	return limit
}

// keep gives each queue the limits of the rest that its reserves leave.
func (p *parser) keep(set limits.Set) {
	for _, r := range p.reserved {
		q := set.Queues[r.queue]
		p.written[fmt.Sprintf("queues.%s.limits[%d]", r.queue, len(q.Limits))] = r.at
		q.Limits = append(q.Limits, r.rests())
		set.Queues[r.queue] = q
	}
}

// keepForOthers gives groups and tenants that have other numbers of a limit, of their own or of their plan, the same
// part of those.
func (p *parser) keepForOthers(set limits.Set) {
	if len(p.reserved) == 0 {
		return
	}
	of := map[string]map[string][]reserve{} // by the queue and the limit
	for _, r := range p.reserved {
		if of[r.queue] == nil {
			of[r.queue] = map[string][]reserve{}
		}
		of[r.queue][r.limit.Name] = append(of[r.queue][r.limit.Name], r)
	}
	for name, group := range set.Groups {
		p.keepParts(of, "groups."+name, group.Limits, nil)
	}
	for name, t := range set.Tenants {
		p.keepParts(of, "tenants."+name, t.Limits, set.Groups[t.Group].Limits)
	}
}

// keepParts adds the parts of changed limits to the changes of a group or tenant, which are at a path of the file. Those
// of a tenant change what its group has.
func (p *parser) keepParts(of map[string]map[string][]reserve, path string, changes, ofGroup map[string]map[string]limits.Change) {
	for queue, changed := range changes {
		if of[queue] == nil {
			continue
		}
		for _, limit := range slices.Collect(maps.Keys(changed)) {
			for _, r := range of[queue][limit] {
				if _, own := changed[r.name()]; own {
					continue
				}
				changed[r.name()] = r.part(r.limit.With(ofGroup[queue][limit]), changed[limit])
				where := path + ".limits." + queue + "."
				p.written[where+r.name()] = where + limit
			}
		}
	}
}

// rests returns the limit of the rest.
func (r reserve) rests() limits.Limit {
	l := r.limit
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
		burst := max(l.With(c).Burst*r.rest/100, 1)
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
