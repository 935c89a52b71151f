package throttle

import (
	"fmt"
	"time"
)

// Decision is a limiter's answer to one call. Permits are whole, times are whole
// µs. The zero Decision stands beside an error and says nothing.
type Decision struct {
	// Allowed says that the permits were taken; after [Limiter.Peek], that they
	// would be.
	Allowed bool

	// Limit names the limit that Quota, Remaining and ResetAfter speak of: the
	// one that held the call back, or, where none did, the one with the fewest
	// permits left.
	Limit string

	// Quota is how many permits that limit holds when nothing is owed: its
	// burst, its capacity, the count of its window, or its concurrency.
	Quota int64

	// Remaining is how many permits could still go at once after this answer; 0
	// during a pause. Of a reservation in a leaky bucket with a Capacity it is how
	// many more could wait.
	Remaining int64

	// Delay is how long after this answer the call may go; 0: now. Only a
	// reservation has one; of one that was refused it is how far away the slot was.
	Delay time.Duration

	// RetryAfter is how long to wait before the same call can be admitted;
	// 0 when Allowed. Rounded up to the next µs. For a reservation that is when
	// its slot is no further away than the call accepts, or when a full queue has a
	// place. For a concurrency limit it is when a permit lapses that nobody renews:
	// one may come back at any time.
	RetryAfter time.Duration

	// ResetAfter is how long it takes until the limit is full again, if nothing
	// more is taken; 0: it is.
	ResetAfter time.Duration

	// At is the moment of the slot on Redis's clock, which is also the moment of
	// the answer plus Delay. Zero when refused.
	At time.Time

	// Paused is the reason of the pause that held the call back, or put its slot
	// behind its end; empty without one, and of a pause without a reason. See
	// [Limiter.Pause].
	Paused string
}

// CostError reports a cost that a limit can never admit, at any time: a mistake
// of the caller and no refusal. Redis is not asked for it.
type CostError struct {
	Limit string // the name of the limit
	Cost  int64  // permits asked for
	Max   int64  // the largest cost that the limit admits
}

// Error names the limit and both costs.
func (e *CostError) Error() string {
	return fmt.Sprintf("cost %d is more than limit %q ever admits at once (%d)", e.Cost, e.Limit, e.Max)
}

// RefusedError reports that [Limiter.Wait] would not come to an end in time:
// the slot lies behind the deadline of its context or a year away, or the queue is
// full. Its Decision is the refusal, and nothing was taken.
type RefusedError struct{ Decision }

// Error names the limit, how far away the slot is, and the reason of a pause.
func (e *RefusedError) Error() string {
	why := ""
	if e.Paused != "" {
		why = " (paused: " + clip(e.Paused) + ")"
	}
	return fmt.Sprintf("limit %q admits the call in %v%s, which is too late", e.Limit, e.Delay, why)
}
