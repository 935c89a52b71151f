package clients

import (
	"fmt"
	"time"
)

// Stripe and Resend forget an idempotency key 24 hours after the request that
// brought it first. KeyLife is for how long after a job's first attempt another one
// is sent to them. The hour between is for clocks that differ by up to ClocksApart,
// and for the call itself, which must not take longer than that.
const (
	KeyLife     = 23 * time.Hour
	ClocksApart = 30 * time.Minute
)

// CheckKey refuses an attempt that could come when a provider which keeps keys for
// 24 hours has forgotten the key of the job's first attempt, for then it would be a
// second call and not a repeat. nil means that the call may be made; otherwise
// nothing was sent, and the error is [Undecided], or [Retryable] when the clocks are
// too far apart to tell. advice tells the person who decides where to look.
func (c Call) CheckKey(now time.Time, provider, advice string) error {
	if c.First.IsZero() {
		if c.Attempt <= 1 {
			return nil
		}
		return Undecided(NotCalled(fmt.Errorf("this is attempt %d and nobody knows when the first was made; not sent. %s", c.Attempt, advice)))
	}
	age := now.Round(0).Sub(c.First.Round(0)) // of the wall clock: First is of another process
	switch {
	case age < -ClocksApart:
		return Retryable(NotCalled(fmt.Errorf("the first attempt is %v ahead of this machine's clock; not sent: set the clocks", (-age).Round(time.Second))))
	case age > KeyLife:
		return Undecided(NotCalled(fmt.Errorf("the first attempt was %v ago and %s forgets idempotency keys after 24h; not sent. %s", age.Round(time.Second), provider, advice)))
	}
	return nil
}

// Undecided is the end of a job of which nobody knows whether the provider acted on
// it, and for which no attempt is left that would be safe: it is [Permanent], so that
// it is not made again, and [Unknown]. Its text begins with "unknown: a person has to
// decide". The error is never nil, also when err is.
func Undecided(err error) error {
	return Permanent(Unknown(fmt.Errorf("unknown: a person has to decide: %w", reason(err, "no attempt is left"))))
}
