package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// sharedTokens returns a queue whose partitions share 20 tokens, of which one flows back in an hour.
func sharedTokens(t *testing.T) *leased {
	t.Helper()
	server := redistest.Own(t)
	return newLeased(t, server, tokens(20))
}

// TestSharedTokens: partitions spend what is in one bucket of tokens, whichever of them has jobs. Explain names the
// limit for a job for which too few are left.
func TestSharedTokens(t *testing.T) {
	t.Parallel()
	l := sharedTokens(t)
	l.costs = map[string]int64{"tokens": 3}
	tenants := l.everywhere(1)
	l.enqueue(2, tenants...)
	l.work()
	in := inspect.New(l.client)
	calls := 0
	until(t, "six of eight jobs are called, and the others say that tokens hold them", func() bool {
		held := 0
		calls = len(l.all())
		for _, home := range l.layout.Names() {
			page, err := in.ListJobs(t.Context(), "q", inspect.JobQuery{State: lifecycle.StateWaiting, Tenant: l.of(home, 1)[0]})
			if err != nil {
				t.Fatal(err)
			}
			for _, job := range page.Jobs {
				e, err := in.Explain(t.Context(), "q", job.ID)
				if errors.Is(err, lifecycle.ErrNoJob) {
					continue // it was called meanwhile
				} else if err != nil {
					t.Fatal(err)
				}
				// Two tokens are left, and the third comes in an hour.
				if e.HeldBy != nil && e.HeldBy.Limit == "tokens" && time.Until(e.At) > time.Minute {
					held++
				}
			}
		}
		// A slot that was missed is lost if the other job of its partition got a later one.
		return calls+held == 8 && calls+l.seen.outcomes("missed") >= 6
	})
	gauges, err := in.Gauges(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	// All of it for those who wait, and what it was for the others when they asked last.
	if used := gauges.Limits[0].Used; used < 0.5 || used > 1 {
		t.Errorf("%v of the tokens are said to be used; want most of them", used)
	}
	if n := len(l.all()); calls > 6 || n != calls {
		t.Errorf("%d calls of 3 tokens, of 20; before that %d", n, calls)
	}
}

// TestTokensUsedBeyondTheEstimate: what calls used of shared tokens beyond what they took is owed by all partitions.
func TestTokensUsedBeyondTheEstimate(t *testing.T) {
	t.Parallel()
	l := sharedTokens(t)
	l.costs, l.used = map[string]int64{"tokens": 4}, map[string]int64{"tokens": 20}
	l.work()
	l.enqueue(1, l.of("q", 1)...)
	until(t, "the ledger knows what the call used", func() bool {
		text := l.client.Get(t.Context(), store.Key("q", "b:tokens:")).Val()
		lease, err := limitlua.ReadLease(text)
		return err == nil && lease.N >= 20 && lease.Spent == lease.N // more, if it missed its first slot
	})
	job, err := NewClient(l.client).Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: l.of("q@3", 1)[0], Payload: 1, Costs: l.costs})
	if err != nil {
		t.Fatal(err)
	}
	in := inspect.New(l.client)
	until(t, "a job of another partition is held", func() bool {
		e, err := in.Explain(t.Context(), "q", job.ID)
		if err != nil {
			t.Fatal(err)
		}
		return e.HeldBy != nil && e.HeldBy.Limit == "tokens"
	})
}

// TestUnusedTokensComeBack: what a call did not use of shared tokens lets a job of another partition go, although the
// one that had them has no more jobs.
func TestUnusedTokensComeBack(t *testing.T) {
	t.Parallel()
	l := sharedTokens(t)
	l.costs, l.used = map[string]int64{"tokens": 20}, map[string]int64{"tokens": 2}
	l.work()
	for i, home := range l.layout.Names() {
		l.costs = map[string]int64{"tokens": int64(20 - 2*i)}
		l.enqueue(1, l.of(home, 1)...)
		until(t, "a job of "+home+" is called", func() bool { return len(l.all()) == i+1 })
	}
}

// TestExpiredJobAsksForSharedTokens: a job expires that has taken nothing, in a partition whose clock is ahead of the
// ledger's. The partition still asks for tokens.
func TestExpiredJobAsksForSharedTokens(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	l := newLeased(t, server, tokens(20))
	l.costs = map[string]int64{"tokens": 3}
	job, err := NewClient(l.client).Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: l.of("q@2", 1)[0], Payload: 1, Costs: l.costs, Deadline: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{server: server, queue: "q@2"}
	d := r.dispatcher()
	asks := func() []leaseAsk {
		t.Helper()
		asks, _, _, err := askBuckets(t.Context(), l.client, r.queue, d.limits, -300*time.Microsecond)
		if err != nil {
			t.Fatal(err)
		}
		return asks
	}
	before := asks()
	if len(before) != 1 || before[0].Want != 3 {
		t.Fatalf("it asks %+v; want the 3 tokens of its job", before)
	}
	r.expire(t, d, job.ID)
	if after := asks(); len(after) != 1 || after[0].id != before[0].id || after[0].Back != 0 {
		t.Errorf("it asks %+v; want the same bucket, with nothing that came back", after)
	}
	if faults, err := inspect.Faults(t.Context(), l.client, "q"); err != nil || len(faults) > 0 {
		t.Errorf("faults %+v, %v", faults, err)
	}
}

// TestEndedLeaseIsAskedForAgain: what was leased until a moment that has passed lets no job go, so the partition asks for
// as much again, although it has not spent it.
func TestEndedLeaseIsAskedForAgain(t *testing.T) {
	t.Parallel()
	window := limits.Limit{Unit: "tokens", Name: "tokens", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 20, Period: 24 * time.Hour}, Location: noon(t)}
	for name, limit := range map[string]limits.Limit{"tokens": tokens(20), "quota": window} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			l := newLeased(t, server, limit)
			l.costs = map[string]int64{"tokens": 3}
			l.enqueue(1, l.of("q@2", 1)...)
			d := (&rig{server: server, queue: "q@2"}).dispatcher()
			ask := func() leaseAsk {
				t.Helper()
				asks, _, _, err := askBuckets(t.Context(), l.client, "q@2", d.limits, 0)
				if err != nil || len(asks) != 1 {
					t.Fatalf("it asks %+v, %v", asks, err)
				}
				return asks[0]
			}
			before := ask()
			if before.Want != 3 || !before.useful() {
				t.Fatalf("it asks %+v; want the 3 tokens of its job", before)
			}
			now, err := store.Time(t.Context(), l.client, store.Key("q@2", "waiting"))
			if err != nil {
				t.Fatal(err)
			}
			from, ends := now.UnixMicro(), now.Add(time.Second).UnixMicro()
			has := map[string][]any{"tokens": {3, ends, 0}, "quota": {3, from, ends}}[name]
			if _, err := store.GrantScript.Run(t.Context(), l.client, store.ScriptKeys("q@2"), append([]any{"q@2", limit.Name, before.id, 1, 1_000_000, 0, ""}, has...)...); err != nil {
				t.Fatal(err)
			}
			if a := ask(); a.Want != 0 && time.Since(now) < time.Second {
				t.Errorf("it asks %+v; want nothing more", a)
			}
			until(t, "it asks for what it needs", func() bool { a := ask(); return a.Want == 3 && a.useful() })
		})
	}
}
