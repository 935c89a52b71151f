package limitlua

import (
	"cmp"
	"fmt"
	"time"
)

// Limit is what a script needs to know about a limit. Fields that the algorithm does not
// use are zero.
type Limit struct {
	Algorithm string         // as in throttle.Limit
	Count     int64          // permits in each Period or calendar month
	Period    time.Duration  // whole µs
	Months    int            // 0 or 1
	Location  *time.Location // of calendar windows; nil: they are aligned to the epoch

	Burst, Capacity, Concurrency int64
	Lease                        time.Duration
}

// MaxCost returns the largest cost that one call may have, in permits, when it is reserved
// (shaping) or taken; 0 means that there is no bound.
func (l Limit) MaxCost(shaping bool) int64 {
	switch l.Algorithm {
	case "token_bucket":
		return cmp.Or(l.Burst, 1)
	case "leaky_bucket":
		if shaping {
			return l.Capacity
		}
		return cmp.Or(l.Capacity, 1)
	case "concurrency":
		return 0
	default:
		return l.Count
	}
}

// Spec is a limit in the form that limits.lua reads, which describes its fields.
type Spec struct {
	Algorithm string `json:"a"`                // tb, lb, lm, fw, sc, sl or cc
	Permit    int64  `json:"p"`                // units that one permit costs
	Flow      int64  `json:"r"`                // units that flow back per µs
	Burst     int64  `json:"b"`                // permits of a full bucket or window, or calls
	Window    int64  `json:"w,omitempty"`      // µs; 0 with a calendar
	Ahead     int64  `json:"ahead"`            // µs beyond now in which slots are granted
	Lease     int64  `json:"l,omitempty"`      // µs; 0: a year
	Leased    bool   `json:"leased,omitempty"` // the bucket gives only what was leased to it
	Pool      bool   `json:"pool,omitempty"`   // of a leased tb: permits are leased, not moments
}

// Spec converts a valid limit for a script that grants slots up to ahead beyond the clock
// of Redis. shaping selects the form of a leaky bucket. The windows of a calendar are not
// part of a Spec: see [Limit.Windows].
func (l Limit) Spec(shaping bool, ahead time.Duration) Spec {
	spec := Spec{Burst: l.MaxCost(shaping), Permit: 1, Flow: 1, Ahead: ahead.Microseconds()}
	switch l.Algorithm {
	case "fixed_window":
		spec.Algorithm = "fw"
		if l.Location == nil {
			spec.Window = l.Period.Microseconds()
		}
	case "sliding_window_log":
		spec.Algorithm, spec.Window = "sl", l.Period.Microseconds()
	case "sliding_window_counter":
		spec.Algorithm, spec.Window = "sc", l.Period.Microseconds()
	case "concurrency":
		return Spec{Algorithm: "cc", Burst: l.Concurrency, Lease: l.Lease.Microseconds()}
	case "token_bucket":
		spec.Algorithm = "tb"
		spec.Permit, spec.Flow = Units(l.Count, l.Period)
	case "leaky_bucket":
		spec.Algorithm = "lm"
		if shaping {
			spec.Algorithm = "lb"
		}
		spec.Permit, spec.Flow = Units(l.Count, l.Period)
	}
	return spec
}

// Units returns a rate as the scripts count it: a permit costs p units, and r units flow
// back per µs, in lowest terms.
func Units(count int64, period time.Duration) (p, r int64) {
	p, r = period.Microseconds(), count
	a, b := p, r
	for b != 0 {
		a, b = b, a%b
	}
	return p / a, r / a
}

// Code returns the rate as plain forms of a bucket have it: digits of one that is an integer, the
// interval as MMME, which means MMM × 10^E µs, or "" if it has no such form; and of one that is
// a text, ":p/r", or "" if the bucket has no plain form.
func (s Spec) Code() (digits, text string) {
	if s.Algorithm != "tb" && s.Algorithm != "lm" {
		return "", ""
	}
	text = fmt.Sprintf(":%d/%d", s.Permit, s.Flow)
	m, e := s.Permit, 0
	for m >= 1000 && m%10 == 0 {
		m, e = m/10, e+1
	}
	if s.Flow != 1 || m >= 1000 || e > 9 {
		return "", text
	}
	return fmt.Sprintf("%03d%d", m, e), text
}
