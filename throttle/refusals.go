package throttle

import (
	"sync/atomic"
	"time"
)

// refusals has what this process knows of buckets that refuse. A bucket in its plain form holds no
// permits that could come back, so what it owes only drains: until a refused call can be
// admitted, the same call is refused without asking Redis.
type refusals [1024]atomic.Pointer[refusal] // by a hash of the bucket; the latest of those that share one

// refusal is a call that a bucket refused.
type refusal struct {
	bucket   string
	n        int64
	limit    string
	spec     plainSpec
	owed     int64     // units, at a moment between sent and answered
	wait     int64     // units that had to flow back until the call could go
	sent     time.Time // by the limiter's clock
	answered time.Time
}

// drift is by what part of a time the clocks of this process and of Redis may differ.
const drift = 1024

// at returns the decision at a moment, or false if the call may be admitted by then.
func (r *refusal) at(now time.Time) (Decision, bool) {
	wait := r.spec.after(r.wait)
	since := now.Sub(r.sent)
	if since < 0 || since+wait/drift >= wait {
		return Decision{}, false
	}
	// As if Redis had decided when its answer came: nobody comes back too early.
	drained := max(0, now.Sub(r.answered).Microseconds()) * r.spec.Flow
	owed := max(0, r.owed-drained)
	return Decision{
		Limit: r.limit, Quota: r.spec.Burst, Remaining: r.spec.left(owed),
		RetryAfter: max(r.spec.after(r.wait-drained), time.Microsecond), ResetAfter: r.spec.after(owed),
	}, true
}

// refused returns the decision about a call that was just refused, if that holds still.
func (l *Limiter) refused(c *call) (Decision, bool) {
	if l.plain == nil {
		return Decision{}, false
	}
	for _, bucket := range c.buckets {
		r := l.plain.refusals[l.plain.place(bucket)].Load()
		if r == nil || r.bucket != bucket || r.n != c.n {
			continue
		}
		if d, ok := r.at(l.time()); ok {
			return d, true
		}
	}
	return Decision{}, false
}

// forgetRefusals forgets what was refused of the buckets of a call that was admitted: they owe more now.
func (l *Limiter) forgetRefusals(c *call) {
	if l.plain == nil {
		return
	}
	for _, bucket := range c.buckets {
		if at := &l.plain.refusals[l.plain.place(bucket)]; at.Load() != nil {
			at.Store(nil)
		}
	}
}

// time is the moment by the limiter's clock, or by that of this process.
func (l *Limiter) time() time.Time {
	if l.now != nil {
		return l.now()
	}
	return time.Now()
}
