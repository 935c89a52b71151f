package throttle

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

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

// plainSpecs returns the limits and the arguments of plain.lua for them, or nil if the script does not know one of them.
func plainSpecs(limits []Limit) (specs []plainSpec, args []any) {
	args = append(args, len(limits))
	for _, limit := range limits {
		spec := limit.lua().Spec(false, 0)
		digits, text := spec.Code()
		if text == "" || float64(spec.Permit)*float64(spec.Burst)/float64(spec.Flow) > maxOwed {
			return nil, nil
		}
		specs = append(specs, plainSpec{spec})
		args = append(args, spec.Permit, spec.Flow, spec.Burst, digits, text)
	}
	return specs, args
}

// plainAnswer reads the reply of plain.lua into the calls, and computes what follows from
// it. It returns the calls that the script did not know.
func (l *Limiter) plainAnswer(r request, reply any) (unknown []*call, err error) {
	short, calls := l.short[police], r.calls
	values, known := reply.([]any)
	if !known {
		for _, c := range calls {
			short.pass(c.buckets[0])
		}
		return calls, nil
	}
	of := numbers{values, true}
	now := time.UnixMicro(of.at(0))
	at := 1
	for len(calls) > 0 {
		asked := calls[:alike(calls)]
		calls = calls[len(asked):]
		taken := of.at(at)
		at++
		var few [4]int64 // saves an allocation
		buckets := debts{short.specs, few[:0]}
		for range l.limits {
			buckets.owed = append(buckets.owed, of.at(at))
			at++
		}
		if !of.ok || taken > int64(len(asked)) {
			return nil, fmt.Errorf("throttle: decide: unexpected reply %v", values)
		}
		if taken < 0 {
			for i, owed := range buckets.owed {
				if owed < 0 {
					short.pass(asked[0].buckets[i])
				}
			}
			unknown = append(unknown, asked...)
			continue
		}
		for _, c := range asked[:taken] {
			buckets.take(c.n)
			which := buckets.fullest()
			c.decision = l.plainDecision(which, buckets.owed[which])
			c.decision.Allowed, c.decision.At = true, now
			l.forgetRefusals(c)
		}
		for _, c := range asked[taken:] {
			which, wait := buckets.longest(c.n)
			c.decision = l.plainDecision(which, buckets.owed[which])
			c.decision.RetryAfter = wait
			short.refuse(&refusal{c.buckets[which], c.n, c.decision, &short.specs[which], buckets.owed[which], r.sent, l.time()})
		}
	}
	if at != len(values) {
		return nil, fmt.Errorf("throttle: decide: unexpected reply %v", values)
	}
	return unknown, nil
}

// plainDecision returns what is to say about a limit whose bucket owes so many units.
func (l *Limiter) plainDecision(which int, owed int64) Decision {
	spec := &l.short[police].specs[which]
	return Decision{Limit: l.limits[which].Name, Quota: spec.Burst, Remaining: spec.left(owed), ResetAfter: spec.after(owed)}
}

// debts is what the buckets of a call owe, in units, one for each limit.
type debts struct {
	specs []plainSpec
	owed  []int64
}

// take takes n permits of each bucket.
func (d debts) take(n int64) {
	for i, spec := range d.specs {
		d.owed[i] += n * spec.Permit
	}
}

// fullest returns the limit with the fewest permits left.
func (d debts) fullest() (which int) {
	for i, spec := range d.specs {
		if spec.left(d.owed[i]) < d.specs[which].left(d.owed[which]) {
			which = i
		}
	}
	return which
}

// longest returns the limit that refuses n permits for the longest time, and that time.
func (d debts) longest(n int64) (which int, wait time.Duration) {
	for i, spec := range d.specs {
		if w := spec.after(d.owed[i] - (spec.Burst-n)*spec.Permit); w > wait {
			which, wait = i, w
		}
	}
	return which, wait
}

// numbers reads the numbers of a script's reply. ok is false once one of them is none.
type numbers struct {
	values []any
	ok     bool
}

func (n *numbers) at(i int) (number int64) {
	if n.ok = n.ok && i < len(n.values); n.ok {
		number, n.ok = n.values[i].(int64)
	}
	return number
}
