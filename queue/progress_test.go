package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestProgress: explain shows what the handler of the call in flight has reported last, and
// nothing of an earlier call of the job.
func TestProgress(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	r.retriesIn = time.Hour
	reported, proceed := make(chan struct{}), make(chan struct{})
	r.answer = func(ctx context.Context, job Running) error {
		if job.Attempt == 1 {
			if err := errors.Join(Progress(ctx, 10, "page 1\nof 10"), Progress(ctx, 40, "page 4\nof 10")); err != nil {
				t.Error(err)
			}
		}
		reported <- struct{}{}
		<-proceed
		return errors.New("500")
	}
	id := r.add(t, func(job *Job) { job.MaxAttempts = 2 })
	r.run(t)
	<-reported
	var e inspect.Explanation
	until(t, "the latest report is written", func() bool {
		e = r.explain(t, id)
		return e.Progress != nil && e.Progress.Percent != 10
	})
	if p := e.Progress; p.Percent != 40 || p.Text != "page 4 of 10" || e.Now.Sub(p.At) < 0 || e.Now.Sub(p.At) > time.Minute {
		t.Errorf("%+v", p)
	}
	if text := e.String(); text != "a's call is being sent, attempt 1 of 2, 40 %: page 4 of 10." {
		t.Error(text)
	}
	if wrote, err := store.ProgressScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, id, "other:1", 90, ""); err != nil || wrote != int64(0) {
		t.Errorf("a run that has lost the job wrote %v, %v", wrote, err)
	}
	proceed <- struct{}{}
	r.seen.wait(t, string(lifecycle.Retried), 1)
	if e := r.explain(t, id); e.State != lifecycle.StateRetry || e.Progress != nil {
		t.Errorf("after the call: %s, %+v", e.State, e.Progress)
	}
	r.retryNow(t, id)
	<-reported
	if e := r.explain(t, id); e.Attempt != 2 || e.Progress != nil {
		t.Errorf("attempt %d: %+v", e.Attempt, e.Progress)
	}
	proceed <- struct{}{}
	r.seen.wait(t, string(lifecycle.Archived), 1)
	if got, err := store.ProgressScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, "gone", "w:1", 90, ""); err != nil || got != int64(0) {
		t.Errorf("a job that is gone: %v, %v", got, err)
	}
}

// TestProgressIsRefused: what cannot be shown is an error of the handler's, not of the call's.
func TestProgressIsRefused(t *testing.T) {
	t.Parallel()
	current := &call{}
	ctx := context.WithValue(t.Context(), callKey{}, current)
	for percent, want := range map[int]string{-1: "-1 percent must be 0 to 100", 101: "101 percent must be 0 to 100"} {
		if err := Progress(ctx, percent, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v; want %q", percent, err, want)
		}
	}
	if err := Progress(ctx, 100, ""); err != nil {
		t.Errorf("in a call of a test: %v", err)
	}
	if err := Progress(t.Context(), 1, ""); err == nil || !strings.Contains(err.Error(), "ctx is not from a handler") {
		t.Error(err)
	}
	current.end()
	if err := Progress(ctx, 1, ""); err == nil || !strings.Contains(err.Error(), "the call has ended") {
		t.Error(err)
	}
}

// TestProgressIsRare: however often a handler reports, one report a second is written, and the
// latest one always is while the call lasts.
func TestProgressIsRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var written []int
		r := newReporter(func(latest report) {
			mu.Lock()
			defer mu.Unlock()
			written = append(written, latest.percent)
		})
		for percent := range 50 {
			r.add(report{percent: percent})
			synctest.Wait()
			time.Sleep(49 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		r.end()
		if want := []int{0, 20, 40, 49}; !slices.Equal(written, want) {
			t.Errorf("written: %v; want %v", written, want)
		}
	})
}

// TestProgressIsNoPartOfTheCall: a report that is on its way to Redis when the call ends does not make the call longer.
func TestProgressIsNoPartOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // a name would be looked up, and a bubble must not begin that
		defer client.Close()
		client.AddHook(redistest.OnCommand(func(context.Context, redis.Cmder, redis.ProcessHook) error {
			time.Sleep(3 * time.Second)
			return errors.New("it is not written")
		}))
		seen := newCounter()
		g := &gate{queue: "q", redis: client, observer: seen, logger: discardLogger(), clock: &redisClock{}, sending: &atomic.Int64{}, limits: &effective.Calendars{Queue: "q", Redis: client}}
		h := &handler{timeout: time.Minute}
		h.call = func(ctx context.Context, _ []byte) error {
			if err := Progress(ctx, 50, ""); err != nil {
				t.Error(err)
			}
			synctest.Wait() // the report is on its way
			time.Sleep(40 * time.Millisecond)
			return nil
		}
		began := time.Now()
		v := g.call(t.Context(), h, &Running{ID: "1", Kind: "call"}, nil)
		if over := time.Since(began); over != 3*time.Second {
			t.Errorf("the call was judged after %v; want when the report is written", over)
		}
		if v.took != 40*time.Millisecond || seen.calls[0].Took != v.took {
			t.Errorf("it took %v, and %v for the observer; want 40ms", v.took, seen.calls[0].Took)
		}
	})
}
