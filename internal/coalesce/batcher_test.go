package coalesce

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestBatcherSharesRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trips atomic.Int64
		b := &Batcher[int, int]{Run: func(questions []int) ([]int, error) {
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
				if answer, err := b.Do(i); err != nil || answer != 2*i {
					t.Errorf("Do(%d) = %d, %v", i, answer, err)
				}
			})
		}
		callers.Wait()
		if n := trips.Load(); n > 10 {
			t.Errorf("%d round trips for 300 callers at once", n)
		}
		b.Run = func([]int) ([]int, error) { return nil, errors.New("away") }
		if _, err := b.Do(1); err == nil {
			t.Error("the error did not reach the caller")
		}
	})
}

// TestBatcherIsBoundByBytes: a round trip takes no more questions after 2 MiB.
func TestBatcherIsBoundByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		b := &Batcher[int, int]{Size: func(n int) int { return n }, Run: func(questions []int) ([]int, error) {
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
				if n, err := b.Do(700 << 10); n != 700<<10 || err != nil {
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
		b := &Batcher[int, int]{Gap: 2 * time.Millisecond, Run: func(questions []int) ([]int, error) {
			trips = append(trips, time.Since(began))
			time.Sleep(500 * time.Microsecond)
			return questions, nil
		}}
		var callers sync.WaitGroup
		for i := range 20 { // at 0, 0.5, 1 … 9.5 ms
			callers.Go(func() {
				if _, err := b.Do(i); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Microsecond)
		}
		callers.Wait()
		time.Sleep(time.Second)
		if _, err := b.Do(1); err != nil {
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
		b := &Batcher[int, int]{Linger: 10 * time.Millisecond, Enough: enough, Run: func(questions []int) ([]int, error) {
			shared = append(shared, len(questions))
			return questions, nil
		}}
		began := time.Now()
		if _, err := b.Do(0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Millisecond)
		var callers sync.WaitGroup
		for i := range enough {
			callers.Go(func() {
				if _, err := b.Do(i); err != nil {
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

// TestEnoughQuestionsAreLeft: questions that a full round trip leaves behind do not linger if they are enough.
func TestEnoughQuestionsAreLeft(t *testing.T) {
	for left, lingers := range map[int]bool{19: true, 20: false, 30: false} {
		synctest.Test(t, func(t *testing.T) {
			var shared []int
			const linger = 10 * time.Millisecond
			b := &Batcher[int, int]{Linger: linger, Enough: 20, Run: func(questions []int) ([]int, error) {
				shared = append(shared, len(questions))
				time.Sleep(time.Millisecond)
				return questions, nil
			}}
			ask := func(callers *sync.WaitGroup, n int) {
				for i := range n {
					callers.Go(func() {
						if _, err := b.Do(i); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
			}
			var callers sync.WaitGroup
			ask(&callers, 1) // the next questions gather while its round trip is under way
			ask(&callers, maxShared+left)
			began := time.Now()
			callers.Wait()
			want := 3 * time.Millisecond
			if lingers {
				want += linger - time.Millisecond
			}
			if took := time.Since(began); took != want || !slices.Equal(shared, []int{1, maxShared, left}) {
				t.Errorf("%d left: round trips of %v questions took %v; want %v", left, shared, took, want)
			}
		})
	}
}
