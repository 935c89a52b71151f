package queue

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// again is a second worker on the rig's queue, in place of the first.
func (r *rig) again(t *testing.T) {
	t.Helper()
	next, err := New(Config{Redis: universal(t, r.server), Queues: []string{r.queue}, Observer: r.seen})
	if err != nil {
		t.Fatal(err)
	}
	next.handlers = r.worker.handlers
	r.worker = next
	r.run(t)
}

func hourly(n int64) throttle.Limit {
	return throttle.Limit{Name: "hourly", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: n, Period: time.Hour}}
}

// TestCallThatOutlivesItsWorker: a call that is still under way when its job goes to
// another run has used its slot, and nobody knows what comes of it.
func TestCallThatOutlivesItsWorker(t *testing.T) {
	for name, end := range map[string]func(r *rig, job string){
		"the time to stop was up": func(r *rig, _ string) {
			r.stop()
			r.again(t)
		},
		"its worker was taken for dead": func(r *rig, job string) {
			r.takeOver(t, job)
			r.again(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(Limit{Per: []string{"tenant"}, Limit: hourly(2)}), func(c *Config) {
				c.ShutdownTimeout = time.Millisecond
				c.Concurrency = 1 // the call under way leaves no room for another
			})
			called, release := make(chan struct{}), make(chan struct{})
			defer close(release)
			var unsure []bool
			r.answer = func(_ context.Context, job Running) error {
				unsure = append(unsure, job.unsure)
				if len(unsure) == 1 {
					close(called)
					<-release // it does not look at its context
				}
				return nil
			}
			cut := r.add(t, nil)
			r.run(t)
			<-called
			end(r, cut)
			r.seen.wait(t, string(Done), 1)
			r.add(t, nil)
			r.seen.wait(t, "round", r.seen.outcomes("round")+10) // in which the second job would go
			r.stop()
			if r.jobs[cut] != 2 || r.total != 2 {
				t.Errorf("%d calls in an hour, %d of the job that was cut off; its limit allows 2", r.total, r.jobs[cut])
			}
			if missed := r.seen.outcomes("missed"); missed != 0 {
				t.Errorf("%d slots were said to be missed", missed)
			}
			if len(unsure) != 2 || unsure[0] || !unsure[1] {
				t.Errorf("unsure of an earlier call: %v; want the second call to be", unsure)
			}
		})
	}
}

// TestStopSettlesWhatItCutsOff: when the time to stop is up, Run returns once it is in
// Redis what came of the calls that were cut off.
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
	until(t, "given back by asynq", func() bool { return r.field(t, id, "state") == "pending" })
	select {
	case <-stopped:
		t.Error("Run returned before the call was settled")
	case <-time.After(300 * time.Millisecond):
	}
	close(end)
	<-stopped
	events, err := Events(t.Context(), r.server.Client(), r.queue, "", 10)
	if err != nil || len(events) != 1 || events[0].Outcome != Parked || events[0].Answer != AnswerUnknown {
		t.Errorf("%+v, %v; want one run that was cut off", events, err)
	}
	if unsure := r.field(t, id, "hg_unsure"); unsure != "1" {
		t.Errorf("the next call is not told that nobody knows what came of this one: %q", unsure)
	}
}
