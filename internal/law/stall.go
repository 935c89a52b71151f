package law

import (
	"sync"
	"time"
)

// WatchStalls measures what the machine takes from everybody: the longest that
// a timer of this process was late since, until stop is called. A time that a
// test measures may be off by so much through no fault of
// what it tests.
func WatchStalls() (longest func() time.Duration, stop func()) {
	const tick = time.Millisecond
	var mu sync.Mutex
	var most time.Duration
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		timer := time.NewTimer(tick)
		defer timer.Stop()
		for before := time.Now(); ; before = time.Now() {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			late := time.Since(before) - tick
			mu.Lock()
			most = max(most, late)
			mu.Unlock()
			timer.Reset(tick)
		}
	})
	longest = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
	return longest, sync.OnceFunc(func() {
		close(done)
		watching.Wait()
	})
}

// Span is the time from the first of these moments to the last.
func Span(times []time.Time) time.Duration {
	if len(times) == 0 {
		return 0
	}
	first, last := times[0], times[0]
	for _, t := range times {
		if t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	return last.Sub(first)
}
