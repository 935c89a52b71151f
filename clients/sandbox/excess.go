package sandbox

import (
	"slices"
	"time"
)

// Excess returns by how many calls the worst window exceeds the limit: the largest
// count(i..j) − burst − rate × (t_j − t_i) over any two calls i ≤ j, admitted or not. The limit
// was kept, without tolerance, if it is not above 0. The calls can be in any order. Without calls
// it returns −burst.
func Excess(calls []Call, limit Limit) float64 {
	times := make([]time.Time, len(calls))
	for i, call := range calls {
		times[i] = call.At
	}
	slices.SortFunc(times, time.Time.Compare)
	m := meter{limit: limit.normal()}
	worst := 0.0
	for _, t := range times {
		m.add(t)
		worst = max(worst, m.level)
	}
	return worst - float64(m.limit.Burst)
}

// OfTenant returns the calls of a tenant.
func OfTenant(calls []Call, tenant string) []Call {
	var own []Call
	for _, call := range calls {
		if call.Tenant == tenant {
			own = append(own, call)
		}
	}
	return own
}
