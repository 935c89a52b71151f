package throttle

import (
	"fmt"
	"time"
)

// Decision is a limiter's answer to one call. Durations are whole µs. Methods that
// return an error return the zero Decision with it, which means nothing.
type Decision struct {
	// Allowed reports whether the permits were taken; after [Limiter.Peek], whether
	// they would be.
	Allowed bool

	// Limit is the name of the limit that Quota, Remaining and ResetAfter describe:
	// the one that held the call back or, if none did, the one with the fewest
	// permits left.
	Limit string

	// Quota is the largest Remaining that the limit can have: its burst, its capacity, the
	// count of its window, or its concurrency. It is 1 for a reservation in a leaky bucket,
	// from which one permit goes at a time.
	Quota int64

	// Remaining is how many more permits of that limit could go at once after this
	// answer, whatever the algorithm; 0 during a pause.
	Remaining int64

	// Delay is how long after this answer the call may go; 0 means now. Only a
	// [Reservation] has one. In a refused one it is how far away the slot was.
	Delay time.Duration

	// RetryAfter is how long to wait before the same call can be admitted, rounded
	// up to the next µs; 0 if Allowed. A reservation can be admitted once its slot
	// is no further away than the call accepts, or a full queue has a place. For a
	// concurrency limit RetryAfter is the time until a permit lapses that is not
	// renewed; a permit may come back at any time before that.
	RetryAfter time.Duration

	// ResetAfter is how long it takes until the limit is full again if nothing more
	// is taken; 0 if it is full.
	ResetAfter time.Duration

	// At is the moment of the slot by the clock of Redis: the moment of the answer
	// plus Delay. It is zero if the call was refused.
	At time.Time

	// Local reports whether this process knew the answer, so that Redis was not asked.
	Local bool

	// Paused is the reason of the pause that held the call back or delayed its slot.
	// It is empty without a pause, and for a pause without a reason. See
	// [Limiter.Pause].
	Paused string
}

// CostError reports a cost that a limit can never admit. It is a mistake of the
// caller rather than a refusal: waiting does not help.
type CostError struct {
	Limit string // the name of the limit
	Cost  int64  // permits asked for
	Max   int64  // the largest cost that the limit admits
}

// Error names the limit and both costs.
func (e *CostError) Error() string {
	return fmt.Sprintf("throttle: cost %d is more than limit %q ever admits at once (%d)", e.Cost, e.Limit, e.Max)
}

// RefusedError reports that [Limiter.Wait] could not end in time: the slot lies after
// the deadline of its context or more than a year away, or the queue is full. Its
// Decision is the refusal. Nothing was taken.
type RefusedError struct{ Decision }

// Error names the limit, how far away the slot is, and the reason of a pause.
func (e *RefusedError) Error() string {
	why := ""
	if e.Paused != "" {
		why = " (paused: " + clip(e.Paused) + ")"
	}
	return fmt.Sprintf("throttle: limit %q admits the call in %v%s, which is too late", e.Limit, e.Delay, why)
}
