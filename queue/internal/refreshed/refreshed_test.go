package refreshed

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	old   = 5 * time.Second
	young = 100 * time.Millisecond
)

// TestRefreshed: a value is read again when it is too old, once for all who ask. While it cannot be read,
// the last one is used at once or after a moment, except by those who need a new one.
func TestRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reads, takes, fails := 0, time.Duration(0), error(nil)
		r := Value[int]{Read: func(ctx context.Context) (int, error) {
			mu.Lock()
			reads++
			n, takes, err := reads, takes, fails
			mu.Unlock()
			select {
			case <-time.After(takes):
				return n, err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		now := func(how time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			takes, fails = how, err
		}
		readTimes := func(want int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if reads != want {
				t.Errorf("%d reads; want %d", reads, want)
			}
		}
		away := errors.New("away")
		get := func(what string, fresh bool, want int, wantErr error, within time.Duration) {
			t.Helper()
			began := time.Now()
			age := old
			if fresh {
				age = young
			}
			got, err := r.Get(t.Context(), age, fresh)
			if !errors.Is(err, wantErr) || err == nil && got != want || time.Since(began) > within {
				t.Errorf("%s: %d, %v after %v; want %d, %v within %v", what, got, err, time.Since(began), want, wantErr, within)
			}
		}
		now(0, away)
		get("never read, and away", false, 0, away, 0)
		now(0, nil)
		get("never read, and away a moment ago", false, 0, away, 0)
		readTimes(1)
		time.Sleep(refreshAgain)
		get("the first read", false, 2, nil, 0)
		get("it is new enough", false, 2, nil, 0)
		time.Sleep(young)
		get("a new one is needed", true, 3, nil, 0)

		time.Sleep(old)
		now(time.Second, nil)
		get("slow: the last one", false, 3, nil, refreshWait)
		var all sync.WaitGroup
		for range 10 { // the read under way began too long ago for them
			all.Go(func() { get("slow, shared", true, 5, nil, 2*time.Second) })
		}
		all.Wait()
		readTimes(5)

		time.Sleep(old)
		now(0, away)
		get("away: the last one", false, 5, nil, 0)
		readTimes(6)
		get("away: the last one, at once", false, 5, nil, 0)
		readTimes(6)
		get("away, and a new one is needed", true, 0, away, 0)
		now(time.Minute, nil)
		time.Sleep(refreshAgain)
		get("silent: the last one", false, 5, nil, refreshWait)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := r.Get(gone, old, false); got != 5 || err != nil {
			t.Errorf("silent, and nobody waits: %d, %v; want the last one", got, err)
		}
		time.Sleep(time.Minute) // the read was given up
		now(0, nil)
		get("it is back", false, 9, nil, 0)
	})
}
