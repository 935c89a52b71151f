package throttle

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/redisscript"
)

// short is a script that decides most calls of a limiter in one form, police or shape, in a fraction of the
// time of take.lua. It leaves calls to take.lua if it does not know the state of a bucket.
type short struct {
	script *redisscript.Script
	args   []any       // of the limits
	specs  []plainSpec // of plain.lua

	// passing is how many more questions about a bucket go straight to take.lua after
	// the short script did not know its state, by a hash of its key. Then it is tried
	// again: pauses end, and buckets become plain when they are full. Buckets that share
	// a hash pass together, which costs only time.
	seed    maphash.Seed
	passing [1024]atomic.Int32

	refusals atomic.Pointer[refusals] // nil: there was none
}

// newShort returns nil if no short script knows the limits.
func newShort(limits []Limit, form int) *short {
	spec := limits[0].lua().Spec(form == shape, maxWithin)
	s := &short{seed: maphash.MakeSeed()}
	switch one := len(limits) == 1; {
	case form == shape && !one:
		return nil
	case form == shape && (spec.Algorithm == "tb" || spec.Algorithm == "lb"):
		s.script, s.args = slotsScript, []any{spec.Algorithm, spec.Permit, spec.Flow, spec.Burst}
	case form == shape && spec.Algorithm == "cc":
		s.script, s.args = permitsScript, []any{spec.Burst, limits[0].lease().Microseconds()}
	case form == shape:
		return nil
	case one && spec.Algorithm == "sl":
		s.script, s.args = logScript, []any{spec.Burst, spec.Window}
	case one && (spec.Algorithm == "fw" || spec.Algorithm == "sc"):
		s.script, s.args = windowsScript, []any{spec.Algorithm, spec.Burst, spec.Window}
	default:
		s.script = plainScript
		s.specs, s.args = plainSpecs(limits)
		if s.specs == nil {
			return nil
		}
	}
	return s
}

// place is where what is known of a bucket is.
func (s *short) place(bucket string) uint64 {
	return maphash.String(s.seed, bucket) % uint64(len(s.passing))
}

// of returns the counter of a bucket.
func (s *short) of(bucket string) *atomic.Int32 { return &s.passing[s.place(bucket)] }

// knows reports whether the short script should be tried for a call.
func (s *short) knows(c *call) bool {
	if s == nil {
		return false
	}
	for _, bucket := range c.buckets {
		if passing := s.of(bucket); passing.Load() > 0 && passing.Add(-1) >= 0 {
			return false
		}
	}
	return true
}

// sort separates the calls for which the short script should be tried from those for take.lua. A call
// that shares a bucket with an earlier one for take.lua goes there, too, so that calls of one
// bucket keep their order.
func (s *short) sort(calls []*call) (known, unknown []*call) {
	var asked map[string]bool // buckets of the unknown calls
	for _, c := range calls {
		if s.knows(c) && !slices.ContainsFunc(c.buckets, func(b string) bool { return asked[b] }) {
			known = append(known, c)
			continue
		}
		if asked == nil {
			asked = map[string]bool{}
		}
		unknown = append(unknown, c)
		for _, bucket := range c.buckets {
			asked[bucket] = true
		}
	}
	return known, unknown
}

// pass records that the short script did not know a bucket.
func (s *short) pass(bucket string) { s.of(bucket).Store(100) }

// shortRequest returns the run of the short script for calls.
func (l *Limiter) shortRequest(mode string, calls []*call) request {
	s := l.short[form(mode)]
	args := append(make([]any, 0, 1+len(s.args)+5*len(calls)), l.clock())
	args = append(args, s.args...)
	if s.script == windowsScript && l.limits[0].Location != nil {
		args[len(args)-1] = l.calendar(l.limits[0], 0)
	}
	if s.script != plainScript && len(calls) > 1 {
		calls = slices.Clone(calls)
		slices.SortStableFunc(calls, func(a, b *call) int { return strings.Compare(a.buckets[0], b.buckets[0]) })
	}
	keys := gather(calls, func(which int, c *call, times int) {
		if shaping(mode) {
			args = c.question(args, which, times)
		} else {
			args = append(args, which, c.n, times)
		}
	})
	return request{mode: mode, calls: calls, script: s.script, keys: keys, args: args, sent: l.time()}
}

// shortAnswer reads the reply of a short script, but for plain.lua, into the calls. It returns those that
// the script did not know.
func (l *Limiter) shortAnswer(r request, reply any) (unknown []*call, err error) {
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
		} else if taken == 0 && c.n == 1 && !shaping(r.mode) {
			short.refuse(&refusal{bucket: c.buckets[0], n: 1, decision: c.decision, sent: r.sent, answered: l.time()})
		}
	}
	return unknown, nil
}
