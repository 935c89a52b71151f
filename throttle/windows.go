package throttle

import (
	"fmt"
	"time"
)

// windowsAnswer reads the reply of windows.lua into the calls. It returns the calls that the
// script did not know.
func (l *Limiter) windowsAnswer(r request, reply any) (unknown []*call, err error) {
	const words = 4
	calls := r.calls
	values, _ := reply.([]any)
	of := numbers{values, len(values) == 1+words*len(calls)}
	now := of.at(0)
	for i, c := range calls {
		at := 1 + words*i
		taken, wait, left, reset := of.at(at), of.at(at+1), of.at(at+2), of.at(at+3)
		if !of.ok {
			return nil, fmt.Errorf("throttle: decide: unexpected reply %v", reply)
		}
		if taken < 0 {
			l.plain.pass(c.buckets[0])
			unknown = append(unknown, c)
			continue
		}
		c.decision = Decision{
			Allowed: taken == 1, Limit: l.limits[0].Name, Quota: l.plain.specs[0].Burst, Remaining: left,
			RetryAfter: time.Duration(wait) * time.Microsecond, ResetAfter: time.Duration(reset) * time.Microsecond,
		}
		if c.decision.Allowed {
			c.decision.At = time.UnixMicro(now)
		}
	}
	return unknown, nil
}
