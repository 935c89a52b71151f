package inspect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewed: a reading is shared for its time. After that, until it is too old, callers
// do not wait while the next one is read in the background. Then they wait for a new one.
func TestRenewed(t *testing.T) {
	const takes, late = 100 * time.Millisecond, 10 * time.Second // shared for 5 s
	synctest.Test(t, func(t *testing.T) {
		r, reads, rests := newRenewed[int](), 0, 0
		var fails error
		read := func(_ context.Context, rest func(time.Duration)) (*int, error) {
			reads++
			n := reads
			time.Sleep(takes)
			began := time.Now()
			if rest(time.Minute); time.Since(began) > 0 {
				rests++
			}
			return &n, fails
		}
		get := func() (*int, bool, error) {
			done, err := take(t.Context(), r.turn)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			return r.get(t.Context(), late, read)
		}
		ask := func(want, readings int, wantWait bool) {
			t.Helper()
			began := time.Now()
			got, fresh, err := get()
			waited := time.Since(began)
			synctest.Wait() // the reading in the background has begun
			if err != nil || *got != want || fresh != wantWait || (waited > 0) != wantWait || reads != readings {
				t.Fatalf("%d, fresh %t, after %v and %d readings, %v; want %d, %t, after %d", *got, fresh, waited, reads, err, want, wantWait, readings)
			}
		}
		ask(1, 1, true)
		time.Sleep(5*time.Second - 2*takes)
		ask(1, 1, false)
		time.Sleep(2 * takes)
		ask(1, 2, false) // and the next reading begins
		ask(1, 2, false)
		time.Sleep(time.Minute) // it takes longer than a reading may be late
		ask(1, 2, false)
		time.Sleep(2 * takes)
		ask(2, 2, false)
		if rests != 1 {
			t.Errorf("%d readings rested; want the one in the background", rests)
		}
		time.Sleep(5*time.Second - 2*takes)
		ask(2, 2, false)
		time.Sleep(late + 2*takes)
		ask(3, 3, true) // the last one is too old
		// Callers do not see a failure in the background until the last reading is too
		// old.
		time.Sleep(6 * time.Second)
		fails = errors.New("redis is away")
		ask(3, 4, false)
		time.Sleep(time.Minute + 2*takes)
		if _, _, err := get(); !errors.Is(err, fails) || reads != 5 {
			t.Errorf("%v after %d readings", err, reads)
		}
	})
}
