package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// perHour is a bucket of so many permits for each tenant that a test does not see refilled.
func perHour(name string, burst int64) limits.Limit {
	return limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: burst, Per: []string{"tenant"}}
}

// call is what a direct call of a tenant is.
func (r *rig) call(tenant string) Job { return Job{Kind: "call", Queue: r.queue, Tenant: tenant} }

// always is a send window that is never closed.
func always(t *testing.T) sendwindow.Window {
	t.Helper()
	window, err := sendwindow.Parse("00:00-24:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	return window
}

// takes takes permits until a call is refused, and returns how many it took and the refusal.
func (r *rig) takes(t *testing.T, job Job) (n int, refused *RefusedError) {
	t.Helper()
	for ; n < 100; n++ {
		_, err := r.client.Take(t.Context(), job)
		if errors.As(err, &refused) {
			return n, refused
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("100 calls, and none was refused")
	return n, nil
}

// TestDirectCallsShareTheLimits: what direct calls take, jobs do not have, and the other way round.
func TestDirectCallsShareTheLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 5)), nil)
	for range 2 {
		if _, err := r.client.Take(t.Context(), r.call("a")); err != nil {
			t.Fatal(err)
		}
	}
	r.enqueue(t, "a", 4)
	// Without a worker, which may miss a slot and lose its permit.
	d := r.dispatcher()
	until(t, "with 3 jobs released", func() bool { return len(r.release(t, d, 10)) >= 3 })
	n, refused := r.takes(t, r.call("a"))
	if jobs := r.release(t, d, 10); len(jobs) != 3 {
		t.Errorf("%d jobs went after 2 calls of 5", len(jobs))
	}
	if n != 0 || refused.Queue != r.queue || refused.Reason != ParkedByLimit || refused.Limit != "tenant" || refused.RetryAfter <= 59*time.Minute || refused.RetryAfter > time.Hour+store.Horizon {
		t.Errorf("%d more calls went, then %+v", n, refused)
	}
	if text := refused.Error(); !strings.Contains(text, `limit "tenant" is used up, for another`) {
		t.Error(text)
	}
	if n, _ := r.takes(t, r.call("b")); n != 5 {
		t.Errorf("another tenant had %d of 5", n)
	}
	// One that missed its slot got two.
	if slots, err := r.server.Client().HGet(t.Context(), store.Key(r.queue, "totals"), "direct").Int(); err != nil || slots < 7 {
		t.Errorf("%d slots of direct calls are counted, %v", slots, err)
	}
}

// TestCanceledCallsComeBack: a call that was not made used nothing, one that was made used what it took, and
// only the first word counts.
func TestCanceledCallsComeBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 1)), nil)
	for _, end := range []func(p *Permit) error{
		func(p *Permit) error { return p.Cancel(t.Context()) },
		func(p *Permit) error { return errors.Join(p.Cancel(t.Context()), p.Cancel(t.Context())) },
		func(p *Permit) error { return errors.Join(p.Release(t.Context()), p.Cancel(t.Context())) },
	} {
		p, err := r.client.Wait(t.Context(), r.call("a"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(p); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := r.takes(t, r.call("a")); n != 0 {
		t.Errorf("%d calls after one that was made", n)
	}
}

// TestReserveOfASide: a limit for one side leaves the rest to the other.
func TestReserveOfASide(t *testing.T) {
	for side, want := range map[limits.Side]struct{ jobs, direct int }{limits.Jobs: {6, 4}, limits.Direct: {4, 6}} {
		t.Run(string(side), func(t *testing.T) {
			part := perHour("part", 6)
			part.For = side
			r := startRig(t, 0, limitsOf(perHour("tenant", 10), part), nil)
			n := 0
			if side == limits.Direct {
				n, _ = r.takes(t, r.call("a"))
			}
			r.enqueue(t, "a", 10)
			d := r.dispatcher()
			until(t, "with all jobs released that may go", func() bool { return len(r.release(t, d, 20)) >= want.jobs })
			more, refused := r.takes(t, r.call("a"))
			jobs := r.release(t, d, 20)
			if n += more; n != want.direct {
				t.Errorf("%d direct calls, not %d", n, want.direct)
			}
			if of := map[limits.Side]string{limits.Jobs: "tenant", limits.Direct: "part"}[side]; refused.Limit != of && side == limits.Jobs {
				t.Errorf("limit %q refused, not %q", refused.Limit, of)
			}
			if len(jobs) != want.jobs {
				t.Errorf("%d jobs went, not %d", len(jobs), want.jobs)
			}
		})
	}
}

// TestDirectOnMiniredis: the embedded Redis takes places and gives them back as well.
func TestDirectOnMiniredis(t *testing.T) {
	t.Parallel()
	r := startRigAt(t, redistest.Of(redistest.Embedded(t)), 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	for range 2 {
		p, err := r.client.Take(t.Context(), r.call("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirectBesideDamagedLimits: calls that have begun keep their places, and give them back, while nobody can read the limits.
func TestDirectBesideDamagedLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	client, key := r.server.Client(), store.Key(r.queue, "permits:one:")
	p, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	client.HSet(t.Context(), store.Key(r.queue, "limits"), "*", "{")
	ends := client.ZScore(t.Context(), key, p.id).Val()
	if _, err := p.end(t.Context(), "renew", fmt.Sprint(time.Hour.Microseconds())); err != nil {
		t.Error(err)
	}
	if later := client.ZScore(t.Context(), key, p.id).Val(); later <= ends {
		t.Errorf("renewed, it ends at %.0f, no later than %.0f", later, ends)
	}
	if err := p.Release(t.Context()); err != nil || client.ZCard(t.Context(), key).Val() != 0 {
		t.Errorf("its place is kept, %v", err)
	}
}

// TestDirectConcurrency: a direct call in flight holds its place, also if it takes longer than its lease, and while
// the chores of workers look for places of jobs that are gone. The job that waits for it goes when it is released.
func TestDirectConcurrency(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	client := r.server.Client()
	p, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop() // the rest is skipped when tests are to be quick
	if n, refused := r.takes(t, r.call("b")); n != 0 || refused.Reason != ParkedByConcurrency || refused.Limit != "one" {
		t.Errorf("%d calls beside it, then %+v", n, refused)
	}
	r.add(t, nil)
	r.run(t)
	r.sweep(t, 3)
	key := store.Key(r.queue, "permits:one:")
	ends := client.ZScore(t.Context(), key, p.id).Val()
	if now, err := store.Time(t.Context(), client, key); err != nil || ends < float64(now.Add(store.DirectLease-time.Minute/2).UnixMicro()) || ends > float64(now.Add(store.DirectLease).UnixMicro()) {
		t.Errorf("the place ends at %.0f, %v", ends, err)
	}
	if _, err := p.end(t.Context(), "renew", fmt.Sprint(time.Hour.Microseconds())); err != nil {
		t.Fatal(err)
	}
	if later := client.ZScore(t.Context(), key, p.id).Val(); later <= ends {
		t.Errorf("renewed, it ends at %.0f, no later than %.0f", later, ends)
	}
	if calls := len(r.all()); calls != 0 {
		t.Errorf("%d jobs went beside it", calls)
	}
	if err := p.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wait(t)
	if _, err := p.end(t.Context(), "renew", "1000000"); err != nil || client.ZScore(t.Context(), key, p.id).Err() == nil {
		t.Errorf("a late renewal took a place again: %v", err)
	}
}

// TestLapsedDirectCall: of a process that died, the place is free after its lease.
func TestLapsedDirectCall(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	p, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	r.add(t, nil)
	r.release(t, r.dispatcher(), 10) // the lane waits for the place
	if _, err := p.end(t.Context(), "renew", "1000"); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	r.wait(t)
}

// TestPlaceThatLapsesIsAwaited: of the lanes that wait for a place, one is looked at when the next place of a direct call
// lapses, as nobody gives it back. A sweep leaves that as it is.
func TestPlaceThatLapsesIsAwaited(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(2)), nil)
	client := r.server.Client()
	p, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	ends := client.ZScore(t.Context(), store.Key(r.queue, "permits:x:"), p.id).Val()
	for _, tenant := range []string{"a", "b", "c"} {
		r.enqueue(t, tenant, 2)
	}
	d := r.dispatcher()
	r.release(t, d, 10)
	awaits := func() {
		t.Helper()
		due := client.ZRangeWithScores(t.Context(), store.Key(r.queue, "waiting"), 0, -1).Val()
		if n := client.SCard(t.Context(), store.Key(r.queue, "blocked:x:")).Val(); n != 3 || len(due) != 1 || due[0].Score != ends {
			t.Errorf("%d lanes wait for a place, and are due at %v; want one, when the place lapses at %.0f", n, due, ends)
		}
	}
	awaits()
	r.sweep(t, 3)
	awaits()
}

// TestDirectCallsAreHeldAsJobsAre: by pauses, by asynq's tools, and by send windows.
func TestDirectCallsAreHeldAsJobsAre(t *testing.T) {
	t.Parallel()
	shut, err := sendwindow.Parse("Mon 00:00-00:01 UTC")
	if err != nil {
		t.Fatal(err)
	}
	set := limitsOf(perHour("tenant", 5))
	set.Tenants = map[string]limits.Tenant{"closed": {SendWindow: shut}}
	r := startRig(t, 0, set, nil)
	client := r.server.Client()
	want := func(tenant string, reason ParkReason) *RefusedError {
		t.Helper()
		n, refused := r.takes(t, r.call(tenant))
		if n != 0 || refused.Reason != reason || refused.Limit != "" {
			t.Errorf("tenant %s: %d calls went, then %+v", tenant, n, refused)
		}
		return refused
	}
	if now := time.Now().UTC(); now.Weekday() != time.Monday || now.Hour() > 0 || now.Minute() > 1 {
		want("closed", ParkedByWindow)
	}
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, time.Now().Add(time.Hour), operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if refused := want("a", ParkedByPause); refused.RetryAfter < 50*time.Minute {
		t.Errorf("the pause ends in %v", refused.RetryAfter)
	}
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "endless"}, time.Time{}, operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if refused := want("endless", ParkedByPause); refused.RetryAfter != 0 {
		t.Errorf("an endless pause ends in %v", refused.RetryAfter)
	}
	other, waits := NewClient(client), make(chan error, 1)
	other.direct.pickup = directNear
	go func() {
		_, err := other.Wait(t.Context(), r.call("endless"), hang)
		waits <- err
	}()
	until(t, "an answer to the call that waits", func() bool { return other.direct.in(client, r.queue).born.Load() != 0 })
	if _, err := operate.ResumeJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "endless"}, operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a call that waited for the end of a pause: %v", err)
	}
	client.Set(t.Context(), "asynq:{"+r.queue+"}:paused", 1, 0)
	want("b", ParkedByPause)
	client.Del(t.Context(), "asynq:{"+r.queue+"}:paused")
	if n, _ := r.takes(t, r.call("b")); n != 5 {
		t.Errorf("%d of 5 calls after the pause", n)
	}
}

// TestDirectCosts: a call takes what its payload says, and what it did not use comes back.
func TestDirectCosts(t *testing.T) {
	tokens := perHour("tokens", 100)
	tokens.Unit = "tokens"
	set := limitsOf(tokens)
	set.Tenants = map[string]limits.Tenant{"a": {SendWindow: always(t)}} // it has no bucket
	r := startRig(t, 0, set, nil)
	ask := func(n int64) (*Permit, error) {
		job := r.call("a")
		job.Costs = map[string]int64{"tokens": n}
		return r.client.Take(t.Context(), job)
	}
	p, err := ask(60)
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := ask(60); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if err := p.Settle(t.Context(), map[string]int64{"tokens": 40}); err != nil {
		t.Fatal(err)
	}
	p, err = ask(60)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Settle(t.Context(), map[string]int64{"tokens": 90}); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(1); !errors.As(err, &refused) || refused.RetryAfter < 30*time.Hour {
		t.Errorf("130 of 100 are used: %v", err)
	}
	for n, want := range map[int64]string{101: `costs.tokens: 101 is more than limit "tokens" ever admits at once (100)`, -1: "costs"} {
		_, err := ask(n)
		if _, field := errors.AsType[*validation.Error](err); !field || !strings.Contains(err.Error(), want) {
			t.Errorf("%d tokens: %v", n, err)
		}
	}
	if err := p.Settle(t.Context(), map[string]int64{"": 1}); err == nil {
		t.Error("a cost without a unit is settled")
	}
	if _, err := r.client.Take(t.Context(), Job{Queue: r.queue}); err == nil || !strings.Contains(err.Error(), "tenant") || !strings.Contains(err.Error(), "kind") {
		t.Errorf("a call without tenant and kind: %v", err)
	}
}

// TestDirectCallFindsItsPartition: also after the number of partitions has changed.
func TestDirectCallFindsItsPartition(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 3)), nil)
	client := r.server.Client()
	fresh := NewClient(client)
	fresh.direct.pickup = directNear
	for _, n := range []int{1, 4} {
		r.repartition(t, n)
		for tenant := range 8 {
			if _, err := r.client.Take(t.Context(), r.call(fmt.Sprint(n, tenant))); err != nil {
				t.Fatalf("%d partitions: %v", n, err)
			}
			if left := 0; n == 4 {
				for range 3 {
					if _, err := fresh.Take(t.Context(), r.call(fmt.Sprint(n, tenant))); err == nil {
						left++
					}
				}
				if left != 2 {
					t.Errorf("tenant %d has another bucket for another client: %d of 2 left", tenant, left)
				}
			}
		}
	}
	shared := limits.Queue{Limits: []limits.Limit{sharedBy(10)}, Partitions: 4}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{r.queue: shared}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Take(t.Context(), r.call("a")); err == nil || !strings.Contains(err.Error(), `limit "account" is shared by partitions`) {
		t.Errorf("of a leased limit: %v", err)
	}
}

// TestForecastLeavesDirectLimitsOut: a limit of direct calls alone holds no job, so it is not said to.
func TestForecastLeavesDirectLimitsOut(t *testing.T) {
	t.Parallel()
	slow := perHour("slow", 1)
	slow.For = limits.Direct
	r := startRig(t, 0, limitsOf(perHour("tenant", 5), slow), nil)
	r.served(t)
	if n, _ := r.takes(t, r.call("a")); n != 1 {
		t.Errorf("%d direct calls", n)
	}
	r.add(t, nil)
	if e := r.explain(t, r.add(t, nil)); e.HeldBy != nil && e.HeldBy.Limit == "slow" || e.At.Sub(e.Now) > time.Minute {
		t.Errorf("%s: held by %+v", e, e.HeldBy)
	}
}

// TestDirectCallsKnowLostLimits: a program that knew the limits of a queue makes no calls after they are gone from
// Redis, until they are published again.
func TestDirectCallsKnowLostLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 2)), nil)
	client := r.server.Client()
	if n, _ := r.takes(t, r.call("a")); n != 2 {
		t.Errorf("%d calls of 2", n)
	}
	client.Del(t.Context(), store.Key(r.queue, "limits"), store.Key(r.queue, "b:tenant:a"))
	if _, err := r.client.Take(t.Context(), r.call("a")); err == nil || !strings.Contains(err.Error(), "publish them again") {
		t.Errorf("without limits: %v", err)
	}
}

// TestCostsUnderOneSide: a limit of one side refuses nothing of the other for good.
func TestCostsUnderOneSide(t *testing.T) {
	t.Parallel()
	jobs, direct := perHour("of-jobs", 1), perHour("of-calls", 3)
	jobs.For, direct.For = limits.Jobs, limits.Direct
	r := startRig(t, 0, limitsOf(jobs, direct), nil)
	call := r.call("a")
	call.Cost = 2
	if _, err := r.client.Take(t.Context(), call); err != nil {
		t.Errorf("a call that costs more than a limit of jobs: %v", err)
	}
	if _, err := r.client.Enqueue(t.Context(), call); err == nil || !strings.Contains(err.Error(), `limit "of-jobs" ever admits`) {
		t.Errorf("a job that costs more than a limit of jobs: %v", err)
	}
	call.Cost = 4
	if _, err := r.client.Take(t.Context(), call); err == nil || !strings.Contains(err.Error(), `limit "of-calls" ever admits`) {
		t.Errorf("a call that costs more than a limit of calls: %v", err)
	}
}

// TestReleaseAfterTheContext: the place of a call whose context has ended is free, and lapsed places do not pile up.
func TestReleaseAfterTheContext(t *testing.T) {
	t.Parallel()
	one := limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}
	r := startRig(t, 0, limitsOf(one), nil)
	for range 3 {
		p, err := r.client.Take(t.Context(), r.call("a"))
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Release(ended); err != nil {
			t.Fatal(err)
		}
	}
	key := store.Key(r.queue, "permits:one:")
	for i := range 3 {
		p, err := r.client.Take(t.Context(), r.call("a"))
		if err != nil {
			t.Fatal(err)
		}
		p.stop()
		if _, err := p.end(t.Context(), "renew", "0"); err != nil { // its process died
			t.Fatal(err)
		}
		if n := r.server.Client().ZCard(t.Context(), key).Val(); n != 1 {
			t.Errorf("call %d: %d places are kept", i, n)
		}
	}
}
