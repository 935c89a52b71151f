package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestFirst: the first attempt is the first whose call may have had an effect:
// one that failed counts, one that the provider refused does not.
func TestFirst(t *testing.T) {
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
	r.seen.wait(t, string(Done), 1)
	r.stop()
	if len(firsts) != 4 || firsts[0].Before(began.Add(-time.Second)) || firsts[1].Sub(firsts[0]) < 250*time.Millisecond ||
		!firsts[2].Equal(firsts[1]) || !firsts[3].Equal(firsts[1]) {
		t.Errorf("first attempts: %v; want another one after the call that was refused, and that one from then on", firsts)
	}
}
