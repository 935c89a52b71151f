package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestTimedSharedQuotas: partitions that share a quota use all of it in its windows, and never more, alone and
// beside a rate that they share, too.
func TestTimedSharedQuotas(t *testing.T) {
	t.Parallel()
	const quota, window = 100, 2 * time.Second
	each := throttle.Rate{Count: quota, Period: window}
	spend := limits.Limit{Name: "spend", Algorithm: throttle.FixedWindow, Rate: each}
	tokens := limits.Limit{Name: "tokens", Algorithm: throttle.FixedWindow, Rate: each, Unit: "tokens"}
	for name, c := range map[string]struct {
		limits []limits.Limit
		cost   int64 // tokens of a job
		want   int   // jobs in a window
	}{
		"a quota":               {[]limits.Limit{spend}, 0, quota},
		"a quota of a unit":     {[]limits.Limit{tokens}, 7, quota / 7},
		"a quota beside a rate": {[]limits.Limit{spend, sharedLimit(throttle.LeakyBucket, 150, 0)}, 0, quota},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			measured(t, func(t *testing.T, run *pacer.Run) {
				server := redistest.Own(t)
				l := newLeased(t, server, c.limits...)
				if c.cost > 0 {
					l.costs = map[string]int64{"tokens": c.cost}
				}
				l.enqueue(2*c.want, append(l.everywhere(1), l.of("q@2", 3)[1:]...)...)
				l.work()
				l.work()
				calls := map[time.Time][]time.Time{}
				until(t, "five windows have calls", func() bool {
					clear(calls)
					for _, at := range l.all() {
						calls[at.Truncate(window)] = append(calls[at.Truncate(window)], at)
					}
					return len(calls) >= 5
				})
				// On a busy machine a call of one window can arrive in the next one, and a slot that is missed is
				// not given again. The first window began before its calls, and the last one has not ended.
				for i, start := range slices.SortedFunc(maps.Keys(calls), time.Time.Compare) {
					in := calls[start]
					what := fmt.Sprintf("calls in a window, the first of them after %v", in[0].Sub(start))
					run.Number(what, start.Add(-window), start.Add(window), float64(len(in)), float64(c.want))
					if i > 0 && i < len(calls)-1 && len(in) < c.want {
						run.Wrong(start, start.Add(window), "%s: %d; want all %d", what, len(in), c.want)
					}
				}
			})
		})
	}
}

// TestSharedQuotaOfAMonth: partitions that have used up a quota of the calendar say when the next one begins,
// and do not ask for the rate that they share, too.
func TestSharedQuotaOfAMonth(t *testing.T) {
	t.Parallel()
	const quota = 20
	server := redistest.Own(t)
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: noon(t)}
	l := newLeased(t, server, month, sharedLimit(throttle.LeakyBucket, 500, 0))
	tenants := l.everywhere(1)
	l.enqueue(quota, tenants...)
	last, err := NewClient(l.client).Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: tenants[2], Payload: 1})
	if err != nil {
		t.Fatal(err)
	}
	l.work()
	now := time.Now().In(month.Location)
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, month.Location)
	in := inspect.New(l.client)
	until(t, "the quota is used up", func() bool { return len(l.all()) >= quota })
	until(t, "the next month is said", func() bool {
		e, err := in.Explain(t.Context(), last.Queue, last.ID)
		if err != nil {
			t.Fatal(err)
		}
		return !e.At.Before(next) && e.HeldBy != nil && e.HeldBy.Limit == "month"
	})
	until(t, "nobody has or wants permits of the rate", func() bool {
		for _, home := range l.layout.Names() {
			text := l.client.Get(t.Context(), store.Key(home, "b:account:")).Val()
			if spec := (limitlua.Spec{Algorithm: "lb", Permit: 2000, Flow: 1, Leased: true}); text != "" {
				if stored, err := spec.Stored(text, time.Now().UnixMicro(), nil); err != nil || stored.Left > 0 {
					return false
				}
			}
			asks, _, _, err := askBuckets(t.Context(), l.client, home, &effective.Calendars{Queue: home, Redis: l.client}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(asks, func(a leaseAsk) bool { return a.limit == "account" && a.Want > 0 }) {
				return false
			}
		}
		return true
	})
	if n := len(l.all()); n != quota {
		t.Errorf("%d calls of %d", n, quota)
	}
}

// TestUsedUpUnitHoldsNoOtherJobs: jobs that take nothing of a shared quota with a unit go on when that is used up, and
// use all of another one.
func TestUsedUpUnitHoldsNoOtherJobs(t *testing.T) {
	t.Parallel()
	const quota, cents = 40, 10
	server := redistest.Own(t)
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: noon(t)}
	spend := month
	spend.Name, spend.Unit, spend.Rate.Count = "spend", "cents", cents
	l := newLeased(t, server, month, spend)
	l.costs = map[string]int64{"cents": 1}
	tenants := l.everywhere(2)
	l.enqueue(quota, tenants[0], tenants[2], tenants[4]) // beside others, alone in its partition, and not in the last one
	l.work()
	until(t, "the quota with a unit is used up", func() bool { return len(l.all()) >= cents && saysNextMonth(t, l, tenants[2]) })
	l.costs = nil
	l.enqueue(quota, tenants[1], tenants[6])
	until(t, "the other quota is used up", func() bool { return len(l.all()) >= quota && saysNextMonth(t, l, tenants[6]) })
	if n := len(l.all()); n != quota {
		t.Errorf("%d calls of %d", n, quota)
	}
}

// TestGrantOfAUnitReachesAllLanes: lanes that wait for the next month, because other partitions have all of a
// shared quota with a unit, go on when theirs gets some of it.
func TestGrantOfAUnitReachesAllLanes(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Months: 1}, Location: noon(t), Unit: "tokens"}
	l := newLeased(t, server, month)
	l.costs = map[string]int64{"tokens": 1}
	l.enqueue(2, l.of("q@2", 5)...)
	r := &rig{server: server, queue: "q@2"}
	d := r.dispatcher()
	asks, _, _, err := askBuckets(t.Context(), l.client, r.queue, d.limits, 0)
	if err != nil || len(asks) != 1 {
		t.Fatal(asks, err)
	}
	now := time.Now()
	grant := func(version int, permits ...any) {
		args := append([]any{r.queue, "month", asks[0].id, version, 250_000, 1_000_000, ""}, permits...)
		if _, err := store.GrantScript.Run(t.Context(), l.client, store.ScriptKeys(r.queue), args...); err != nil {
			t.Fatal(err)
		}
	}
	grant(1, 0, now.UnixMicro(), now.Add(time.Hour).UnixMicro())
	if ids := r.release(t, d, 100); len(ids) > 0 {
		t.Fatalf("without permits went %v", ids)
	}
	late := fmt.Sprint(now.Add(time.Minute).UnixMicro())
	if n := l.client.ZCount(t.Context(), store.Key(r.queue, "waiting"), late, "+inf").Val(); n != 4 {
		t.Fatalf("%d lanes wait for the next month; want all but the first", n)
	}
	grant(2, 100, now.UnixMicro(), now.Add(time.Hour).UnixMicro())
	if ids := r.release(t, d, 100); len(ids) != 10 {
		t.Errorf("with permits went %d jobs of 10", len(ids))
	}
}

// TestHeldJobsKeepWhatComesFirst: a job may need several shared limits, of which others may have the rest. A partition
// that lacks one keeps what it has of those that come before it, and gives back what comes after it: so no two
// partitions wait for each other. It keeps as much as it may have calls, and not as much as it has jobs.
func TestHeldJobsKeepWhatComesFirst(t *testing.T) {
	t.Parallel()
	quota := func(name, unit string) limits.Limit {
		return limits.Limit{Name: name, Unit: unit, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10, Months: 1}, Location: noon(t)}
	}
	calls := func(name string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: throttle.Concurrency, Concurrency: 2}
	}
	type permits map[string]int64
	for name, c := range map[string]struct {
		limits []limits.Limit
		has    permits // what it was leased; of the others, nothing is left
		keeps  permits
		wants  []string // limits on calls of which it wants some
		paused bool     // with asynq's tools
	}{
		"a quota, no calls":              {[]limits.Limit{quota("month", ""), calls("calls")}, permits{"month": 10}, permits{"month": 2}, []string{"calls"}, false},
		"calls, no quota":                {[]limits.Limit{quota("month", ""), calls("calls")}, permits{"calls": 2}, nil, nil, false},
		"a unit, no calls":               {[]limits.Limit{quota("month", "cents"), calls("calls")}, permits{"month": 10}, permits{"month": 2}, []string{"calls"}, false},
		"calls, no unit":                 {[]limits.Limit{quota("month", "cents"), calls("calls")}, permits{"calls": 2}, nil, nil, false},
		"no calls, no unit":              {[]limits.Limit{quota("month", "cents"), calls("calls")}, nil, nil, nil, false},
		"the first of two quotas":        {[]limits.Limit{quota("b", ""), quota("a", "")}, permits{"a": 10}, permits{"a": 10}, nil, false},
		"the second of two quotas":       {[]limits.Limit{quota("b", ""), quota("a", "")}, permits{"b": 10}, nil, nil, false},
		"a unit, no quota before it":     {[]limits.Limit{quota("b", "tokens"), quota("a", "")}, permits{"b": 10}, permits{"b": 10}, nil, false},
		"a unit, no quota after it":      {[]limits.Limit{quota("b", ""), quota("a", "tokens")}, permits{"a": 10}, permits{"a": 10}, nil, false},
		"a unit, a quota, no calls":      {[]limits.Limit{quota("b", ""), quota("a", "tokens"), calls("calls")}, permits{"a": 10, "b": 10}, permits{"a": 2, "b": 2}, []string{"calls"}, false},
		"the first of two kinds of call": {[]limits.Limit{calls("b"), calls("a")}, permits{"b": 2}, permits{"b": 2}, []string{"a"}, false},
		"the second of them":             {[]limits.Limit{calls("b"), calls("a")}, permits{"a": 2}, nil, []string{"b"}, false},
		"a quota, no calls, but a pause": {[]limits.Limit{quota("month", ""), calls("calls")}, permits{"month": 10}, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			l := newLeased(t, server, c.limits...)
			l.costs = map[string]int64{"cents": 1, "tokens": 1}
			l.enqueue(2, l.of("q@2", 5)...)
			r := &rig{server: server, queue: "q@2"}
			d := r.dispatcher()
			now := time.Now()
			ask := func() []leaseAsk {
				t.Helper()
				asks, _, _, err := askBuckets(t.Context(), l.client, r.queue, d.limits, 0)
				if err != nil || len(asks) != len(c.limits) {
					t.Fatalf("%+v, %v", asks, err)
				}
				return asks
			}
			blocked := false
			for _, a := range ask() {
				n, later := c.has[a.limit], now.Add(time.Hour).UnixMicro()
				args := []any{r.queue, a.limit, a.id, 1, 250_000, 1_000_000, "", n, now.Add(-time.Hour).UnixMicro(), later}
				if a.spec.Algorithm == "cc" {
					args = []any{r.queue, a.limit, a.id, 1, n, 0, "", n, 1, later}
					blocked = blocked || n == 0
				}
				if _, err := store.GrantScript.Run(t.Context(), l.client, store.ScriptKeys(r.queue), args...); err != nil {
					t.Fatal(err)
				}
			}
			if blocked {
				if ids := r.release(t, d, 100); len(ids) > 0 {
					t.Fatalf("without calls went %v", ids)
				}
			}
			if c.paused {
				l.client.Set(t.Context(), asynqwire.Key(r.queue, "paused"), 1, 0)
			}
			for _, a := range ask() {
				if a.N != c.keeps[a.limit] {
					t.Errorf("it keeps %d of %s; want %d", a.N, a.limit, c.keeps[a.limit])
				}
				if wants := a.spec.Algorithm == "cc" && a.Want > 0; wants != slices.Contains(c.wants, a.limit) {
					t.Errorf("it wants %d of %s", a.Want, a.limit)
				}
			}
		})
	}
}

// TestQuotaBesideAClockAhead: a partition whose Redis's clock is ahead of the ledger's asks for a quota, gets it, and asks
// again. A node's clock need not be ahead by more than a few microseconds.
func TestQuotaBesideAClockAhead(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Months: 1}, Location: noon(t)}
	l := newLeased(t, server, month)
	l.enqueue(2, l.of("q@2", 5)...)
	r := &rig{server: server, queue: "q@2"}
	d := r.dispatcher()
	now := time.Now()
	var asks []leaseAsk
	for _, ahead := range []time.Duration{16 * time.Microsecond, 16 * time.Microsecond, time.Hour, time.Microsecond} {
		var err error
		asks, _, _, err = askBuckets(t.Context(), l.client, r.queue, d.limits, -ahead)
		if err != nil || len(asks) != 1 || asks[0].Want != 10 {
			t.Fatalf("with a clock that is %v ahead, it asks %+v, %v", ahead, asks, err)
		}
	}
	granted, err := store.GrantScript.Run(t.Context(), l.client, store.ScriptKeys(r.queue), r.queue, "month", asks[0].id, 1, 250_000, 1_000_000, "", 10, now.Add(-time.Hour).UnixMicro(), now.Add(time.Hour).UnixMicro())
	if err != nil || granted != int64(1) {
		t.Fatal(granted, err)
	}
	if ids := r.release(t, d, 100); len(ids) != 10 {
		t.Errorf("with permits went %d jobs of 10", len(ids))
	}
}

// TestUsedQuotaOutlivesUnregister: a queue that is removed, and comes back in other partitions, has used what it
// had used of a quota.
func TestUsedQuotaOutlivesUnregister(t *testing.T) {
	t.Parallel()
	const quota = 4
	server := redistest.Own(t)
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: noon(t)}
	l := newLeased(t, server, month)
	l.enqueue(1, l.everywhere(1)...)
	stop := l.work()
	until(t, "all are called", func() bool { return len(l.all()) == quota && allEnded(t, l) })
	stop()
	expires := func() time.Duration { return l.client.PTTL(t.Context(), store.Key("q", "ledger")).Val() }
	if left := expires(); left != -1 {
		t.Errorf("the ledger expires in %v; a queue can be quiet for longer", left)
	}
	if err := operate.Unregister(t.Context(), l.client, "q", operate.Operator{Actor: "anna", Reason: "three partitions"}); err != nil {
		t.Fatal(err)
	}
	if left := expires(); left < 31*24*time.Hour {
		t.Errorf("the ledger of a queue that is gone expires in %v, before the month ends", left)
	}
	l.layout.N = 3
	l.publish(month)
	l.enqueue(2, l.everywhere(1)...)
	l.work()
	until(t, "the next month is said", func() bool { return saysNextMonth(t, l, l.everywhere(1)[0]) })
	if n := len(l.all()); n != quota {
		t.Errorf("%d calls of %d", n, quota)
	}
}

// saysNextMonth reports whether the next job of a tenant waits for the next month.
func saysNextMonth(t *testing.T, l *leased, tenant string) bool {
	t.Helper()
	o, err := inspect.New(l.client).Outlook(t.Context(), "q", tenant)
	if err != nil {
		t.Fatal(err)
	}
	return o.HeldBy != nil && time.Until(o.HeldBy.Next) > 0 && time.Until(o.DrainsAt) > 6*time.Hour // the month ends at midnight
}

// TestIdleFirstPartition: the limits that the first partition has are in force, and are changed, though none
// of its tenants has jobs.
func TestIdleFirstPartition(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	zone := noon(t)
	month := func(n int64) limits.Limit {
		return limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: n, Months: 1}, Location: zone}
	}
	l := newLeased(t, server, month(3))
	tenant := l.of("q@3", 1)[0]
	l.enqueue(10, tenant)
	l.work()
	// Once the next job waits for the next month, no more can go.
	usedUp := func(n int) {
		t.Helper()
		until(t, "the quota is used up", func() bool { return len(l.all()) >= n })
		until(t, "the next month is said", func() bool { return saysNextMonth(t, l, tenant) })
		if got := len(l.all()); got != n {
			t.Errorf("%d calls of %d", got, n)
		}
	}
	usedUp(3)
	l.publish(month(5))
	usedUp(5)
}
