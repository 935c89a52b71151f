package queue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestTimedAbsenceIsNoCredit: a tenant that joins a shared limit which another tenant used alone
// gets half of it from then on, and nothing for the time before.
func TestTimedAbsenceIsNoCredit(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		const alone, both, rate = 200, 200, 200
		r := startRig(t, 2*alone+both, limitsOf(sharedBy(rate)), nil)
		r.enqueue(t, "b", 2*alone)
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), alone)
		r.enqueue(t, "a", both)
		r.wait(t)
		r.stop()
		came := slices.SortedFunc(slices.Values(r.calls["a"]), time.Time.Compare)
		first, middle := came[0], came[both/2]
		others := 0
		for _, at := range r.calls["b"] {
			if at.After(first) && at.Before(middle) {
				others++
			}
		}
		// It catches up at most the calls that the other was given ahead: one horizon.
		what := fmt.Sprintf("how many more or fewer than %d calls of the other beside as many of the tenant that came", both/2)
		run.Number(what, first, middle, math.Abs(float64(others-both/2)), rate*store.Horizon.Seconds())
	})
}
