package throttle

import (
	"hash/maphash"
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
	since := passed(r.sent, now)
	if since < 0 || since+wait/drift >= wait {
		return Decision{}, false
	}
	// As if Redis had decided when its answer came: nobody comes back too early.
	drained := max(0, passed(r.answered, now).Microseconds()) * r.spec.Flow
	owed := max(0, r.owed-drained)
	return Decision{
		Limit: r.limit, Quota: r.spec.Burst, Remaining: r.spec.left(owed),
		RetryAfter: max(r.spec.after(r.wait-drained), time.Microsecond), ResetAfter: r.spec.after(owed),
	}, true
}

// passed returns the time from one moment to another, with that for which the machine was suspended, which
// the monotonic clock leaves out.
func passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// refused returns the decision about a call that was just refused, if that holds still. It
// does not allocate, because that would be most of its time.
func (l *Limiter) refused(n int64, keys []string) (longest Decision, refused bool) {
	short := l.short[police]
	if short == nil || len(keys) != 1 && len(keys) != len(l.limits) {
		return Decision{}, false
	}
	known := short.refusals.Load()
	if known == nil {
		return Decision{}, false
	}
	for i := range l.limits {
		var room [128]byte
		bucket := l.appendBucket(room[:0], l.limits[i].Name, keys[min(i, len(keys)-1)])
		r := known[maphash.Bytes(short.seed, bucket)%uint64(len(known))].Load()
		if r == nil || r.bucket != string(bucket) || r.n != n {
			continue
		}
		if d, ok := r.at(l.time()); ok && d.RetryAfter > longest.RetryAfter {
			longest, refused = d, true
		}
	}
	return longest, refused
}

// refuse remembers that a call was refused.
func (s *short) refuse(r *refusal) {
	s.refusals.CompareAndSwap(nil, &refusals{})
	s.refusals.Load()[s.place(r.bucket)].Store(r)
}

// forgetRefusals forgets what was refused of the buckets of a call that was admitted: they owe more now.
func (l *Limiter) forgetRefusals(c *call) {
	short := l.short[police]
	if short == nil {
		return
	}
	known := short.refusals.Load()
	if known == nil {
		return
	}
	for _, bucket := range c.buckets {
		if at := &known[short.place(bucket)]; at.Load() != nil {
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
