package clients

import (
	"fmt"
	"time"
)

// Stripe and Resend forget an idempotency key 24 hours after the first request with it.
// KeyLife is how long after a job's first attempt another one may be sent to them. The hour in
// between allows for clocks that differ by up to ClocksApart, and for the duration of the call,
// which must not exceed that.
const (
	KeyLife     = 23 * time.Hour
	ClocksApart = 30 * time.Minute
)

// CheckKey returns nil if the call may be made to a provider that keeps idempotency keys for 24
// hours. It refuses an attempt that could arrive after the provider has forgotten the key of the
// job's first attempt: that would be a second call, not a repeat. The error is [Undecided], or
// [Retryable] if the clocks are too far apart to decide. advice tells the person who decides
// where to look.
func (c Call) CheckKey(now time.Time, provider, advice string) error {
	if c.First.IsZero() {
		if c.Attempt <= 1 {
			return nil
		}
		return Undecided(NotCalled(fmt.Errorf("attempt %d was not sent: the time of the first attempt is unknown. %s", c.Attempt, advice)))
	}
	age := now.Round(0).Sub(c.First.Round(0)) // by the wall clock, because First is from another process
	switch {
	case age < -ClocksApart:
		return Retryable(NotCalled(fmt.Errorf("not sent: the first attempt is %v ahead of this machine's clock; synchronize the clocks", (-age).Round(time.Second))))
	case age > KeyLife:
		return Undecided(NotCalled(fmt.Errorf("not sent: the first attempt was %v ago, and %s forgets idempotency keys after 24h. %s", age.Round(time.Second), provider, advice)))
	}
	return nil
}

// OtherParameters returns the outcome of a call whose idempotency key the provider knows from a
// request with other parameters. err says so, and advice tells the person who decides where to look.
// It is [Permanent] if this is the job's first call, because the request was then another job's. A
// later one is [Undecided], because the request may have been an earlier call of the job: another
// version of the worker may send other parameters.
func (c Call) OtherParameters(err error, advice string) error {
	if c.Attempt <= 1 && !c.Unsure {
		// In capitals: two jobs share a key.
		return Permanent(fmt.Errorf("%w; THE IDEMPOTENCY KEY BELONGS TO ANOTHER CALL, nothing was done for this one. %s", err, advice))
	}
	return Undecided(fmt.Errorf("%w; the idempotency key was used with other parameters, perhaps by an earlier attempt of this job, which may have taken effect. %s", err, advice))
}

// Undecided returns the outcome of a job on which the provider may have acted, if no further
// attempt is safe. It is [Permanent], so that the call is not repeated, and [Unknown]. Its text
// begins with "unknown: a person has to decide". The error is never nil, even if err is.
func Undecided(err error) error {
	return Permanent(Unknown(fmt.Errorf("unknown: a person has to decide: %w", reason(err, "no attempt is left"))))
}
