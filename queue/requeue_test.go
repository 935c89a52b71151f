package queue

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// again starts a second worker on the rig's queue, in place of the first.
func (r *rig) again(t *testing.T) {
	t.Helper()
	next := newWorker(t, Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: r.seen})
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
	t.Parallel()
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
				unsure = append(unsure, job.Unsure)
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

// TestAbandon: a worker that stops gives back the jobs whose calls go on, also if it renews
// their leases at that moment, and leaves those that another worker has taken over.
func TestAbandon(t *testing.T) {
	t.Parallel()
	for renewals, gives := range map[int]bool{0: true, 1: true, 9: false} {
		r := startRig(t, -1, limitsOf(), nil)
		mine, theirs := r.add(t, nil), r.add(t, nil)
		r.hold(t, mine, "w:1")
		r.hold(t, theirs, "v:1")
		client := dialed(t, r.server, nil)
		left := renewals // of a lease, like those of a heartbeat, after the worker has read it
		client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "evalsha" && left > 0 {
				left--
				r.server.Client().ZIncrBy(ctx, asynqwire.Key(r.queue, "lease"), 5, mine)
			}
			return next(ctx, cmd)
		}))
		stopping := &recoverer{queue: r.queue, worker: "w", redis: client, live: newLiveRuns()}
		for _, id := range []string{mine, theirs} {
			stopping.live.enter(stopping.queue, asynqwire.Run{ID: id}, 0, nil, nil)
		}
		err := stopping.abandon()
		if state := r.field(t, mine, "state"); (err == nil) != gives || (state == "aggregating") != gives {
			t.Errorf("%d leases were renewed meanwhile: the job is %s, %v; want it back in its lane: %v", renewals, state, err, gives)
		}
		if crashes := r.field(t, mine, "hg_crashes"); crashes != "" {
			t.Errorf("it counts %s crashes", crashes)
		}
		if state, owner := r.field(t, theirs, "state"), r.field(t, theirs, "hg_owner"); state != "active" || owner != "v:1" {
			t.Errorf("the job of another worker is %s, of %q", state, owner)
		}
	}
}

// TestStopSpendsNoAttempt: a stop of the worker cuts off a call whose client then reports an unknown outcome. If the call may
// be repeated, this does not use up an attempt.
func TestStopSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), func(c *Config) { c.ShutdownTimeout = time.Millisecond })
	called := make(chan struct{})
	Handle(r.worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		close(called)
		<-ctx.Done()
		return unknown{}
	}, RepeatUnknown())
	id := r.add(t, func(j *Job) { j.MaxAttempts = 1 })
	r.run(t)
	<-called
	r.stop()
	if state, unsure := r.field(t, id, "state"), r.field(t, id, "hg_unsure"); state != "aggregating" || unsure != "1" {
		t.Errorf("it is %s, unsure %q, archived %v; want it in its lane, unsure", state, unsure, r.archived(t))
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
	r.wait(t)
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
