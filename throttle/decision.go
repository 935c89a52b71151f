package throttle

import (
	"fmt"
	"time"
)

// Decision is a limiter's answer to one call.
type Decision struct {
	// Allowed says that the permits were taken.
	Allowed bool

	// Limit names the limit that Quota, Remaining and ResetAfter speak of: the
	// one that held the call back, or, where none did, the one with the fewest
	// permits left.
	Limit string

	// Quota is how many permits that limit holds when nothing is owed: its
	// burst, its capacity, the count of its window, or its concurrency.
	Quota int64

	// Remaining is how many permits could still go at once.
	Remaining int64

	// Delay is how long after this answer the call may go; 0: now. Only a
	// reservation has one.
	Delay time.Duration

	// RetryAfter is how long to wait before the same call can be admitted;
	// 0 when Allowed. Rounded up to the next µs. For a concurrency limit it is
	// the longest: a permit may come back at any time.
	RetryAfter time.Duration

	// ResetAfter is how long it takes until the limit is full again, if nothing
	// more is taken; 0: it is.
	ResetAfter time.Duration

	// At is the moment of the slot on Redis's clock, which is also the moment of
	// the answer plus Delay. Zero when refused.
	At time.Time

	// Paused is the reason of the pause that held the call back; empty without
	// one. See [Limiter.Pause].
	Paused string
}

// CostError reports a cost that a limit can never admit, at any time.
type CostError struct {
	Limit string
	Cost  int64
	Most  int64 // the largest cost the limit admits
}

func (e *CostError) Error() string {
	return fmt.Sprintf("cost %d is more than limit %q ever admits at once (%d)", e.Cost, e.Limit, e.Most)
}

// RefusedError reports that [Limiter.Wait] would not come to an end in time:
// the slot lies behind the deadline of its context, or the queue is full.
type RefusedError struct{ Decision }

func (e *RefusedError) Error() string {
	why := ""
	if e.Paused != "" {
		why = " (paused: " + clip(e.Paused) + ")"
	}
	return fmt.Sprintf("limit %q admits the call in %v%s, which is too late", e.Limit, e.RetryAfter, why)
}
