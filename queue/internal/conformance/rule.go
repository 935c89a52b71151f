package conformance

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
)

// Early is how much before its slot a call may leave. Two calls of which one came late and the next early may be in a
// window that is so much shorter than the time between their slots.
const Early = 5 * time.Millisecond

// Rule says what a limit allows in its windows.
type Rule struct {
	Span
	fixed int64 // permits in any window
	shape bool  // the last call counts whole: a leaky bucket makes the next call wait for it
}

// RuleOf returns the rule of a limit with a spec, which may differ from that of other tenants, for calls from one
// moment to another; false for a limit that says nothing about the calls in a window.
func RuleOf(limit limits.Limit, spec limitlua.Spec, from, to int64) (Rule, bool) {
	period := limit.Rate.Period.Microseconds()
	if spec.Window > 0 {
		period = spec.Window
	}
	if period <= 0 && limit.Location == nil {
		return Rule{}, false
	}
	sliding := Span{Length: period - min(Early.Microseconds(), period/2)}
	switch spec.Algorithm {
	case "tb":
		return Rule{Span: sliding, fixed: spec.Burst + flown(spec, sliding.Length)}, true
	case "lb":
		return Rule{Span: sliding, fixed: flown(spec, sliding.Length), shape: true}, true
	case "sl":
		return Rule{Span: sliding, fixed: spec.Burst}, true
	case "sc":
		return Rule{Span: sliding, fixed: 2 * spec.Burst}, true // it estimates the window before
	case "fw":
		if limit.Location != nil {
			return Rule{Span: Span{Starts: windows(limit, from, to)}, fixed: spec.Burst}, true
		}
		return Rule{Span: Span{Length: period, Fixed: true}, fixed: spec.Burst}, true
	}
	return Rule{}, false
}

// windows returns where the calendar windows of a limit begin, of the one before from to the one after to.
func windows(limit limits.Limit, from, to int64) []int64 {
	for n := 1; ; n *= 2 {
		starts := effective.Windows(limit, time.UnixMicro(from), n)
		if len(starts) < n+2 || starts[len(starts)-1] > to {
			return starts
		}
	}
}

// flown returns how many whole permits flow back in a time.
func flown(spec limitlua.Spec, length int64) int64 {
	high, low := bits.Mul64(uint64(length), uint64(spec.Flow))
	if high >= uint64(spec.Permit) {
		return math.MaxInt64 / 2
	}
	n, _ := bits.Div64(high, low, uint64(spec.Permit))
	return int64(min(n, math.MaxInt64/2))
}

// allowed returns how many permits a window may have whose last call took so many.
func (r Rule) allowed(last int64) int64 {
	if r.shape {
		return r.fixed + last
	}
	return r.fixed
}

// lasts returns for how long after its latest call a window counts.
func (r Rule) lasts() int64 { return r.length() + Late }

func (r Rule) length() int64 {
	length := r.Length
	for i := 1; i < len(r.Starts); i++ {
		length = max(length, r.Starts[i]-r.Starts[i-1])
	}
	return length
}

// Window returns how long the windows of the limit are; of those of a calendar, the longest.
func (r Rule) Window() time.Duration { return time.Duration(r.length()) * time.Microsecond }
