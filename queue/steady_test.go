package queue

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/law"
	"github.com/headgate/headgate/internal/redistest"
)

// TestTenThousandForOneSecond: jobs that are due at the same moment are shaped
// like any others, in the time that their limit allows, and cost Redis no more
// than jobs that were enqueued at that moment.
func TestTenThousandForOneSecond(t *testing.T) {
	// The burst is what a stall of the machine may take without a loss.
	const jobs, rate, burst = 10_000, 1000, 50
	run := func(at func() time.Time) (scripts float64, calls []time.Time) {
		server := redistest.Start(t)
		client := NewClient(server.Client())
		limit := perTenant(rate)
		limit.Burst = burst
		if err := Publish(t.Context(), server.Client(), Limits{Queues: map[string]QueueLimits{"q": {Limits: []Limit{limit}}}}); err != nil {
			t.Fatal(err)
		}
		got := newReceiver(jobs)
		w, err := New(Config{Redis: universal(t, server), Queues: []string{"q"}})
		if err != nil {
			t.Fatal(err)
		}
		Handle(w, "call", got.handle)
		batch := make([]Job, jobs)
		for i := range batch {
			batch[i] = Job{Kind: "call", Queue: "q", Tenant: "a", At: at(), Payload: json.RawMessage(`{}`)}
		}
		for _, result := range client.EnqueueMany(t.Context(), batch) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
		before := commandStats(t, server.Client())
		runWorker(t, w)
		got.wait(t, time.Minute)
		after := commandStats(t, server.Client())
		return (after.scripts - before.scripts) / jobs, got.all()
	}
	plain, unscheduled := run(func() time.Time { return time.Time{} })
	// What the machine takes from one run it may leave to the other, so one that
	// took too long is made again. Whatever else is wrong is wrong at once.
	ideal := max((jobs-burst)*time.Second/rate, law.Span(unscheduled))
	for try := 1; ; try++ {
		due := time.Now().Add(3 * time.Second).Truncate(time.Second)
		stalled, stop := law.WatchStalls()
		scheduled, calls := run(func() time.Time { return due })
		stop()
		took := law.Span(calls)
		t.Logf("enqueued for now: %.2f scripts for a job, done in %v; scheduled: %.2f, %v", plain, law.Span(unscheduled), scheduled, took)
		if scheduled > 1.2*plain {
			t.Errorf("%.2f scripts for a scheduled job, %.2f for another; want no more than a fifth above", scheduled, plain)
		}
		if err := law.Check(calls, rate, burst, 5*time.Millisecond+stalled()); err != nil {
			t.Error(err)
		}
		for _, at := range calls {
			if at.Before(due) {
				t.Fatalf("a call %v before its time", due.Sub(at))
			}
		}
		if took <= ideal+ideal/20+stalled() {
			return
		}
		if try == 3 {
			t.Fatalf("done in %v, three times over; want %v", took, ideal)
		}
	}
}

// TestLimitChangesUnderBacklog: a limit that is raised tenfold and lowered again
// while 5,000 jobs wait holds at the receiver within a second, and no window is
// over what the limits of its time allow.
func TestLimitChangesUnderBacklog(t *testing.T) {
	const jobs, slow, fast = 5000, 100, 1000
	r := startRig(t, jobs, limitsOf(perTenant(slow)), nil)
	set := func(rate int64) time.Time {
		t.Helper()
		limits := Limits{Queues: map[string]QueueLimits{r.queue: {Limits: []Limit{perTenant(rate)}}}}
		if err := Publish(t.Context(), r.server.Client(), limits); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	r.enqueue(t, "a", jobs)
	r.run(t)
	r.seen.wait(t, string(Done), slow)
	raised := set(fast)
	r.seen.wait(t, string(Done), slow+3*fast)
	before := time.Now()
	lowered := set(slow)
	r.seen.wait(t, string(Done), r.seen.outcomes(Done)+3*slow)
	calls := r.all()
	stalled := r.stalled()
	within := func(from, to time.Time) (times []time.Time) {
		for _, at := range calls {
			if !at.Before(from) && at.Before(to) {
				times = append(times, at)
			}
		}
		return times
	}
	tolerance := 5*time.Millisecond + stalled
	// All of it is within the fast limit, and what came before the change, and a
	// second after the other, within the slow one.
	for name, part := range map[string]struct {
		from, to time.Time
		rate     float64
	}{
		"slow":       {time.Time{}, raised.Add(-time.Second), slow},
		"altogether": {time.Time{}, time.Now(), fast},
		"lowered":    {lowered.Add(horizon + stalled), time.Now(), slow},
	} {
		if err := law.Check(within(part.from, part.to), part.rate, 1, tolerance); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The new rate is in force from the first calls on that none but it lets through.
	after := within(raised, before)
	slices.SortFunc(after, time.Time.Compare)
	const some = 100
	first := -1
	for i := 0; i+some < len(after) && first < 0; i++ {
		if after[i+some].Sub(after[i]) < some*time.Second/(5*slow) {
			first = i
		}
	}
	if first < 0 || after[first].Sub(raised) > time.Second+stalled {
		t.Errorf("%d of %d calls came at the slow rate after the limit was raised; want the fast one within a second", first, len(after))
	}
}
