package limits

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/throttle"
)

// Ramp lets each bucket of a limit begin with a small rate and grow to the limit's own, for receivers
// that do not trust a new sender yet, such as mailbox providers.
//
// It begins with the first call, and begins anew after 30 days without one. The rate grows by the same
// factor from each period to the next. A limit's burst grows with it. The limit of a tenant with an
// override has no ramp.
type Ramp struct {
	From throttle.Rate // at first; less than the limit's rate, with the same period
	Over time.Duration // until the limit's own rate is reached: one period to 10 years

	// HoldAbove is the part of rejected calls, 0 to 1, above which the rate does not grow: of about the last
	// 100 calls, and only after 20. Handlers report them with [queue.SetRejected]. 0 means
	// [DefaultHoldAbove].
	HoldAbove float64
}

// Percent returns a part as a limits file has it, such as 20%.
func Percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 12, 64) + "%" }

// DefaultHoldAbove is the part of rejected calls above which a ramp does not grow by default.
const DefaultHoldAbove = 0.05

// Period returns how long the rate stays the same. A month counts as the mean of one.
func (r Ramp) Period() time.Duration {
	const month = 2_629_746 * time.Second
	return r.From.Period + time.Duration(r.From.Months)*month
}

// At returns the permits in a period at an age of a bucket that was never held back, whose limit has `to` in the end.
func (r Ramp) At(age time.Duration, to int64) int64 {
	grown := age - age%r.Period()
	if grown >= r.Over {
		return to
	}
	// What is whole on paper must not be less by a rounding: as in lanes.lua.
	return int64(math.Floor(float64(r.From.Count)*math.Pow(float64(to)/float64(r.From.Count), float64(grown)/float64(r.Over)) + 1e-6))
}

// atFirst returns the limit as it is before its ramp has grown, as in lanes.lua. A tenant's own rate that is lower than
// the ramp's stays as it is.
func (l Limit) atFirst() Limit {
	if l.Ramp == nil {
		return l
	}
	from := l.Ramp.From
	part := float64(from.Count) * float64(Ramp{From: l.Rate}.Period()) / (float64(l.Rate.Count) * float64(l.Ramp.Period()))
	if part >= 1 {
		return l
	}
	scaled := func(n int64) int64 { return max(1, int64(math.Floor(float64(n)*part+1e-6))) }
	switch l.Algorithm {
	case throttle.TokenBucket, throttle.LeakyBucket:
		l.Rate, l.Burst = from, scaled(l.Burst)
	default:
		l.Rate.Count = scaled(l.Rate.Count)
	}
	return l
}

// String returns the ramp in a few words, such as "from 50/day over 30d".
func (r Ramp) String() string {
	text := fmt.Sprintf("from %v over %s", r.From, r.Length())
	if r.HoldAbove > 0 {
		text += fmt.Sprintf(", held above %.12g %%", 100*r.HoldAbove)
	}
	return text
}

// Length returns Over as in a limits file, such as 30d.
func (r Ramp) Length() string {
	if days := r.Over / (24 * time.Hour); days > 0 && r.Over == days*24*time.Hour {
		return fmt.Sprintf("%dd", days)
	}
	return r.Over.String()
}

// validateRamp reports why a limit cannot grow.
func (l Limit) validateRamp(wrong func(field, format string, args ...any)) {
	r := *l.Ramp
	if l.Algorithm == throttle.Concurrency {
		wrong("ramp", "only a limit with a rate grows")
		return // that it has none is said of its rate, too
	}
	if l.Queues != nil {
		wrong("ramp", "a budget does not grow: give it to a limit of each queue")
	}
	if l.Adaptive {
		wrong("ramp", "an adaptive limit does not grow: make it two limits, which hold together")
	}
	switch {
	case r.From.Count < 1 || r.From.Period < 0 || r.Period() <= 0:
		wrong("ramp.from", "required: a rate such as 50/day")
	case r.From.Period != l.Rate.Period || r.From.Months != l.Rate.Months:
		wrong("ramp.from", "%v must have the period of %v, to which it grows", r.From, l.Rate)
	case r.From.Count >= l.Rate.Count:
		wrong("ramp.from", "%v must be less than %v, to which it grows", r.From, l.Rate)
	case r.Over < r.Period() || r.Over > check.MaxAhead:
		wrong("ramp.over", "%v must be one period of the rate to 10 years", r.Over)
	}
	if !(r.HoldAbove >= 0 && r.HoldAbove <= 1) {
		wrong("ramp.hold_above", "%v must be 0 to 1", r.HoldAbove)
	}
}
