package throttle

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
)

// plain is what a short script needs to know about a limiter's limits: plain.lua about those
// that flow back, windows.lua about a single one of windows.
type plain struct {
	script *redisscript.Script
	specs  []plainSpec
	args   []any // of plain.lua: p, r, b and both codes of each limit

	// passing is how many more questions about a bucket go straight to take.lua after
	// the short script did not know its state, by a hash of its key. Then it is tried
	// again: pauses end, and buckets become plain when they are full. Buckets that share
	// a hash pass together, which costs only time.
	seed    maphash.Seed
	passing [1024]atomic.Int32

	refusals atomic.Pointer[refusals] // nil: there was none
}

type plainSpec struct{ limitlua.Spec }

// after returns the time in which units flow back, rounded up to the next µs.
func (s plainSpec) after(units int64) time.Duration {
	return time.Duration((units+s.Flow-1)/s.Flow) * time.Microsecond
}

// left returns how many permits a bucket has that owes so many units.
func (s plainSpec) left(owed int64) int64 {
	return max(0, s.Burst-(owed+s.Permit-1)/s.Permit)
}

// maxOwed is the longest debt of which the end has a plain form for years to come, in µs.
const maxOwed = 1e14

// newPlain returns nil if no short script knows the limits.
func newPlain(limits []Limit) *plain {
	p := &plain{script: plainScript, seed: maphash.MakeSeed()}
	for _, limit := range limits {
		spec := limit.lua().Spec(false, 0)
		p.specs = append(p.specs, plainSpec{spec})
		if len(limits) == 1 && (spec.Algorithm == "fw" || spec.Algorithm == "sc") {
			p.script = windowsScript
			return p
		}
		digits, text := spec.Code()
		if text == "" || float64(spec.Permit)*float64(spec.Burst)/float64(spec.Flow) > maxOwed {
			return nil
		}
		p.args = append(p.args, spec.Permit, spec.Flow, spec.Burst, digits, text)
	}
	return p
}

// place is where what is known of a bucket is.
func (p *plain) place(bucket string) uint64 {
	return maphash.String(p.seed, bucket) % uint64(len(p.passing))
}

// of returns the counter of a bucket.
func (p *plain) of(bucket string) *atomic.Int32 { return &p.passing[p.place(bucket)] }

// knows reports whether the short script should be tried for a call.
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

// sort separates the calls for which the short script should be tried from the others. A call
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

// pass records that the short script did not know a bucket.
func (p *plain) pass(bucket string) { p.of(bucket).Store(100) }

// plainRequest returns the run of the short script for calls.
func (l *Limiter) plainRequest(calls []*call) request {
	p := l.plain
	args := append(make([]any, 0, 4+5*len(l.limits)+3*len(calls)), l.clock())
	if p.script == windowsScript {
		if len(calls) > 1 {
			calls = slices.Clone(calls)
			slices.SortStableFunc(calls, func(a, b *call) int { return strings.Compare(a.buckets[0], b.buckets[0]) })
		}
		spec, windows := p.specs[0], any(p.specs[0].Window)
		if spec.Window == 0 {
			windows = l.calendar(l.limits[0], 0)
		}
		args = append(args, spec.Algorithm, spec.Burst, windows)
	} else {
		args = append(append(args, len(l.limits)), p.args...)
	}
	keys := gather(calls, func(which int, c *call, times int) { args = append(args, which, c.n, times) })
	return request{mode: modeTake, calls: calls, script: p.script, keys: keys, args: args, sent: l.time()}
}

// plainAnswer reads the reply of plain.lua into the calls, and computes what follows from
// it. It returns the calls that the script did not know.
func (l *Limiter) plainAnswer(r request, reply any) (unknown []*call, err error) {
	calls := r.calls
	values, known := reply.([]any)
	if !known {
		for _, c := range calls {
			l.plain.pass(c.buckets[0])
		}
		return calls, nil
	}
	of := numbers{values, len(values) == 1+2*len(calls)}
	now := of.at(0)
	for i, c := range calls {
		owed, which := of.at(1+2*i), of.at(2+2*i)
		if valid := (which >= 1 || owed == 0 && which == 0) && which <= int64(len(l.limits)); !of.ok || !valid {
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
			l.forgetRefusals(c)
		} else {
			wait, bucket := -owed, c.buckets[which-1]
			d.RetryAfter = spec.after(wait)
			owed = wait + (spec.Burst-c.n)*spec.Permit
			l.plain.refuse(&refusal{bucket, c.n, d.Limit, *spec, owed, wait, r.sent, l.time()})
		}
		d.ResetAfter = spec.after(owed)
		d.Remaining = spec.left(owed)
	}
	return unknown, nil
}

// numbers reads the numbers of a script's reply. ok is false once one of them is none.
type numbers struct {
	values []any
	ok     bool
}

func (n *numbers) at(i int) (number int64) {
	if n.ok {
		number, n.ok = n.values[i].(int64)
	}
	return number
}
