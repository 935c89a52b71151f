package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// Trial compares limits that are only proposed with those in force, for the calls of a queue in the last day: each job
// comes again when it came, and goes when the limits let it.
type Trial struct {
	From, To time.Time // when the first and the last of the calls left
	Calls    int       // 0: none is known, and nothing else is set
	Jobs     int       // those of which the first call is one of Calls: only their waiting is counted

	Measured Waiting // how they waited
	InForce  Outcome // how they wait in the model, under the limits in force
	Proposed Outcome // the same, under the proposed limits

	Tenants []TrialTenant // first those for whom the proposed limits change most
	Total   int           // how many tenants there are

	// NotCounted names limits that the model leaves out, because it does not know what holds them: how long calls
	// take (concurrency), or the calls of other queues (budgets).
	NotCounted []string

	// FullRate names limits with a ramp and adaptive limits, which are tried at their full rate: the model does not
	// know how far a ramp is, or which rate a provider admits.
	FullRate []string
}

// Waiting says how long jobs waited, from when they came or became due until their first call left.
type Waiting struct {
	P50, P95, P99, Max time.Duration
}

// Outcome is what limits make of the calls.
type Outcome struct {
	Waiting
	Limits []TrialLimit // in their order
}

// TrialLimit says what a limit did.
type TrialLimit struct {
	Name    string
	Used    float64       // of a limit that all share: the part of its permits in the time of the calls that they took. NaN: of others
	Held    time.Duration // for how long it held jobs, each counted for itself once it is the next of its lane
	Tenants int           // how many tenants it held longer than other limits did
}

// TrialTenant is what limits make of a tenant's calls.
type TrialTenant struct {
	Tenant                      string
	Jobs                        int
	Measured, InForce, Proposed Waiting

	// The limits that held the tenant longest; "" if none did.
	HeldBy, WouldHoldBy string
}

// TrialQuery says what [Try] returns.
type TrialQuery struct {
	Tenant string // only this one among Tenants; "": all
	N      int    // the maximum number of tenants, 1 to [MaxTrial]
}

// MaxTrial is the maximum number of tenants that [Try] returns.
const MaxTrial = 1000

// Try lets the calls of a queue in the last day, or the latest million of them or so, go again under the limits of
// a set. Only a queue that says conformance in its limits keeps its calls. Overrides stay in force. Calls without a
// job, and those of retries, come when they left. Pauses, adaptive limits, ramps, priorities and jobs that still wait are not
// part of it, and all limits are unused when the first call comes. Errors: [validation.Error].
func Try(ctx context.Context, client redis.UniversalClient, queue string, set limits.Set, query TrialQuery) (Trial, error) {
	if query.N < 1 || query.N > MaxTrial {
		return Trial{}, validation.Field("n", fmt.Sprintf("%d must be 1 to %d", query.N, MaxTrial))
	}
	if reason := check.Text(query.Tenant, check.MaxTenant); query.Tenant != "" && reason != "" {
		return Trial{}, validation.Field("tenant", reason)
	}
	q, known := set.Queues[queue]
	if !known {
		return Trial{}, validation.Field("queue", "the proposed limits have no queue "+check.Quote(queue))
	}
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return Trial{}, err
	}
	fail := func(err error) (Trial, error) {
		return Trial{}, fmt.Errorf("try limits for queue %q: %w", queue, err)
	}
	arrivals, err := conformance.ReadArrivals(ctx, client, queue)
	if err != nil {
		return fail(err)
	}
	if len(arrivals.Calls) == 0 {
		return Trial{}, nil
	}
	inForce, err := limitsOfLanes(ctx, client, queue, arrivals.Lanes)
	if err != nil {
		return fail(err)
	}
	proposed := effective.Limits{Now: inForce.Now, Tenants: map[string]effective.Tenant{}, Overrides: map[string]map[string]effective.Override{}}
	stored := effective.StoreTenants(set, queue)
	proposed.Queue = effective.StoreQueue(q, stored)
	for tenant, own := range stored {
		proposed.Tenants[rediskey.Escape(tenant)] = own
	}
	for tenant, all := range inForce.Overrides {
		proposed.Overrides[tenant] = maps.Clone(all)
		proposed.Resolve(q.Limits, tenant)
	}
	t := trial{Arrivals: arrivals, notCounted: map[string]bool{}, fullRate: map[string]bool{}}
	for _, e := range []effective.Limits{inForce, proposed} {
		if err := t.run(ctx, queue, e); err != nil {
			return fail(err)
		}
	}
	return t.compare(query), nil
}

// limitsOfLanes reads the limits of a queue and of the tenants of lanes.
func limitsOfLanes(ctx context.Context, client redis.UniversalClient, queue string, lanes []store.Lane) (effective.Limits, error) {
	all := effective.Limits{Tenants: map[string]effective.Tenant{}, Overrides: map[string]map[string]effective.Override{}}
	layout, err := store.ReadLayout(ctx, client, queue)
	if err != nil {
		return all, err
	}
	tenants := map[string][]string{} // by partition
	seen := map[string]bool{}
	for i := range lanes {
		if tenant := lanes[i].Tenant; !seen[tenant] {
			seen[tenant] = true
			home := layout.Home(store.Unescape(tenant))
			tenants[home] = append(tenants[home], tenant)
		}
	}
	for _, home := range slices.Sorted(maps.Keys(tenants)) {
		for some := range slices.Chunk(tenants[home], store.MaxKeys) {
			e, _, err := effective.ReadTenants(ctx, client, home, some...)
			if err != nil {
				return all, err
			}
			all.Queue, all.Now = e.Queue, e.Now
			maps.Copy(all.Tenants, e.Tenants)
			maps.Copy(all.Overrides, e.Overrides)
		}
	}
	return all, nil
}

// compare returns the comparison of the two outcomes.
func (t *trial) compare(query TrialQuery) Trial {
	out := Trial{
		From: time.UnixMilli(t.first).UTC(), To: time.UnixMilli(t.last).UTC(), Calls: len(t.Calls),
		NotCounted: slices.Sorted(maps.Keys(t.notCounted)), FullRate: slices.Sorted(maps.Keys(t.fullRate)),
	}
	all, byTenant := waits{}, map[string]*waits{}
	for i := range t.Calls {
		c := &t.Calls[i]
		if c.Waited < 0 {
			continue
		}
		out.Jobs++
		tenant := t.Lanes[c.Lane].Tenant
		of := byTenant[tenant]
		if of == nil {
			of = &waits{}
			byTenant[tenant] = of
		}
		for _, w := range []*waits{&all, of} {
			w.add(time.Duration(c.Waited)*time.Millisecond, t.outcomes[0].waited[i], t.outcomes[1].waited[i])
		}
	}
	out.Measured, out.InForce.Waiting, out.Proposed.Waiting = all[0].of(), all[1].of(), all[2].of()
	var longest [2]map[string]string // the name of a limit by tenant
	for i, into := range []*Outcome{&out.InForce, &out.Proposed} {
		into.Limits, longest[i] = t.outcomes[i].limits()
	}
	for tenant, of := range byTenant {
		if query.Tenant == "" || rediskey.Escape(query.Tenant) == tenant {
			out.Tenants = append(out.Tenants, TrialTenant{
				Tenant: store.Unescape(tenant), Jobs: len(of[0]), Measured: of[0].of(), InForce: of[1].of(), Proposed: of[2].of(),
				HeldBy: longest[0][tenant], WouldHoldBy: longest[1][tenant],
			})
		}
	}
	slices.SortFunc(out.Tenants, func(a, b TrialTenant) int {
		return cmp.Or(cmp.Compare(b.changes(), a.changes()), cmp.Compare(b.Proposed.P95, a.Proposed.P95), cmp.Compare(a.Tenant, b.Tenant))
	})
	out.Total = len(out.Tenants)
	out.Tenants = out.Tenants[:min(query.N, out.Total)]
	return out
}

// changes says how much the proposed limits change for a tenant.
func (t *TrialTenant) changes() float64 {
	return math.Abs(float64(t.Proposed.P95 - t.InForce.P95))
}

// limits says what the limits did, and which held each tenant longest.
func (o *trialOutcome) limits() (all []TrialLimit, longest map[string]string) {
	held := map[string][]float64{} // by tenant and limit
	for i, tenant := range o.tenants {
		if held[tenant] == nil {
			held[tenant] = make([]float64, len(o.rules))
		}
		for j, seconds := range o.held[i] {
			held[tenant][j] += seconds
		}
	}
	for j, rule := range o.rules {
		all = append(all, TrialLimit{Name: rule.Name, Used: min(o.use[j], 1)})
	}
	longest = map[string]string{}
	sums := make([]float64, len(o.rules)) // very low limits hold the jobs of many tenants for longer than a duration can be
	for tenant, seconds := range held {
		most := 0
		for j, s := range seconds {
			sums[j] += s
			if s > seconds[most] {
				most = j
			}
		}
		if len(seconds) > 0 && seconds[most] > 0 {
			longest[tenant] = o.rules[most].Name
			all[most].Tenants++
		}
	}
	for j, s := range sums {
		all[j].Held = time.Duration(min(s, math.MaxInt64/1e9-1) * 1e9)
	}
	return all, longest
}

// waits are how long jobs waited: measured, under the limits in force, and under those proposed.
type waits [3]durations

func (w *waits) add(of ...time.Duration) {
	for i, d := range of {
		w[i] = append(w[i], d)
	}
}

type durations []time.Duration

// of returns the distribution of durations, which it sorts.
func (d durations) of() (w Waiting) {
	slices.Sort(d)
	if len(d) == 0 {
		return w
	}
	at := func(part float64) time.Duration { return d[int(math.Ceil(part*float64(len(d))))-1] }
	w.P50, w.P95, w.P99, w.Max = at(0.5), at(0.95), at(0.99), d[len(d)-1]
	return w
}
