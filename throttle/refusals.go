package throttle

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// refusals has what this process knows of buckets that refuse. Of a bucket in its plain form, and of a window or a log in
// which nothing was reserved, no permits can come back: until a refused call can be admitted, the same call is refused
// without asking Redis.
type refusals [1024]atomic.Pointer[refusal] // by a hash of the bucket; the latest of those that share one

// refusal is a call that a bucket refused.
type refusal struct {
	bucket   string
	n        int64
	decision Decision   // of Redis, at a moment between sent and answered
	spec     *plainSpec // of a bucket that drains; nil: nothing is left until the call can go
	owed     int64      // units, of such a bucket
	sent     time.Time  // by the limiter's clock
	answered time.Time
}

// remembered is how long a refusal holds at most. Then Redis is asked again: an operator may have deleted the bucket.
const remembered = time.Minute

// drift is by what part of a time the clocks of this process and of Redis may differ.
const drift = 1024

// at returns the decision at a moment, or false if the call may be admitted by then.
func (r *refusal) at(now time.Time) (Decision, bool) {
	wait := r.decision.RetryAfter
	since := passed(r.sent, now)
	if since < 0 || since+wait/drift >= wait || since >= remembered {
		return Decision{}, false
	}
	// As if Redis had decided when its answer came: nobody comes back too early.
	over := max(0, passed(r.answered, now)).Truncate(time.Microsecond)
	d := r.decision
	d.Local = true
	d.RetryAfter, d.ResetAfter = max(wait-over, time.Microsecond), max(0, d.ResetAfter-over)
	if r.spec != nil {
		d.Remaining = r.spec.left(max(0, r.owed-over.Microseconds()*r.spec.Flow))
	}
	return d, true
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
	if s.refusals.Load() == nil {
		s.refusals.CompareAndSwap(nil, &refusals{})
	}
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
