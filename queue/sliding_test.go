package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

func slidingOf(name string, count int64, period time.Duration, per ...string) limits.Limit {
	return limits.Limit{Per: per, Name: name, Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: count, Period: period}}
}

// TestTimedSlidingCounterIsUsed: a backlog behind a sliding window counter goes at the full rate
// of the limit, even if that is one call per window.
func TestTimedSlidingCounterIsUsed(t *testing.T) {
	t.Parallel()
	const windows = 16
	measured(t, func(t *testing.T, run *pacer.Run) {
		rates := map[string]throttle.Rate{"one": {Count: 1, Period: 200 * time.Millisecond}, "five": {Count: 5, Period: 250 * time.Millisecond}}
		set := limitsOf(slidingOf("quota", 1, time.Second, "tenant"))
		set.Tenants = map[string]limits.Tenant{}
		all := 0
		for tenant, rate := range rates {
			set.Tenants[tenant] = limits.Tenant{Limits: map[string]map[string]limits.Change{"": {"quota": {Rate: &rate}}}}
			all += windows * int(rate.Count)
		}
		r := startRig(t, all, set, nil)
		for tenant, rate := range rates {
			r.enqueue(t, tenant, windows*int(rate.Count))
		}
		r.run(t)
		r.receiver.wait(t)
		r.seen.wait(t, string(lifecycle.Done), all)
		for tenant, rate := range rates {
			calls := r.calls[tenant]
			run.Took(tenant, calls[0], calls[len(calls)-1], windows*rate.Period*110/100)
		}
	})
}
