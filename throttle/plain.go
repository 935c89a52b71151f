package throttle

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// maxPlain is the longest debt that a plain bucket can have: PLAIN_MAX of limits.lua.
const maxPlain = time.Minute

// plain is what plain.lua needs to know about a limiter's limits.
type plain struct {
	specs []limitlua.Spec
	args  []any // p, b and code of each limit

	// passing is how many more questions about a bucket go straight to take.lua after
	// plain.lua did not know its state, by a hash of its key. Then plain.lua is tried
	// again: pauses end, and buckets become plain when they are full. Buckets that share
	// a hash pass together, which costs only time.
	seed    maphash.Seed
	passing [1024]atomic.Int32
}

// newPlain returns nil if a bucket may owe more than its plain form can express.
func newPlain(limits []Limit) *plain {
	p := &plain{seed: maphash.MakeSeed()}
	for _, limit := range limits {
		spec := limit.lua().Spec(false, 0)
		code := spec.Code()
		if code == "" || spec.Permit*spec.Burst > maxPlain.Microseconds() {
			return nil
		}
		p.specs = append(p.specs, spec)
		p.args = append(p.args, spec.Permit, spec.Burst, code)
	}
	return p
}

// of returns the counter of a bucket.
func (p *plain) of(bucket string) *atomic.Int32 {
	return &p.passing[maphash.String(p.seed, bucket)%uint64(len(p.passing))]
}

// knows reports whether plain.lua should be tried for a call.
func (p *plain) knows(c *call) bool {
	if p == nil {
		return false
	}
	for _, bucket := range c.buckets {
		if passing := p.of(bucket); passing.Load() > 0 && passing.Add(-1) >= 0 {
			return false
		}
	}
	return true
}

// sort separates the calls for which plain.lua should be tried from the others. A call
// that shares a bucket with one of the others before it joins them, so that calls of one
// bucket keep their order.
func (p *plain) sort(calls []*call) (known, others []*call) {
	var asked map[string]bool // buckets of the others
	for _, c := range calls {
		if p.knows(c) && !slices.ContainsFunc(c.buckets, func(b string) bool { return asked[b] }) {
			known = append(known, c)
			continue
		}
		if asked == nil {
			asked = map[string]bool{}
		}
		others = append(others, c)
		for _, bucket := range c.buckets {
			asked[bucket] = true
		}
	}
	return known, others
}

// pass records that plain.lua did not know a bucket.
func (p *plain) pass(bucket string) { p.of(bucket).Store(100) }

func (l *Limiter) plainRequest(calls []*call) request {
	args := append(make([]any, 0, 2+3*(len(l.limits)+len(calls))), l.clock(), len(l.limits))
	args = append(args, l.plain.args...)
	keys := gather(calls, func(which int, c *call, times int) { args = append(args, which, c.n, times) })
	return request{mode: modeTake, calls: calls, script: plainScript, keys: keys, args: args}
}

// plainAnswer reads the reply of plain.lua into the calls, and computes what follows from
// it. It returns the calls that the script did not know.
func (l *Limiter) plainAnswer(calls []*call, reply any) (unknown []*call, err error) {
	values, known := reply.([]any)
	if !known {
		for _, c := range calls {
			l.plain.pass(c.buckets[0])
		}
		return calls, nil
	}
	ok := len(values) == 1+2*len(calls)
	number := func(i int) int64 {
		if !ok {
			return 0
		}
		var n int64
		n, ok = values[i].(int64)
		return n
	}
	now := number(0)
	for i, c := range calls {
		owed, which := number(1+2*i), number(2+2*i)
		if ok = ok && (which >= 1 || owed == 0 && which == 0) && which <= int64(len(l.limits)); !ok {
			return nil, fmt.Errorf("throttle: decide: unexpected reply %v", values)
		}
		if owed == 0 {
			if which > 0 {
				l.plain.pass(c.buckets[which-1])
			}
			unknown = append(unknown, c)
			continue
		}
		spec := &l.plain.specs[which-1]
		d := &c.decision
		d.Allowed, d.Limit, d.Quota = owed > 0, l.limits[which-1].Name, spec.Burst
		if d.Allowed {
			d.At = time.UnixMicro(now)
		} else {
			d.RetryAfter = time.Duration(-owed) * time.Microsecond
			owed = -owed + (spec.Burst-c.n)*spec.Permit
		}
		d.ResetAfter = time.Duration(owed) * time.Microsecond
		d.Remaining = max(0, spec.Burst-(owed+spec.Permit-1)/spec.Permit)
	}
	return unknown, nil
}
