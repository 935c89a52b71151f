package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestFirst: Running.First is the first run whose call may have had an effect. A failed call
// counts, a call that the provider rejected does not.
func TestFirst(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	var firsts []time.Time
	began := time.Now()
	r.answer = func(_ context.Context, job Running) error {
		firsts = append(firsts, job.First)
		switch len(firsts) {
		case 1:
			return tooMany{after: 300 * time.Millisecond}
		case 2, 3:
			return errors.New("it failed")
		}
		return nil
	}
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if len(firsts) != 4 || firsts[0].Before(began.Add(-time.Second)) || firsts[1].Sub(firsts[0]) < 250*time.Millisecond ||
		!firsts[2].Equal(firsts[1]) || !firsts[3].Equal(firsts[1]) {
		t.Errorf("first attempts: %v; want another one after the call that was refused, and that one from then on", firsts)
	}
}

// notYet is an error with PostponeUntil.
type notYet struct{ until time.Time }

func (notYet) Error() string              { return "not before a time" }
func (n notYet) PostponeUntil() time.Time { return n.until }

// TestParkedIsNotFirst: a call that is put off with PostponeUntil does not count either.
func TestParkedIsNotFirst(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	var firsts []time.Time
	r.answer = func(_ context.Context, job Running) error {
		if firsts = append(firsts, job.First); len(firsts) == 1 {
			return notYet{time.Now().Add(300 * time.Millisecond)}
		}
		return nil
	}
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if len(firsts) != 2 || firsts[1].Sub(firsts[0]) < 250*time.Millisecond {
		t.Errorf("first attempts: %v; want another one after the call that was parked", firsts)
	}
}

// lasting is an error with PostponeUntil and KeepsFirst.
type lasting struct{ until time.Time }

func (lasting) Error() string              { return "not there yet" }
func (l lasting) PostponeUntil() time.Time { return l.until }
func (lasting) KeepsFirst() bool           { return true }

// TestKeepsFirst: a client that parks a job without spending attempts can still see since
// when it does so.
func TestKeepsFirst(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	var firsts []time.Time
	var attempts []int
	r.answer = func(_ context.Context, job Running) error {
		firsts, attempts = append(firsts, job.First), append(attempts, job.Attempt)
		if len(firsts) < 3 {
			return lasting{time.Now().Add(300 * time.Millisecond)}
		}
		return nil
	}
	r.add(t, func(job *Job) { job.MaxAttempts = 1 })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if len(firsts) != 3 || !firsts[1].Equal(firsts[0]) || !firsts[2].Equal(firsts[0]) || attempts[2] != 1 {
		t.Errorf("first attempts: %v, attempts %v; want the same first one for all, and no attempt spent", firsts, attempts)
	}
}

// TestUnknownStaysUnknown: after a call with an unknown outcome, only a later answer of the
// provider settles it. A last attempt that was not made, or a deadline that passed, does not.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		later  error // of the second attempt of two
		within time.Duration
		want   lifecycle.Outcome
	}{
		{"not sent", errors.New("nobody is there"), 0, lifecycle.Unknown},
		{"refused for good", permanent{}, 0, lifecycle.Archived},
		{"done", nil, 0, lifecycle.Done},
		{"expired", tooMany{after: 2 * time.Hour}, time.Hour, lifecycle.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Any(t)
			if test.within > 0 {
				server = redistest.Start(t).Redis() // by the clock of then, the workers of other tests are dead
			}
			var clock redistest.Clock
			r := startRigAt(t, server, 1, limitsOf(), func(c *Config) { c.Redis.Dialer = clock.Dial })
			repeated := make(chan struct{}, 1)
			Handle(r.worker, "unsure", func(ctx context.Context, _ json.RawMessage) error {
				if job, _ := Current(ctx); job.Attempt == 1 {
					return unknown{}
				}
				repeated <- struct{}{}
				return test.later
			}, RepeatUnknown())
			id := r.add(t, func(job *Job) {
				job.Kind, job.MaxAttempts = "unsure", 2
				if test.within > 0 {
					job.Deadline = time.Now().Add(test.within)
				}
			})
			r.run(t)
			if test.within > 0 {
				<-repeated
				clock.Step(test.within)
			}
			r.seen.wait(t, string(test.want), 1)
			r.stop()
			if test.want != lifecycle.Unknown {
				return
			}
			page, err := inspect.New(r.server.Client()).ListJobs(t.Context(), r.queue, inspect.JobQuery{State: lifecycle.StateArchived})
			archived := page.Jobs
			if err != nil || len(archived) != 1 || archived[0].ID != id || archived[0].Outcome != lifecycle.Unknown || !strings.HasSuffix(archived[0].Reason, errUnsure.Error()) {
				t.Errorf("%+v, %v", archived, err)
			}
		})
	}
}

// TestJudgeKeepsTheTime: a call that is put off with PostponeUntil is made at that time.
func TestJudgeKeepsTheTime(t *testing.T) {
	now := time.Now()
	for in, want := range map[time.Duration]time.Duration{5 * time.Minute: 5 * time.Minute, -time.Minute: 0, 2 * check.MaxAhead: check.MaxAhead} {
		v := judge(notYet{now.Add(in)}, &Running{Attempt: 1, MaxAttempts: 3}, &handler{backoff: defaultBackoff}, now)
		again, ok := errors.AsType[*retryError](v.err)
		if !ok || again.after != want || v.outcome != lifecycle.Postponed {
			t.Errorf("parked for %v: %s, %+v; want it to wait for %v", in, v.outcome, again, want)
		}
	}
}
