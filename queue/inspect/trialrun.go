package inspect

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/replay"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// trial lets calls go under some limits after others.
type trial struct {
	conformance.Arrivals
	first, last int64 // when the first call left and the last one, Unix ms
	outcomes    []trialOutcome
	notCounted  map[string]bool
	fullRate    map[string]bool
}

type trialOutcome struct {
	rules   []limits.Limit
	use     []float64
	waited  []time.Duration // by call; -1: it is not the first of a job
	held    [][]float64     // by lane and limit, s
	tenants []string
}

// run lets the calls go under limits.
func (t *trial) run(ctx context.Context, queue string, e effective.Limits) error {
	t.first, t.last = t.Calls[0].Left, t.Calls[0].Left
	for i := range t.Calls {
		t.first, t.last = min(t.first, t.Calls[i].Left), max(t.last, t.Calls[i].Left)
	}
	rules, err := e.Queue.Decode()
	if err != nil {
		return err
	}
	f := &forecast{queue: queue, now: time.UnixMilli(t.first), rules: rules, limits: e, bucketAt: map[string]int{}}
	f.setCalendars()
	lanes, calls := t.lanes(f)
	q, err := t.queueOf(f, lanes, calls)
	if err != nil {
		return err
	}
	if err := q.Run(ctx); err != nil {
		return err
	}
	t.outcomes = append(t.outcomes, t.outcome(f, q, lanes, calls))
	return nil
}

// queueOf returns a queue with the calls, which has the limits of a forecast.
func (t *trial) queueOf(f *forecast, lanes []*lane, calls [][]int) (*replay.Queue, error) {
	q := &replay.Queue{Ahead: store.Horizon.Seconds()}
	buckets, tenants := make([]*replay.Bucket, len(f.buckets)), map[string]*replay.Tenant{}
	shared, sure := map[int]fluid.Bucket{}, map[string][]*fluid.Single{} // by limit; by tenant and limit
	for i, l := range lanes {
		one := &replay.Lane{Tenant: tenants[l.Tenant]}
		if one.Tenant == nil {
			one.Tenant = &replay.Tenant{Weight: f.limits.Weight(l.Tenant)}
			tenants[l.Tenant] = one.Tenant
		}
		var err error
		if one.Hours, _, err = f.openings(l); err != nil {
			return nil, err
		}
		for j, at := range l.buckets {
			switch limit := f.rules.Limits[j]; {
			case !store.Holds(limit, &l.Lane):
				continue
			case at < 0 || limit.Queues != nil:
				t.notCounted[limit.Name] = true
				continue
			case buckets[at] != nil:
				buckets[at].Shared = true
			default:
				if limit.Ramp != nil || limit.Adaptive {
					t.fullRate[limit.Name] = true
				}
				spec := f.limits.Spec(j, l.Tenant)
				spec.Leased, spec.Pool = false, false
				b, _, err := f.bucket(j, l, spec)
				if err != nil {
					return nil, err
				}
				if len(limit.Per) == 0 && limit.For != limits.Direct {
					shared[j] = b
				}
				buckets[at] = &replay.Bucket{Single: fluid.NewSingle(b, spec.Algorithm == "sl"), Limit: j}
				q.Buckets = append(q.Buckets, buckets[at])
			}
			one.Uses = append(one.Uses, buckets[at])
		}
		if part := f.limits.Guarantee(l.Tenant); part > 0 && len(shared) > 0 && !t.Calls[calls[i][0]].Direct {
			if sure[l.Tenant] == nil {
				sure[l.Tenant] = make([]*fluid.Single, len(f.rules.Limits))
				for j, b := range shared {
					sure[l.Tenant][j] = b.Part(part)
					if f.rules.Limits[j].Unit == "" {
						one.Tenant.AtOnce = max(one.Tenant.AtOnce, sure[l.Tenant][j].Max)
					}
				}
			}
			for _, b := range one.Uses {
				one.Sure = append(one.Sure, sure[l.Tenant][b.Limit])
			}
		}
		costs := map[int32]int{}
		for _, at := range calls[i] {
			c := &t.Calls[at]
			cost, known := costs[c.Took]
			if !known {
				cost = len(one.Costs)
				costs[c.Took] = cost
				one.Costs = append(one.Costs, t.costs(f, l, c, one.Uses))
			}
			one.Jobs = append(one.Jobs, replay.Job{At: float64(c.Came()-t.first) / 1e3, Cost: cost})
		}
		q.Lanes = append(q.Lanes, one)
	}
	return q, nil
}

// outcome says what became of the calls.
func (t *trial) outcome(f *forecast, q *replay.Queue, lanes []*lane, calls [][]int) trialOutcome {
	const most = 1e9 // seconds that fit into a duration
	rules, end := f.rules.Limits, float64(t.last-t.first)/1e3
	out := trialOutcome{rules: rules, use: make([]float64, len(rules)), waited: make([]time.Duration, len(t.Calls))}
	for i, l := range q.Lanes {
		held := make([]float64, len(rules))
		for k, b := range l.Uses {
			held[b.Limit] += l.Held[k]
		}
		out.held, out.tenants = append(out.held, held), append(out.tenants, lanes[i].Tenant)
		for k, at := range calls[i] {
			job := &l.Jobs[k]
			if out.waited[at] = -1; t.Calls[at].Waited >= 0 {
				out.waited[at] = time.Duration(min(max(0, job.Gone-job.At), most) * 1e9)
			}
			if job.Gone > end {
				continue
			}
			for n, b := range l.Uses {
				out.use[b.Limit] += l.Costs[job.Cost][n]
			}
		}
	}
	for j, rule := range rules {
		if out.use[j] /= perSecond(f.limits.Queue.Limits[j].Spec, rule) * end; len(rule.Per) > 0 || t.notCounted[rule.Name] {
			out.use[j] = math.NaN()
		}
	}
	return out
}

// lanes returns the lanes of the calls, those of calls without a job for themselves, and of each the indexes of its
// calls, by when they come.
func (t *trial) lanes(f *forecast) (lanes []*lane, calls [][]int) {
	at := make([]int, 2*len(t.Lanes)) // 1 more than the index in lanes
	for i := range t.Calls {
		c := &t.Calls[i]
		k := 2 * int(c.Lane)
		if c.Direct {
			k++
		}
		if at[k] == 0 {
			l := &lane{Lane: t.Lanes[c.Lane]}
			f.findBuckets(l)
			lanes, calls = append(lanes, l), append(calls, nil)
			at[k] = len(lanes)
		}
		calls[at[k]-1] = append(calls[at[k]-1], i)
	}
	for _, of := range calls {
		slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(t.Calls[a].Came(), t.Calls[b].Came()) })
	}
	f.texts = make([]any, len(f.buckets)) // nothing was used
	return lanes, calls
}

// costs returns what a call takes of the limits of a lane, and then how much it moves its tenant forward.
func (t *trial) costs(f *forecast, l *lane, c *conformance.Arrival, uses []*replay.Bucket) []float64 {
	took, all := t.Took[c.Took], make([]float64, 0, len(uses)+1)
	for _, b := range uses {
		limit := f.rules.Limits[b.Limit]
		if limit.For == limits.Jobs && c.Direct || limit.For == limits.Direct && !c.Direct {
			all = append(all, 0)
			continue
		}
		all = append(all, permits(limit, f.limits.Spec(b.Limit, l.Tenant), map[string]float64{limit.Unit: float64(took.Of(limit.Unit))}))
	}
	return append(all, max(0, float64(took.Of(""))))
}
