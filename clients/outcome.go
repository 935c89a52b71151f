package clients

import (
	"cmp"
	"errors"
	"time"
)

// ThrottledError reports that the provider refused a call for its rate.
type ThrottledError struct {
	After   time.Duration // 0: the provider did not say
	Account bool          // the rate of the whole account, not only of the tenant
	Err     error         // never nil

	endpoint bool // of the receiver that was called alone
}

// Throttled is the outcome of a call that the provider refused because there
// were too many: nothing is wrong with it, and it may go again after a pause. 0
// or less means that the provider did not say how long. The error is never nil,
// also when err is.
func Throttled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Err: reason(err, "throttled")}
}

// AccountThrottled is [Throttled] for a limit that all tenants share: the whole
// queue pauses.
func AccountThrottled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Account: true, Err: reason(err, "throttled")}
}

// EndpointThrottled is [Throttled] by a receiver that the tenant chose: it says
// nothing about other receivers, nor about other tenants' calls.
func EndpointThrottled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Err: reason(err, "throttled"), endpoint: true}
}

func (e *ThrottledError) Error() string { return e.Err.Error() }
func (e *ThrottledError) Unwrap() error { return e.Err }

// RetryAfter is how long to send less; 0 when the provider did not say.
func (e *ThrottledError) RetryAfter() time.Duration { return e.After }

// WholeAccount reports whether all tenants are to send less.
func (e *ThrottledError) WholeAccount() bool { return e.Account }

// Holds is who waits when it is an endpoint, and for how long; see [HeldError.Holds].
func (e *ThrottledError) Holds() (who string, length time.Duration, named bool) {
	if !e.endpoint {
		return "", 0, false
	}
	return OfEndpoint, e.After, e.After > 0
}

// Who waits when a failure is not about one job alone.
const (
	OfTenant   = "tenant"   // the tenant's own account
	OfAccount  = "account"  // the account that all tenants share
	OfEndpoint = "endpoint" // the receiver that the tenant's job called
)

// ExhaustedError reports that an account can do nothing for now.
type ExhaustedError struct {
	After   time.Duration // 0: nobody knows
	Account bool          // the account of all tenants, not the tenant's own
	Err     error         // never nil
}

// exhaustedPause is the first pause of an account of which nobody knows when it can do
// something again.
const exhaustedPause = 5 * time.Minute

// Exhausted is the outcome of a call that the provider refused because the tenant's
// account is used up or suspended: a quota, a budget, a bill. All calls of the account
// wait, and one tries after that time; 0 means that the provider did not name it, and
// the pauses grow. No attempt is spent. The error is never nil, also when err is.
func Exhausted(after time.Duration, err error) error {
	return &ExhaustedError{After: max(after, 0), Err: reason(err, "the account is used up")}
}

// AccountExhausted is [Exhausted] of the account that all tenants share.
func AccountExhausted(after time.Duration, err error) error {
	return &ExhaustedError{After: max(after, 0), Account: true, Err: reason(err, "the account is used up")}
}

func (e *ExhaustedError) Error() string { return e.Err.Error() }
func (e *ExhaustedError) Unwrap() error { return e.Err }

// RetryAfter is when the account is tried again.
func (e *ExhaustedError) RetryAfter() time.Duration { return cmp.Or(e.After, exhaustedPause) }

// Holds is who waits, and for how long; see [HeldError.Holds].
func (e *ExhaustedError) Holds() (who string, length time.Duration, named bool) {
	who = OfTenant
	if e.Account {
		who = OfAccount
	}
	return who, e.RetryAfter(), e.After > 0
}

// HeldError reports a failure because of which others are not to be called either.
type HeldError struct {
	Who    string        // see [OfTenant]
	Length time.Duration // of the first pause; they grow
	Err    error         // never nil; what follows for the job is what it says
}

// Held says of a failure that it was one too many: its account or endpoint is down.
// What follows for the job is what err says.
func Held(who string, length time.Duration, err error) error {
	return &HeldError{who, length, reason(err, "down")}
}

func (e *HeldError) Error() string { return e.Err.Error() }
func (e *HeldError) Unwrap() error { return e.Err }

// Holds is who waits, for how long, and whether the provider named that time. When it
// is over one call tries; where the time was not named, pauses grow with each that fails.
func (e *HeldError) Holds() (who string, length time.Duration, named bool) {
	return e.Who, e.Length, false
}

// How long calls wait after a provider would not have the key that they came with.
// That is the operator's to mend and says nothing about the job, which must not be
// archived for it. While a key is refused, one call in KeyPause asks whether it was
// mended ([AccountThrottled]); a key that may do some things and not others holds
// the one job for AccessPause ([ParkUntil]). Neither spends an attempt, nor has an
// end but the job's deadline.
const (
	KeyPause    = time.Minute
	AccessPause = 5 * time.Minute
)

// ParkedError reports that a call is not wanted before a known moment.
type ParkedError struct {
	Until     time.Time
	KeepFirst bool  // see [RepeatAt]
	Err       error // never nil
}

// ParkUntil is the outcome of a call that the provider will refuse until t, and that
// says nothing about others: a permission, a limit of one model. Prefer [Throttled] when
// the provider asks for a slower pace, and [Exhausted] when it means the whole account.
// The error is never nil, also when err is.
func ParkUntil(t time.Time, err error) error {
	return &ParkedError{Until: t, Err: reason(err, "parked until "+t.UTC().Format(time.RFC3339))}
}

// RepeatAt is [ParkUntil] for a call that failed and is made again at t without
// spending an attempt. It counts for [Call.First], so that the client can tell for how
// long that has gone on, and end it: nothing else does but the job's deadline.
func RepeatAt(t time.Time, err error) error {
	return &ParkedError{Until: t, KeepFirst: true, Err: reason(err, "repeated at "+t.UTC().Format(time.RFC3339))}
}

func (e *ParkedError) Error() string { return e.Err.Error() }
func (e *ParkedError) Unwrap() error { return e.Err }

// ParkUntil is the earliest moment at which the call may succeed.
func (e *ParkedError) ParkUntil() time.Time { return e.Until }

// KeepsFirst reports whether the attempt counts for [Call.First].
func (e *ParkedError) KeepsFirst() bool { return e.KeepFirst }

// PermanentError reports that a call will never succeed.
type PermanentError struct {
	Err error // never nil
}

// Permanent is the outcome of a call that would fail again in the same way. Its
// text is the reason that stands in the archive. The error is never nil, also
// when err is.
func Permanent(err error) error { return &PermanentError{reason(err, "failed for good")} }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent is true.
func (e *PermanentError) Permanent() bool { return true }

// UnknownError reports that a call was sent and its answer never came.
type UnknownError struct {
	Err error // never nil
}

// Unknown is the outcome of a call that was sent completely and that the
// provider may have taken: the connection was lost, or the time was up. Only
// the idempotency key makes it safe to repeat. The error is never nil, also
// when err is.
func Unknown(err error) error { return &UnknownError{reason(err, "no answer")} }

func (e *UnknownError) Error() string { return e.Err.Error() }
func (e *UnknownError) Unwrap() error { return e.Err }

// Unknown is true.
func (e *UnknownError) Unknown() bool { return true }

// RetryableError reports a plain failure.
type RetryableError struct {
	Err error // never nil
}

// Retryable is the outcome of a call that failed and may succeed another time.
// An error without any of these types means the same; this one says that the
// client looked and decided. The error is never nil, also when err is.
func Retryable(err error) error { return &RetryableError{reason(err, "failed")} }

func (e *RetryableError) Error() string { return e.Err.Error() }
func (e *RetryableError) Unwrap() error { return e.Err }

// UnavailableError reports that the provider is at fault, and not the call.
type UnavailableError struct {
	Err error // never nil

	unreachable bool
}

// Unavailable is [Retryable] for a failure that is the provider's: it answered 5xx, or
// the connection failed. Several of them in a row say that it is down. The error is
// never nil, also when err is.
func Unavailable(err error) error {
	return &UnavailableError{Err: Retryable(reason(err, "unavailable"))}
}

// Unreachable is [Unavailable] for a provider to which there was no connection.
func Unreachable(err error) error {
	return &UnavailableError{Err: Retryable(reason(err, "unreachable")), unreachable: true}
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable is true.
func (e *UnavailableError) Unavailable() bool { return true }

// Unreachable tells whether there was no connection.
func (e *UnavailableError) Unreachable() bool { return e.unreachable }

// NotCalledError reports that no call was made.
type NotCalledError struct {
	Err error // never nil
}

// NotCalled says of a failure that nothing was sent: it is no answer of the
// provider's and is not counted as one. What follows for the job is what the error
// says, or what it is wrapped in: Permanent(NotCalled(err)). The error is never
// nil, also when err is.
func NotCalled(err error) error { return &NotCalledError{reason(err, "not called")} }

func (e *NotCalledError) Error() string { return e.Err.Error() }
func (e *NotCalledError) Unwrap() error { return e.Err }

// NotCalled is true.
func (e *NotCalledError) NotCalled() bool { return true }

func reason(err error, otherwise string) error {
	return cmp.Or(err, errors.New(otherwise))
}
