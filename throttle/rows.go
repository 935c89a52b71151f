package throttle

import (
	"fmt"
	"time"
)

// rows reads the reply of a short script, but for plain.lua, into the calls. It returns those that
// the script did not know.
func (l *Limiter) rows(r request, reply any) (unknown []*call, err error) {
	words := 4
	if r.script == slotsScript {
		words = 6
	}
	calls := r.calls
	values, _ := reply.([]any)
	of := numbers{values, len(values) == 1+words*len(calls)}
	now := of.at(0)
	limit, short := &l.limits[0], l.short[form(r.mode)]
	for i, c := range calls {
		at := 1 + words*i
		taken, wait, left, reset := of.at(at), of.at(at+1), of.at(at+2), of.at(at+3)
		delay := wait // of a permit
		var mark int64
		if r.script == slotsScript {
			delay, mark = of.at(at+4), of.at(at+5)
		}
		if !of.ok {
			return nil, fmt.Errorf("throttle: decide: unexpected reply %v", reply)
		}
		if taken < 0 {
			short.pass(c.buckets[0])
			unknown = append(unknown, c)
			continue
		}
		c.decision = Decision{
			Allowed: taken == 1, Limit: limit.Name, Quota: limit.Quota(), Remaining: left,
			RetryAfter: time.Duration(wait) * time.Microsecond, ResetAfter: time.Duration(reset) * time.Microsecond,
		}
		if shaping(r.mode) {
			c.decision.Quota, c.decision.Delay = limit.reserveQuota(), time.Duration(delay)*time.Microsecond
			c.marks = []int64{mark}
		}
		if c.decision.Allowed {
			c.decision.At = time.UnixMicro(now).Add(c.decision.Delay)
			l.forgetRefusals(c)
		}
	}
	return unknown, nil
}
