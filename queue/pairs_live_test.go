package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// live is a rig whose calls wait until the test lets them go.
type live struct {
	*rig
	calls *ledger
	goes  chan error // what the next call answers
}

func startLive(t *testing.T, limits limits.Set) *live {
	r := startRig(t, -1, limits, nil)
	l := &live{rig: r, calls: newLedger(), goes: make(chan error)}
	r.answer = func(_ context.Context, job Running) error {
		l.calls.begin(job)
		defer l.calls.end(job)
		return <-l.goes
	}
	r.retriesIn = time.Hour
	return l
}

// state waits until a job is in a state, as asynq names it.
func (l *live) state(t *testing.T, id, state string) {
	t.Helper()
	until(t, id+" is "+state, func() bool {
		return l.server.Client().HGet(t.Context(), asynqwire.Key(l.queue, "t:"+id), "state").Val() == state
	})
}

// ended checks how a job ended and how often it was called.
func (l *live) ended(t *testing.T, id string, outcome lifecycle.Outcome, calls int) {
	t.Helper()
	result, err := l.client.Result(t.Context(), l.queue, id)
	if err != nil || result.Outcome != outcome || l.calls.of(id) != calls {
		t.Errorf("job %s ended as %q after %d calls, %v; want %q after %d", id, result.Outcome, l.calls.of(id), err, outcome, calls)
	}
}

func (l *live) cancel(t *testing.T, id string) {
	t.Helper()
	if tally, err := operate.Apply(t.Context(), l.server.Client(), l.queue, operate.Cancel, operate.Filter{ID: id}, bystander, nil); err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
}

var errFirst = errors.New("it fails the first time")

func kept(job *Job) { job.Retention = time.Hour }

// TestCancelledWhileRetrying: a job that failed once and waits for its next try is
// cancelled. It is not called again.
func TestCancelledWhileRetrying(t *testing.T) {
	t.Parallel()
	l := startLive(t, limitsOf(perTenant(1000)))
	id := l.add(t, kept)
	l.run(t)
	l.goes <- errFirst
	l.state(t, id, "retry")
	l.cancel(t, id)
	other := l.add(t, kept)
	l.goes <- nil
	l.seen.wait(t, string(lifecycle.Done), 1)
	l.stop()
	l.ended(t, id, lifecycle.Cancelled, 1)
	l.ended(t, other, lifecycle.Done, 1)
	l.empty(t)
}

// TestCancelledAtTheConcurrencyLimit: a job that waits for a permit is cancelled. The
// permit goes to the one behind it.
func TestCancelledAtTheConcurrencyLimit(t *testing.T) {
	t.Parallel()
	narrow := limits.Limit{Name: "narrow", Algorithm: throttle.Concurrency, Concurrency: 1}
	l := startLive(t, limitsOf(narrow))
	first := l.add(t, kept)
	l.run(t)
	until(t, "the first call is made", func() bool { return l.calls.of(first) == 1 })
	second := l.add(t, func(job *Job) { job.Tenant, job.Retention = "b", time.Hour })
	third := l.add(t, func(job *Job) { job.Tenant, job.Retention = "c", time.Hour })
	blocked := store.Key(l.queue, "blocked:narrow:")
	until(t, "blocked", func() bool { return l.server.Client().SCard(t.Context(), blocked).Val() == 2 })
	l.cancel(t, second)
	l.goes <- nil
	l.goes <- nil
	l.seen.wait(t, string(lifecycle.Done), 2)
	l.stop()
	l.ended(t, first, lifecycle.Done, 1)
	l.ended(t, second, lifecycle.Cancelled, 0)
	l.ended(t, third, lifecycle.Done, 1)
	l.empty(t)
}

// TestPausedWhileRetrying: a tenant is paused while its job waits for the next try. The
// job waits in its lane when that comes, and is tried again once when the pause ends.
func TestPausedWhileRetrying(t *testing.T) {
	t.Parallel()
	l := startLive(t, limitsOf(perTenant(1000)))
	id := l.add(t, kept)
	l.run(t)
	l.goes <- errFirst
	l.state(t, id, "retry")
	client := l.server.Client()
	if _, err := operate.PauseJobs(t.Context(), client, l.queue, inspect.Scope{Tenant: "a"}, time.Time{}, bystander); err != nil {
		t.Fatal(err)
	}
	l.retryNow(t, id)
	l.state(t, id, "aggregating")
	l.seen.wait(t, "round", l.seen.outcomes("round")+10) // time enough for it to go, if it could
	if n := l.calls.of(id); n != 1 {
		t.Errorf("%d calls under the pause", n)
	}
	if _, err := operate.ResumeJobs(t.Context(), client, l.queue, inspect.Scope{Tenant: "a"}, bystander); err != nil {
		t.Fatal(err)
	}
	l.goes <- nil
	l.seen.wait(t, string(lifecycle.Done), 1)
	l.stop()
	l.ended(t, id, lifecycle.Done, 2)
	l.empty(t)
}

// goesOrMisses lets a call end, and reports whether it came: a job that misses its slot is not called at it.
func (l *live) goesOrMisses(t *testing.T) bool {
	t.Helper()
	for end := time.After(hang); ; {
		select {
		case l.goes <- nil:
			return true
		case <-end:
			t.Fatalf("it neither goes nor misses its slot within %v", hang)
		case <-time.After(10 * time.Millisecond):
			if l.seen.outcomes("missed") > 0 {
				return false
			}
		}
	}
}

// TestOverriddenWhileHeld: the limit of a tenant is lowered while a worker holds one of its
// jobs for its slot. That job goes at its slot, and the next ones by the new limit.
func TestOverriddenWhileHeld(t *testing.T) {
	t.Parallel()
	slow := throttle.Rate{Count: 1, Period: time.Hour}
	override := operate.Override{Change: limits.Change{Rate: &slow}, Until: time.Now().Add(time.Hour), Actor: "ann", Reason: "a test"}
	for range 20 {
		l := startLive(t, limitsOf(perTenant(5)))
		client := l.server.Client()
		ids := []string{l.add(t, kept), l.add(t, kept), l.add(t, kept)}
		// By the worker itself, so that there is time until the slot of the job that it has just got.
		released, overridden := 0, make(chan error, 1)
		l.seen.dispatched = func(round Round) {
			before := released
			if released += round.Released; before < 2 && released >= 2 {
				overridden <- operate.SetOverride(t.Context(), client, l.queue, "a", "tenant", override)
			}
		}
		l.run(t)
		l.goes <- nil
		l.seen.wait(t, string(lifecycle.Done), 1)
		if err := <-overridden; err != nil {
			t.Fatal(err)
		}
		if l.calls.of(ids[1]) > 0 || client.HGet(t.Context(), asynqwire.Key(l.queue, "t:"+ids[2]), "state").Val() != "aggregating" || !l.goesOrMisses(t) {
			// The machine was slow: its slot had come, the next one had its slot, too, or it missed its slot.
			stopped := make(chan struct{})
			go func() {
				for {
					select {
					case l.goes <- nil:
					case <-stopped:
						return
					}
				}
			}()
			l.stop()
			close(stopped)
			continue
		}
		l.seen.wait(t, string(lifecycle.Done), 2)
		l.seen.wait(t, "round", l.seen.outcomes("round")+10)
		if n := l.calls.of(ids[2]); n != 0 {
			t.Errorf("the next one was called %d times; its slot comes in an hour", n)
		}
		if _, err := operate.ClearOverride(t.Context(), client, l.queue, "a", "tenant", bystander); err != nil {
			t.Fatal(err)
		}
		l.goes <- nil
		l.seen.wait(t, string(lifecycle.Done), 3)
		l.stop()
		for _, id := range ids {
			l.ended(t, id, lifecycle.Done, 1)
		}
		l.empty(t)
		return
	}
	t.Fatal("machine too busy: none of 20 jobs was still held when the override was made")
}
