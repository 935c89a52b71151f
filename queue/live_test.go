package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestFinish: a session waits for its runs while the worker goes on. When the worker stops, it cuts them off
// after the timeout, and waits no longer than 5 s for calls that ignore their contexts.
func TestFinish(t *testing.T) {
	for name, test := range map[string]struct {
		takes  time.Duration
		heeds  bool          // the end of its context
		stops  time.Duration // when the worker stops
		waited time.Duration
	}{
		"in time":                {time.Second, true, 0, time.Second},
		"too long, and heeding":  {time.Hour, true, 0, time.Minute},
		"too long":               {time.Hour, false, 0, time.Minute + store.Timeout},
		"the worker goes on":     {time.Hour, true, 2 * time.Hour, time.Hour},
		"the worker stops later": {time.Hour, true, 10 * time.Minute, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &session{Worker: &Worker{config: Config{ShutdownTimeout: time.Minute}}}
				s.base, s.cutOff = context.WithCancel(t.Context())
				ctx, stop := context.WithTimeout(t.Context(), test.stops)
				defer stop()
				released := make(chan struct{})
				for range 3 {
					s.running.Go(func() {
						cut := s.base.Done()
						if !test.heeds {
							cut = nil
						}
						select {
						case <-time.After(test.takes):
						case <-cut:
						case <-released:
						}
					})
				}
				began := time.Now()
				s.finish(ctx)
				if waited := time.Since(began); waited != test.waited {
					t.Errorf("the session waited for %v; want %v", waited, test.waited)
				}
				close(released)
			})
		})
	}
}

// TestRunIsCancelled: asynq's tools cancel the run of a job by its id.
func TestRunIsCancelled(t *testing.T) {
	l := newLiveRuns()
	ctx, cancel := context.WithCancel(t.Context())
	leave, _ := l.enter("q", asynqwire.Run{ID: "x"}, 0, cancel, nil)
	defer leave()
	l.cancel("y")
	if ctx.Err() != nil {
		t.Error("cancelled by the id of another job")
	}
	if l.cancel("x"); ctx.Err() == nil {
		t.Error("not cancelled")
	}
}

// TestRunsFollowEachOther: a job is not started while an earlier run of it goes on.
func TestRunsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveRuns()
		leave, waited := l.enter("q", asynqwire.Run{ID: "x"}, 0, nil, nil)
		if waited {
			t.Error("the first run waited")
		}
		began := false
		go func() {
			leave, waited := l.enter("q", asynqwire.Run{ID: "x"}, 0, nil, nil)
			began = waited
			leave()
		}()
		stopping := make(chan struct{})
		stopped := make(chan bool, 1)
		go func() {
			leave, _ := l.enter("q", asynqwire.Run{ID: "x"}, 0, nil, stopping)
			stopped <- leave == nil
		}()
		synctest.Wait()
		if began {
			t.Error("two runs of a job at once")
		}
		close(stopping)
		if !<-stopped {
			t.Error("a worker that stops began a run")
		}
		leave()
		synctest.Wait()
		if !began || l.has("x") {
			t.Errorf("the second run began: %v; one is left: %v", began, l.has("x"))
		}
	})
}

// TestRunsOfAQueueInPartitions: the partitions of a queue share their runs, because a job may go from one to the other.
func TestRunsOfAQueueInPartitions(t *testing.T) {
	w := &Worker{live: map[string]*liveRuns{}}
	before := w.session([]partition.Layout{{Queue: "q", N: 1}})
	s := w.session([]partition.Layout{{Queue: "q", N: 2}, {Queue: "other", N: 1}})
	if s.live["q"] != before.live["q"] || s.live["q"] != s.live["q@2"] || s.live["q"] == s.live["other"] {
		t.Error("a run is not known in all partitions of its queue, or also in another queue")
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLiveRuns()
		leave, _ := l.enter("q", asynqwire.Run{ID: "x"}, 0, nil, nil)
		began := false
		go func() {
			leave, after := l.enter("q@2", asynqwire.Run{ID: "x"}, 0, nil, nil)
			began = after
			leave()
		}()
		synctest.Wait()
		if began {
			t.Error("two runs of a job at once, in two partitions")
		}
		if ids := l.ids("q@2"); !slices.Equal(ids, []string{"x"}) || !l.any("q@2") || len(l.shown("q@2")) != 1 || len(l.ids("q")) != 0 || l.any("q") || len(l.shown("q")) != 0 {
			t.Errorf("of the partition where the job is now the leases of %v are renewed", ids)
		}
		leave()
		synctest.Wait()
		if !began || l.any("q@2") {
			t.Errorf("the second run began: %v; one is left: %v", began, l.any("q@2"))
		}
	})
}

// TestRenewalsCover: a job stays this worker's while its lease is renewed without a gap.
func TestRenewalsCover(t *testing.T) {
	now := boottime.Now()
	at := func(ago time.Duration) time.Duration { return now - ago }
	r := &renewals{}
	if !r.cover(at(time.Second)) || r.cover(at(11*time.Second)) {
		t.Error("before the first renewal a job is covered by the moment at which it came")
	}
	r.note(at(60 * time.Second))
	for ago := 55 * time.Second; ago >= 30*time.Second; ago -= 5 * time.Second {
		r.note(at(ago))
	}
	if r.cover(at(40 * time.Second)) {
		t.Error("covered 30 s after the last renewal")
	}
	r.note(at(2 * time.Second)) // after a gap in which the job may have been taken away
	if r.cover(at(40*time.Second)) || !r.cover(at(time.Second)) {
		t.Error("a gap in the renewals: jobs from before it are not covered, jobs from after it are")
	}
}
