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
	calls := r.calls
	values, known := reply.([]any)
	if !known {
		for _, c := range calls {
			l.short[police].pass(c.buckets[0])
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
				l.short[police].pass(c.buckets[which-1])
			}
			unknown = append(unknown, c)
			continue
		}
		spec := &l.short[police].specs[which-1]
		d := &c.decision
		d.Allowed, d.Limit, d.Quota = owed > 0, l.limits[which-1].Name, spec.Burst
		if d.Allowed {
			d.At = time.UnixMicro(now)
			l.forgetRefusals(c)
		} else {
			d.RetryAfter = spec.after(-owed)
			owed = -owed + (spec.Burst-c.n)*spec.Permit
		}
		d.ResetAfter = spec.after(owed)
		d.Remaining = spec.left(owed)
		if !d.Allowed {
			l.short[police].refuse(&refusal{c.buckets[which-1], c.n, *d, spec, owed, r.sent, l.time()})
		}
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
