package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestAbsenceIsNoCredit: a tenant that joins a shared limit which another tenant used alone
// gets half of it from then on, and nothing for the time before.
func TestAbsenceIsNoCredit(t *testing.T) {
	t.Parallel()
	const alone, both = 200, 200
	r := startRig(t, 2*alone+both, limitsOf(sharedBy(200)), nil)
	r.enqueue(t, "b", 2*alone)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), alone)
	r.enqueue(t, "a", both)
	r.wait(t)
	r.stop()
	first := slices.MinFunc(r.calls["a"], time.Time.Compare)
	middle := slices.SortedFunc(slices.Values(r.calls["a"]), time.Time.Compare)[both/2]
	others := 0
	for _, at := range r.calls["b"] {
		if at.After(first) && at.Before(middle) {
			others++
		}
	}
	// It catches up at most the calls that the other was given ahead: one horizon.
	if ahead := int(200 * store.Horizon.Seconds()); others < both/2-ahead || others > both/2+ahead {
		t.Errorf("%d calls of the other beside %d of the tenant that came; want as many", others, both/2)
	}
}
