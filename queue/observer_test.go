package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

func (c *counter) sent() (all []Gating) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range c.gatings {
		if g.Decision == "sent" {
			all = append(all, g)
		}
	}
	return all
}

func TestTimedObserverIsToldOfHoldingAndWaiting(t *testing.T) {
	t.Parallel()
	const jobs = 10
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, jobs, limitsOf(perTenant(20)), nil)
		began := time.Now()
		r.enqueue(t, "a", jobs)
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), jobs)
		sent := r.seen.sent()
		if len(sent) != jobs {
			t.Fatalf("%d calls were told of, want %d", len(sent), jobs)
		}
		last, held, asked := sent[jobs-1], time.Duration(0), time.Duration(0)
		for _, g := range sent {
			held, asked = max(held, g.Held), max(asked, g.Asked)
			if g.Kind != "call" || g.Held > g.Waited {
				t.Errorf("%+v: no kind, or held for longer than it waited", g)
			}
		}
		if held <= 0 {
			t.Error("none was held for its slot")
		}
		// At 20/s the last of ten goes after 450 ms.
		if last.Waited < 440*time.Millisecond {
			t.Errorf("the last waited %v", last.Waited)
		}
		run.Most("the last job waited", began, time.Now(), last.Waited, 600*time.Millisecond)
		// Only a job that missed its slot asks for another one.
		run.Most("requests for slots that came with their jobs", began, time.Now(), asked, 0)
		// A backlog that is held by its limit needs no more workers.
		run.Most("the last could have gone earlier by", began, time.Now(), last.Runnable, last.Waited/3)
	})
}

func TestRunnableTellsThatThereAreTooFewWorkers(t *testing.T) {
	t.Parallel()
	const jobs = 20
	r := startRig(t, jobs, limitsOf(), func(c *Config) { c.Concurrency = 2 })
	called := make(chan time.Time, jobs)
	r.answer = func(context.Context, Running) error {
		called <- time.Now()
		time.Sleep(50 * time.Millisecond) // what a slow provider does
		return nil
	}
	r.enqueue(t, "a", jobs)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), jobs)
	sent := r.seen.sent()
	// No limit holds the jobs: from the first call on, the last one waits almost only for a worker.
	first := <-called
	end := first
	for range jobs - 1 {
		end = <-called
	}
	if last := sent[len(sent)-1]; last.Runnable < end.Sub(first)/2 || last.Runnable < 300*time.Millisecond {
		t.Errorf("the last could have gone %v earlier, %v after the first", last.Runnable, end.Sub(first))
	}
	starved := time.Duration(0)
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	for _, round := range r.seen.rounds {
		starved += round.Starved
		if round.Concurrency != 2 || round.Held > 2 || round.Sending > 2 {
			t.Fatalf("%+v, of a worker that can hold 2", round)
		}
	}
	if starved < 200*time.Millisecond {
		t.Errorf("jobs that could go found no room for %v, by the rounds of dispatch", starved)
	}
}

func TestObserverIsToldWhyJobsPark(t *testing.T) {
	t.Parallel()
	closed := time.Now().UTC().Add(3 * time.Hour).Truncate(time.Hour)
	window, err := sendwindow.Parse(closed.Format("15:04") + "-" + closed.Add(time.Hour).Format("15:04") + " UTC")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		queue  limits.Queue
		pause  bool
		want   ParkReason
		limit  string
		before int // jobs that are called first
	}{
		"limit": {
			queue: limits.Queue{Limits: []limits.Limit{windowOf("daily", 1, 24*time.Hour, "tenant")}},
			want:  ParkedByLimit, limit: "daily", before: 1,
		},
		"concurrency": {
			queue: limits.Queue{Limits: []limits.Limit{{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}}}},
			want:  ParkedByConcurrency, limit: "one", before: 1,
		},
		"pause":  {pause: true, want: ParkedByPause},
		"window": {queue: limits.Queue{SendWindows: map[string]sendwindow.Window{limits.AllKinds: window}}, want: ParkedByWindow},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limits.Set{Queues: map[string]limits.Queue{"": test.queue}}, nil)
			if test.pause {
				if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{}, time.Time{}, operate.Operator{Actor: "test", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
			}
			r.enqueue(t, "a", test.before)
			r.round(t, r.dispatcher())
			// Its slot was missed, and the gate asks for another one.
			id := r.add(t, nil)
			r.hold(t, id, "w:1")
			hand, _ := r.handsTo(t, &renewals{})
			hand(id, "w:1", "slot", boottime.Now())
			r.seen.wait(t, "parked", 1)
			r.seen.mu.Lock()
			defer r.seen.mu.Unlock()
			got := r.seen.gatings[slices.IndexFunc(r.seen.gatings, func(g Gating) bool { return g.Decision == "parked" })]
			if got.Reason != test.want || got.Limit != test.limit || got.Asked <= 0 {
				t.Errorf("parked: %+v; want reason %q, limit %q", got, test.want, test.limit)
			}
		})
	}
}

func TestObserverIsToldOfAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want lifecycle.Answer
	}{
		"success":   {nil, lifecycle.AnswerOK},
		"429":       {throttled{time.Minute}, lifecycle.AnswerThrottled},
		"later":     {notToday{time.Now().Add(time.Hour)}, lifecycle.AnswerPostponed},
		"500":       {errors.New("500"), lifecycle.AnswerRetryable},
		"panic":     {errPanic, lifecycle.AnswerRetryable},
		"never":     {permanent{}, lifecycle.AnswerPermanent},
		"who knows": {unknown{}, lifecycle.AnswerUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 1, limitsOf(), nil)
			r.answer = func(context.Context, Running) error {
				if test.err == errPanic {
					panic("boom")
				}
				return test.err
			}
			r.add(t, func(job *Job) { job.MaxAttempts = 1 })
			r.run(t)
			r.seen.wait(t, "called", 1)
			r.seen.mu.Lock()
			defer r.seen.mu.Unlock()
			if got := r.seen.calls[0]; got.Answer != test.want || got.Kind != "call" || got.Attempt != 1 || got.Took <= 0 {
				t.Errorf("%+v; want answer %q", got, test.want)
			}
			if !slices.Contains(lifecycle.Answers(), test.want) {
				t.Errorf("Answers() lacks %q", test.want)
			}
		})
	}
}

func TestObserverIsToldOfRoundTrips(t *testing.T) {
	t.Parallel()
	const jobs = 30
	r := startRig(t, jobs, limitsOf(perTenant(100)), nil)
	r.enqueue(t, "a", jobs)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), jobs)
	for _, command := range []string{"time", "pipeline", "script:dispatch", "script:settle", "script:janitor", "script:watch"} {
		r.seen.wait(t, "to redis: "+command, 1)
	}
	r.stop()
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	for what, n := range r.seen.n {
		// There are few names, and none of them is a hash or a key.
		if command, ok := strings.CutPrefix(what, "to redis: "); ok && (len(command) > 24 || command == "script:other" || strings.Contains(command, "{")) {
			t.Errorf("%d round trips of %q", n, command)
		}
	}
	if n := r.seen.n["to redis: script:settle"]; n > jobs {
		t.Errorf("%d round trips for the ends of %d jobs", n, jobs)
	}
}

func TestFailedRoundTrips(t *testing.T) {
	for text, want := range map[string]bool{
		"NOSCRIPT No matching script": false, "ERR STALE the calendar": false,
		"OOM command not allowed": true, "dial tcp: connection refused": true,
	} {
		if got := failed(replyError(text)); got != want {
			t.Errorf("failed(%q) = %v", text, got)
		}
	}
	if failed(nil) || failed(fmt.Errorf("stop: %w", context.Canceled)) {
		t.Error("what did not fail is told as failed")
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}
