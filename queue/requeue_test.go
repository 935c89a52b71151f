package queue

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// again starts a second worker on the rig's queue, in place of the first.
func (r *rig) again(t *testing.T) {
	t.Helper()
	next, err := New(Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: r.seen})
	if err != nil {
		t.Fatal(err)
	}
	next.handlers, next.poll = r.worker.handlers, slowestDispatch
	r.worker = next
	r.run(t)
}

func hourly(n int64) limits.Limit {
	return limits.Limit{Name: "hourly", Per: []string{"tenant"}, Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: n, Period: time.Hour}}
}

// TestCallThatOutlivesItsWorker: a call that is still in flight when its job goes to another
// run has used its slot, and its outcome is unknown.
func TestCallThatOutlivesItsWorker(t *testing.T) {
	const stopped = "the time to stop was up"
	spent := func(r *rig, job string) {
		if slot := r.field(t, job, "hg_slot"); !strings.HasPrefix(slot, "0 0 ") {
			t.Errorf("it keeps the slot %q, which its first call has used", slot)
		}
	}
	for name, end := range map[string]func(r *rig, job string){
		stopped: func(r *rig, job string) {
			r.stop()
			spent(r, job)
			r.again(t)
		},
		"its worker was taken for dead": func(r *rig, job string) {
			r.takeOver(t, job)
			spent(r, job)
			r.again(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(hourly(2)), func(c *Config) {
				c.ShutdownTimeout = time.Millisecond
				c.Concurrency = 1 // the call in flight leaves no room for another one
			})
			called, release := make(chan struct{}), make(chan struct{})
			defer close(release)
			var unsure []bool
			var crashes []string
			r.answer = func(_ context.Context, job Running) error {
				unsure = append(unsure, job.unsure)
				crashes = append(crashes, r.field(t, job.ID, "hg_crashes"))
				if len(unsure) == 1 {
					close(called)
					<-release // it ignores its context
				}
				return nil
			}
			cut := r.add(t, nil)
			r.run(t)
			<-called
			end(r, cut)
			r.seen.wait(t, string(lifecycle.Done), 1)
			r.add(t, nil)
			r.seen.wait(t, "round", r.seen.outcomes("round")+10) // time in which the second job would go
			r.stop()
			if r.jobs[cut] != 2 || r.total != 2 {
				t.Errorf("%d calls in an hour, %d of the job that was cut off; its limit allows 2", r.total, r.jobs[cut])
			}
			if len(unsure) != 2 || unsure[0] || !unsure[1] {
				t.Errorf("unsure of an earlier call: %v; want the second call to be", unsure)
			}
			if name == stopped && slices.Contains(crashes, "1") {
				t.Errorf("crashes at the calls: %q; a worker that stops does not crash", crashes)
			}
		})
	}
}

// TestStopSettlesWhatItCutsOff: after ShutdownTimeout, Run returns when the calls that were
// cut off are settled in Redis.
func TestStopSettlesWhatItCutsOff(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), func(c *Config) { c.ShutdownTimeout = time.Millisecond })
	cut, end := make(chan struct{}), make(chan struct{})
	r.answer = func(ctx context.Context, _ Running) error {
		<-ctx.Done()
		close(cut)
		<-end
		return ctx.Err()
	}
	id := r.add(t, nil)
	r.run(t)
	r.wait(t, 20*time.Second)
	stopped := make(chan struct{})
	go func() {
		r.stop()
		close(stopped)
	}()
	<-cut
	select {
	case <-stopped:
		t.Error("Run returned before the call was settled")
	case <-time.After(300 * time.Millisecond):
	}
	close(end)
	<-stopped
	events, err := inspect.Events(t.Context(), r.server.Client(), r.queue, "", 10)
	if err != nil || len(events) != 1 || events[0].Outcome != lifecycle.Parked || events[0].Answer != lifecycle.AnswerUnknown {
		t.Errorf("%+v, %v; want one run that was cut off", events, err)
	}
	if unsure := r.field(t, id, "hg_unsure"); unsure != "1" {
		t.Errorf("the next call is not told that nobody knows what came of this one: %q", unsure)
	}
}
