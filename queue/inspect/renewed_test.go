package inspect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewed: a reading is shared for its time. Until it is too old, those who ask have the
// next one read in the background and wait for nothing; then they wait for a new one.
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
			synctest.Wait() // what it begins in the background has begun
			if err != nil || *got != want || fresh != wantWait || (waited > 0) != wantWait || reads != readings {
				t.Fatalf("%d, fresh %t, after %v and %d readings, %v; want %d, %t, after %d", *got, fresh, waited, reads, err, want, wantWait, readings)
			}
		}
		ask(1, 1, true)
		time.Sleep(5*time.Second - 2*takes)
		ask(1, 1, false)
		time.Sleep(2 * takes)
		ask(1, 2, false) // and the next one is begun
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
		// A failure in the background is for those to find who come when the last is too old.
		time.Sleep(6 * time.Second)
		fails = errors.New("redis is away")
		ask(3, 4, false)
		time.Sleep(time.Minute + 2*takes)
		if _, _, err := get(); !errors.Is(err, fails) || reads != 5 {
			t.Errorf("%v after %d readings", err, reads)
		}
	})
}
