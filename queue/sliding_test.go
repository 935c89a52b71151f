package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func slidingOf(name string, count int64, period time.Duration, per ...string) Limit {
	return Limit{Per: per, Limit: throttle.Limit{Name: name, Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: count, Period: period}}}
}

// TestSlidingCounterIsUsed: a backlog behind a sliding window counter goes at the
// limit's whole rate, also where that is a call in each window.
func TestSlidingCounterIsUsed(t *testing.T) {
	const windows = 16
	rates := map[string]throttle.Rate{"one": {Count: 1, Period: 200 * time.Millisecond}, "five": {Count: 5, Period: 250 * time.Millisecond}}
	limits := limitsOf(slidingOf("quota", 1, time.Second, "tenant"))
	limits.Tenants = map[string]TenantLimits{}
	all := 0
	for tenant, rate := range rates {
		limits.Tenants[tenant] = TenantLimits{Limits: map[string]map[string]Change{"": {"quota": {Rate: &rate}}}}
		all += windows * int(rate.Count)
	}
	r := startRig(t, all, limits, nil)
	for tenant, rate := range rates {
		r.enqueue(t, tenant, windows*int(rate.Count))
	}
	r.run(t)
	r.receiver.wait(t, time.Minute)
	r.seen.wait(t, string(Done), all)
	for tenant, rate := range rates {
		calls := r.calls[tenant]
		took, whole := calls[len(calls)-1].Sub(calls[0]), windows*rate.Period
		t.Logf("%s: %d calls in %v, %.3f of %v; stalled %v, %d missed", tenant, len(calls), took, whole.Seconds()/took.Seconds(), rate, r.stalled(), r.seen.outcomes("missed"))
		// A call that missed its slot goes in a later window.
		if most := whole*110/100 + r.stalled() + time.Duration(r.seen.outcomes("missed"))*rate.Period; took > most {
			t.Errorf("%s: %d calls of %v took %v, more than %v", tenant, len(calls), rate, took, most)
		}
	}
}
