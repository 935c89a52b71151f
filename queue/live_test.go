package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDetachedRun: the context of a run ends with asynq's, unless asynq's lease has
// run out. Then the worker waits for the run when it stops, for as long as it may.
func TestDetachedRun(t *testing.T) {
	start := func(t *testing.T) (l *liveRuns, task, run context.Context, cancelTask, leave func()) {
		l = newLiveRuns()
		task, cancelTask = context.WithCancel(t.Context())
		r, left, err := l.enter(task, "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		run, end := l.detach(task, r)
		return l, task, run, cancelTask, func() {
			end()
			left()
		}
	}
	t.Run("cancelled by an operator", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _, run, cancel, leave := start(t)
			time.Sleep(29 * time.Second)
			l.extended([]string{"x", "y"})
			time.Sleep(29 * time.Second)
			cancel()
			<-run.Done()
			leave()
		})
	})
	t.Run("out of asynq's lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, task, run, cancel, leave := start(t)
			time.Sleep(31 * time.Second)
			cancel()
			synctest.Wait()
			if run.Err() != nil {
				t.Fatal("the run was cut off")
			}
			stopped := time.Now()
			go func() {
				time.Sleep(time.Minute)
				leave()
			}()
			l.drain(context.WithoutCancel(task))
			if waited := time.Since(stopped); waited != time.Minute || run.Err() == nil {
				t.Errorf("the worker waited for %v", waited)
			}
		})
	})
	t.Run("too long for the worker's end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, _, run, cancel, leave := start(t)
			time.Sleep(31 * time.Second)
			cancel()
			synctest.Wait()
			go func() {
				<-run.Done()
				leave()
			}()
			inTime, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			stopped := time.Now()
			l.drain(inTime)
			if waited := time.Since(stopped); waited != time.Minute {
				t.Errorf("the worker waited for %v", waited)
			}
		})
	})
}

// TestDrainIsBounded: calls that do not look at their contexts hold up the worker's end
// for 5 s, all of them together.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveRuns()
		for _, id := range []string{"x", "y", "z"} {
			run, _, err := l.enter(t.Context(), id, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, end := l.detach(t.Context(), run)
			defer end()
		}
		inTime, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		stopped := time.Now()
		l.drain(inTime)
		if waited := time.Since(stopped); waited != time.Minute+redisTimeout {
			t.Errorf("the worker waited for %v", waited)
		}
	})
}

// TestRunsFollowEachOther: a job is not begun while an earlier run of it goes on.
func TestRunsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveRuns()
		_, leave, err := l.enter(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := false
		go func() {
			_, leave, err := l.enter(t.Context(), "x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			began = true
			leave()
		}()
		stopping := make(chan struct{})
		stopped := make(chan error, 1)
		go func() {
			_, _, err := l.enter(t.Context(), "x", stopping)
			stopped <- err
		}()
		synctest.Wait()
		if began {
			t.Error("two runs of a job at once")
		}
		close(stopping)
		if err := <-stopped; err != errStopping {
			t.Errorf("a worker that stops said %v", err)
		}
		leave()
		synctest.Wait()
		if !began || l.has("x") {
			t.Errorf("the second run began: %v; one is left: %v", began, l.has("x"))
		}
	})
}

// TestRenewalsCover: a job stays this worker's while its lease is renewed without a gap.
func TestRenewalsCover(t *testing.T) {
	now := bootTime()
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
