package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/lifecycle"
)

func TestBackoff(t *testing.T) {
	for attempt, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 11: 10 * time.Minute, 1000: 10 * time.Minute} {
		low, high := most, time.Duration(0)
		for range 1000 {
			wait := defaultBackoff(attempt)
			low, high = min(low, wait), max(high, wait)
		}
		if low < most/2 || high > most || high-low < most/4 {
			t.Errorf("attempt %d: waits from %v to %v; want them spread over %v to %v", attempt, low, high, most/2, most)
		}
	}
}

// TestBackoffOfOnesOwn: a kind's own function decides, within what the retry set can hold; one
// that panics does not stop the worker.
func TestBackoffOfOnesOwn(t *testing.T) {
	logs := 0
	for want, wait := range map[time.Duration]func(int) time.Duration{
		14 * time.Second: func(attempt int) time.Duration { return time.Duration(attempt) * 7 * time.Second },
		0:                func(int) time.Duration { return -time.Hour },
		check.MaxAhead:   func(int) time.Duration { return 1 << 62 },
	} {
		h := &handler{backoff: wait}
		v := judge(errors.New("500"), &Running{Attempt: 2, MaxAttempts: 3}, h, time.Now())
		if again, ok := errors.AsType[*retryError](v.err); !ok || again.after != want {
			t.Errorf("waits %+v; want %v", v.err, want)
		}
	}
	h := &handler{backoff: func(int) time.Duration { panic("no") }, panicked: func(any, []byte) { logs++ }}
	if wait := h.after(1); wait < time.Second/2 || wait > time.Second || logs != 1 {
		t.Errorf("after a panic, which was logged %d times, it waits %v", logs, wait)
	}
	for range 100 {
		if wait := ExponentialBackoff(time.Minute, 3*time.Minute)(3); wait < 90*time.Second || wait > 3*time.Minute {
			t.Fatal(wait)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Now()
	job := &Running{Attempt: 2, MaxAttempts: 3}
	last := &Running{Attempt: 3, MaxAttempts: 3}
	tests := []struct {
		err    error
		job    *Running
		repeat bool
		want   lifecycle.Outcome
		pause  time.Duration
	}{
		{nil, job, false, lifecycle.Done, 0},
		{errors.New("500"), job, false, lifecycle.Retried, 0},
		{errors.New("500"), last, false, lifecycle.Archived, 0},
		{throttled{3 * time.Second}, last, false, lifecycle.Throttled, 3 * time.Second},
		{throttled{0}, job, false, lifecycle.Throttled, throttledPause},
		{throttled{-time.Hour}, job, false, lifecycle.Throttled, throttledPause},
		{throttled{1 << 62}, job, false, lifecycle.Throttled, maxPause},
		{fmt.Errorf("wrapped: %w", throttled{time.Second}), job, false, lifecycle.Throttled, time.Second},
		{postponed{now.Add(time.Hour)}, last, false, lifecycle.Postponed, 0},
		{postponed{now.Add(-time.Hour)}, job, false, lifecycle.Postponed, 0},
		{permanent{}, job, false, lifecycle.Archived, 0},
		{unknown{}, job, false, lifecycle.Unknown, 0},
		{unknown{}, job, true, lifecycle.Retried, 0},
		{unknown{}, last, true, lifecycle.Unknown, 0},
		{errors.Join(permanent{}, unknown{}), job, true, lifecycle.Unknown, 0},
		{errors.New("500"), &Running{Attempt: 3, MaxAttempts: 3, Unsure: true}, true, lifecycle.Unknown, 0},
		{permanent{}, &Running{Attempt: 3, MaxAttempts: 3, Unsure: true}, true, lifecycle.Archived, 0},                                              // the provider knows the key
		{said{text: "no account", permanent: true, uncalled: true}, &Running{Attempt: 2, MaxAttempts: 3, Unsure: true}, true, lifecycle.Unknown, 0}, // nobody was asked
		{said{text: "no account", permanent: true, uncalled: true}, job, true, lifecycle.Archived, 0},
	}
	for _, test := range tests {
		v := judge(test.err, test.job, &handler{repeatUnknown: test.repeat, backoff: defaultBackoff}, now)
		if v.outcome != test.want || v.hold.length != test.pause {
			t.Errorf("judge(%v, attempt %d) = %s, pause %v; want %s, %v", test.err, test.job.Attempt, v.outcome, v.hold.length, test.want, test.pause)
		}
		again, isAgain := errors.AsType[*retryError](v.err)
		if wantAgain := v.outcome == lifecycle.Retried || v.outcome == lifecycle.Throttled || v.outcome == lifecycle.Postponed; isAgain != wantAgain {
			t.Errorf("judge(%v): to the retry set %v, want %v", test.err, isAgain, wantAgain)
		} else if isAgain && again.failed != (v.outcome == lifecycle.Retried) {
			t.Errorf("judge(%v): an attempt is spent: %v", test.err, again.failed)
		}
	}
}

type postponed struct{ until time.Time }

func (postponed) Error() string              { return "quota" }
func (e postponed) PostponeUntil() time.Time { return e.until }
