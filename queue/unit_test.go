package queue

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/queue/lifecycle"
)

func TestBatcherSharesRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trips atomic.Int64
		b := &batcher[int, int]{run: func(questions []int) ([]int, error) {
			trips.Add(1)
			time.Sleep(time.Millisecond)
			answers := make([]int, len(questions))
			for i, q := range questions {
				answers[i] = q * 2
			}
			return answers, nil
		}}
		var callers sync.WaitGroup
		for i := range 300 {
			callers.Go(func() {
				if answer, err := b.do(i); err != nil || answer != 2*i {
					t.Errorf("do(%d) = %d, %v", i, answer, err)
				}
			})
		}
		callers.Wait()
		if n := trips.Load(); n > 10 {
			t.Errorf("%d round trips for 300 callers at once", n)
		}
		b.run = func([]int) ([]int, error) { return nil, errors.New("away") }
		if _, err := b.do(1); err == nil {
			t.Error("the error did not reach the caller")
		}
	})
}

// TestBatcherIsBoundByBytes: a round trip takes no more questions after 2 MiB.
func TestBatcherIsBoundByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		b := &batcher[int, int]{size: func(n int) int { return n }, run: func(questions []int) ([]int, error) {
			time.Sleep(time.Millisecond)
			sum := 0
			for _, n := range questions[:len(questions)-1] {
				sum += n
			}
			most = max(most, sum)
			return questions, nil
		}}
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() {
				if n, err := b.do(700 << 10); n != 700<<10 || err != nil {
					t.Error(n, err)
				}
			})
		}
		callers.Wait()
		if most != 2*700<<10 {
			t.Errorf("%d bytes beside the last question of a round trip", most)
		}
	})
}

func TestBatcherKeepsItsGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trips []time.Duration
		began := time.Now()
		b := &batcher[int, int]{gap: 2 * time.Millisecond, run: func(questions []int) ([]int, error) {
			trips = append(trips, time.Since(began))
			time.Sleep(500 * time.Microsecond)
			return questions, nil
		}}
		var callers sync.WaitGroup
		for i := range 20 { // at 0, 0.5, 1 … 9.5 ms
			callers.Go(func() {
				if _, err := b.do(i); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Microsecond)
		}
		callers.Wait()
		time.Sleep(time.Second)
		if _, err := b.do(1); err != nil {
			t.Error(err)
		}
		alone := time.Since(began) - trips[len(trips)-1]
		for i, at := range trips[:len(trips)-1] {
			if want := time.Duration(i) * 2 * time.Millisecond; at != want {
				t.Errorf("round trip %d began after %v, want %v", i, at, want)
			}
		}
		if len(trips) != 7 || alone != 500*time.Microsecond {
			t.Errorf("%d round trips; the lone caller waited %v for its own", len(trips), alone)
		}
	})
}

// TestEnoughQuestionsEndTheGap: enough waiting questions end the linger early.
func TestEnoughQuestionsEndTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared []int
		const enough = 20
		b := &batcher[int, int]{linger: 10 * time.Millisecond, enough: enough, run: func(questions []int) ([]int, error) {
			shared = append(shared, len(questions))
			return questions, nil
		}}
		began := time.Now()
		if _, err := b.do(0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		var callers sync.WaitGroup
		for i := range enough {
			callers.Go(func() {
				if _, err := b.do(i); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took != time.Millisecond || !slices.Equal(shared, []int{1, enough}) {
			t.Errorf("round trips of %v questions took %v", shared, took)
		}
	})
}

func TestBackoff(t *testing.T) {
	for attempt, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 11: 10 * time.Minute, 1000: 10 * time.Minute} {
		low, high := most, time.Duration(0)
		for range 1000 {
			wait := backoff(attempt)
			low, high = min(low, wait), max(high, wait)
		}
		if low < most/2 || high > most || high-low < most/4 {
			t.Errorf("attempt %d: waits from %v to %v; want them spread over %v to %v", attempt, low, high, most/2, most)
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
		{errors.New("500"), &Running{Attempt: 3, MaxAttempts: 3, unsure: true}, true, lifecycle.Unknown, 0},
		{permanent{}, &Running{Attempt: 3, MaxAttempts: 3, unsure: true}, true, lifecycle.Archived, 0}, // the provider knows the key
	}
	for _, test := range tests {
		v := judge(test.err, test.job, test.repeat, now)
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
