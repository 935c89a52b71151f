package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Algorithm says how a limit spreads its rate over time.
type Algorithm string

const (
	// TokenBucket admits a burst of up to Burst permits at once and its rate
	// in the long run: never more than Burst + Rate × t in any time t.
	TokenBucket Algorithm = "token_bucket"

	// LeakyBucket shapes with Reserve and in a queue: one permit per interval
	// and never a burst, with up to Capacity waiting. With Take it polices: a
	// bucket of Capacity permits that drains at the rate.
	LeakyBucket Algorithm = "leaky_bucket"

	// FixedWindow admits Rate.Count in each window. Windows are aligned to the
	// epoch, or to the calendar of Location. Around the edge of two windows up
	// to twice the count may go.
	FixedWindow Algorithm = "fixed_window"
)

// Limit is a rule for the calls of one key.
type Limit struct {
	// Name tells limits apart, in answers and in Redis. Changing it starts anew.
	Name string

	// Algorithm has no default.
	Algorithm Algorithm

	// Rate is required.
	Rate Rate

	// Burst is how many permits a full token bucket holds; 0 means 1.
	// It must be 0 for the other algorithms.
	Burst int64

	// Capacity bounds a leaky bucket, in permits: with Take what it holds
	// (0 means 1), with Reserve how many may wait (0: bounded by time alone).
	// It must be 0 for the other algorithms.
	Capacity int64

	// Location puts the windows of FixedWindow on its calendar: the rate is
	// then per day, week (from Monday) or month. nil: windows of
	// Rate.Period, aligned to the Unix epoch. It must be nil for the others.
	Location *time.Location
}

// Validate reports everything that makes the limit unusable, or nil.
func (l Limit) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l.Name == "" {
		wrong("name: a limit needs one")
	}
	if len(l.Name) > 64 {
		wrong("name: longer than 64 bytes")
	}
	rateErr := l.Rate.Validate()
	if rateErr != nil {
		wrong("rate: %w", rateErr)
	}
	if l.Burst < 0 {
		wrong("burst: %d is negative", l.Burst)
	}
	if l.Capacity < 0 {
		wrong("capacity: %d is negative", l.Capacity)
	}
	if l.Burst != 0 && l.Algorithm != TokenBucket {
		wrong("burst: only a %s has one", TokenBucket)
	}
	if l.Capacity != 0 && l.Algorithm != LeakyBucket {
		wrong("capacity: only a %s has one", LeakyBucket)
	}
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		if l.Location != nil {
			wrong("timezone: only a %s has one", FixedWindow)
		}
		if l.Rate.Months != 0 {
			wrong("rate: months differ in length, so only a %s with a timezone counts by them", FixedWindow)
		} else if rateErr == nil && !l.Rate.fits(max(l.Burst, l.Capacity, 1)) {
			wrong("burst or capacity: %d permits at %v cannot be counted exactly; use fewer or a shorter period", max(l.Burst, l.Capacity), l.Rate)
		}
	case FixedWindow:
		switch {
		case l.Location == nil && l.Rate.Months != 0:
			wrong("timezone: windows of a month need one, such as Europe/Berlin or UTC")
		case l.Location != nil && l.Rate.Months == 0 && l.Rate.Period != day && l.Rate.Period != 7*day:
			wrong("rate: calendar windows are per day, week or month")
		case l.Rate.Count >= exact:
			wrong("rate: %d permits cannot be counted exactly", l.Rate.Count)
		}
	case "":
		wrong("algorithm: a limit needs one: %s, %s or %s", TokenBucket, LeakyBucket, FixedWindow)
	default:
		wrong("algorithm: %q is none of %s, %s, %s", clip(string(l.Algorithm)), TokenBucket, LeakyBucket, FixedWindow)
	}
	return errors.Join(errs...)
}

// Most is the largest cost that one call may have; 0 means that any will do.
func (l Limit) Most(shaping bool) int64 {
	switch l.Algorithm {
	case TokenBucket:
		return cmp.Or(l.Burst, 1)
	case LeakyBucket:
		if shaping {
			return l.Capacity
		}
		return cmp.Or(l.Capacity, 1)
	default:
		return l.Rate.Count
	}
}

// Spec is a limit in the form that limits.lua reads; its fields are described
// there. It is for packages that build scripts of their own on [NewScript].
type Spec struct {
	Algorithm string `json:"a"`
	Permit    int64  `json:"p"`           // units that one permit costs
	Flow      int64  `json:"r"`           // units that flow back per µs
	Burst     int64  `json:"b"`           // permits
	Window    int64  `json:"w,omitempty"` // µs; 0 with a calendar
	Ahead     int64  `json:"ahead"`       // µs
}

// Spec converts a valid limit for a script that grants slots up to ahead beyond
// Redis's clock. Shaping selects the form of the leaky bucket. The windows of
// a calendar are not part of it: see [Limit.Windows].
func (l Limit) Spec(shaping bool, ahead time.Duration) Spec {
	spec := Spec{Burst: l.Most(shaping), Permit: 1, Flow: 1, Ahead: ahead.Microseconds()}
	switch l.Algorithm {
	case FixedWindow:
		spec.Algorithm = "fw"
		if l.Location == nil {
			spec.Window = l.Rate.Period.Microseconds()
		}
		return spec
	case TokenBucket:
		spec.Algorithm = "tb"
	case LeakyBucket:
		spec.Algorithm = "lm"
		if shaping {
			spec.Algorithm = "lb"
		}
	}
	spec.Permit, spec.Flow = l.Rate.units()
	return spec
}
