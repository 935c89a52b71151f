package clients

import (
	"cmp"
	"errors"
	"time"
)

// ThrottledError reports that the provider refused a call because of a rate limit.
type ThrottledError struct {
	After   time.Duration // 0: the provider did not say
	Account bool          // the rate of the whole account, not only of the tenant
	Err     error         // never nil

	endpoint bool // only of the receiver that was called
}

// Throttled returns the outcome of a call that the provider refused because there were too
// many. The call itself is valid and may be made again after a pause. 0 or less means that the
// provider did not say how long. The error is never nil, even if err is.
func Throttled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Err: reason(err, "throttled")}
}

// AccountThrottled is [Throttled] for a limit that all tenants share: the whole queue pauses.
func AccountThrottled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Account: true, Err: reason(err, "throttled")}
}

// EndpointThrottled is [Throttled] by a receiver that the tenant chose. It does not affect
// other receivers or other tenants' calls.
func EndpointThrottled(after time.Duration, err error) error {
	return &ThrottledError{After: max(after, 0), Err: reason(err, "throttled"), endpoint: true}
}

func (e *ThrottledError) Error() string { return e.Err.Error() }
func (e *ThrottledError) Unwrap() error { return e.Err }

// RetryAfter returns how long to send less; 0 if the provider did not say.
func (e *ThrottledError) RetryAfter() time.Duration { return e.After }

// WholeAccount reports whether all tenants must send less.
func (e *ThrottledError) WholeAccount() bool { return e.Account }

// Holds returns who waits and for how long, if it is an endpoint; see [HeldError.Holds].
func (e *ThrottledError) Holds() (who string, length time.Duration, named bool) {
	if !e.endpoint {
		return "", 0, false
	}
	return OfEndpoint, e.After, e.After > 0
}

// Who waits because of a failure that affects more than one job.
const (
	OfTenant   = "tenant"   // the tenant's own account
	OfAccount  = "account"  // the account that all tenants share
	OfEndpoint = "endpoint" // the receiver that the tenant's job called
)

// ExhaustedError reports that an account cannot be used: it is used up or suspended, or its key
// was refused.
type ExhaustedError struct {
	After   time.Duration // 0: unknown
	Account bool          // the account of all tenants, not the tenant's own
	Err     error         // never nil
}

// exhaustedPause is the first pause of an account if it is unknown when it works again.
const exhaustedPause = 5 * time.Minute

// Exhausted returns the outcome of a call that the provider refused because the tenant's
// account is used up or suspended: a quota, a budget or a bill. All calls of the account wait
// for that time, after which one tries; 0 means that the provider did not say, and the pauses
// grow. No attempt is spent. The error is never nil, even if err is.
func Exhausted(after time.Duration, err error) error {
	return &ExhaustedError{After: max(after, 0), Err: reason(err, "the account is used up")}
}

// AccountExhausted is [Exhausted] for the account that all tenants share.
func AccountExhausted(after time.Duration, err error) error {
	return &ExhaustedError{After: max(after, 0), Account: true, Err: reason(err, "the account is used up")}
}

func (e *ExhaustedError) Error() string { return e.Err.Error() }
func (e *ExhaustedError) Unwrap() error { return e.Err }

// RetryAfter returns how long to wait until the account is tried again.
func (e *ExhaustedError) RetryAfter() time.Duration { return cmp.Or(e.After, exhaustedPause) }

// Holds returns who waits and for how long; see [HeldError.Holds].
func (e *ExhaustedError) Holds() (who string, length time.Duration, named bool) {
	who = OfTenant
	if e.Account {
		who = OfAccount
	}
	return who, e.RetryAfter(), e.After > 0
}

// HeldError reports a failure because of which other calls must wait too.
type HeldError struct {
	Who    string        // see [OfTenant]
	Length time.Duration // of the first pause; they grow
	Err    error         // never nil; decides what happens to the job
}

// Held marks a failure as one too many: its account or endpoint is down. err decides what
// happens to the job.
func Held(who string, length time.Duration, err error) error {
	return &HeldError{who, length, reason(err, "down")}
}

func (e *HeldError) Error() string { return e.Err.Error() }
func (e *HeldError) Unwrap() error { return e.Err }

// Holds returns who waits, for how long, and whether the provider named that time. After it, one
// call tries; if the time was not named, the pauses grow with each try that fails.
func (e *HeldError) Holds() (who string, length time.Duration, named bool) {
	return e.Who, e.Length, false
}

// How long calls wait after a provider refused their key. The operator must fix that, so the
// job must not be archived for it. While a key is invalid, one call per KeyPause tries it again
// ([KeyRefused]). A key without permission for one call holds only that job, for
// AccessPause ([PostponeUntil]). Neither spends an attempt, and both end only with the job's deadline.
const (
	KeyPause    = time.Minute
	AccessPause = 5 * time.Minute
)

// KeyRefused returns the outcome of a call for which the provider did not take the key of the
// account that all tenants share. All calls of the account wait for [KeyPause], or for after if that
// is longer, and then one tries. No attempt is spent. The error is never nil, even if err is.
func KeyRefused(after time.Duration, err error) error {
	return AccountExhausted(max(after, KeyPause), reason(err, "the key was refused"))
}

// PostponedError reports that a call must wait until a known time.
type PostponedError struct {
	Until     time.Time
	KeepFirst bool  // see [RepeatAt]
	Err       error // never nil
}

// PostponeUntil returns the outcome of a call that the provider will refuse until t, for a reason
// that does not affect other calls: a permission, a limit of one model. Use [Throttled] if the
// provider asks for a slower pace, and [Exhausted] if it means the whole account. The error is
// never nil, even if err is.
func PostponeUntil(t time.Time, err error) error {
	return &PostponedError{Until: t, Err: reason(err, "postponed until "+t.UTC().Format(time.RFC3339))}
}

// RepeatAt is [PostponeUntil] for a call that failed and is repeated at t without spending an
// attempt. The attempt counts for [Call.First], so that the client knows how long this has gone
// on and can end it; otherwise only the job's deadline does.
func RepeatAt(t time.Time, err error) error {
	return &PostponedError{Until: t, KeepFirst: true, Err: reason(err, "repeated at "+t.UTC().Format(time.RFC3339))}
}

func (e *PostponedError) Error() string { return e.Err.Error() }
func (e *PostponedError) Unwrap() error { return e.Err }

// PostponeUntil returns the earliest time at which the call may succeed.
func (e *PostponedError) PostponeUntil() time.Time { return e.Until }

// KeepsFirst reports whether the attempt counts for [Call.First].
func (e *PostponedError) KeepsFirst() bool { return e.KeepFirst }

// PermanentError reports that a call will never succeed.
type PermanentError struct {
	Err error // never nil
}

// Permanent returns the outcome of a call that would fail again in the same way. Its text is
// the reason with which the job is archived. The error is never nil, even if err is.
func Permanent(err error) error { return &PermanentError{reason(err, "failed for good")} }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent returns true.
func (e *PermanentError) Permanent() bool { return true }

// UnknownError reports that a call was sent, but no answer came.
type UnknownError struct {
	Err error // never nil
}

// Unknown returns the outcome of a call that was sent completely and that the provider may have
// accepted: the connection was lost, or the call timed out. Only an idempotency key makes a
// repeat safe. The error is never nil, even if err is.
func Unknown(err error) error { return &UnknownError{reason(err, "no answer")} }

func (e *UnknownError) Error() string { return e.Err.Error() }
func (e *UnknownError) Unwrap() error { return e.Err }

// Unknown returns true.
func (e *UnknownError) Unknown() bool { return true }

// RetryableError reports a failure that may not occur again.
type RetryableError struct {
	Err error // never nil
}

// Retryable returns the outcome of a call that failed and may succeed another time. An error
// with none of these types means the same; this one says that the client decided so. The error
// is never nil, even if err is.
func Retryable(err error) error { return &RetryableError{reason(err, "failed")} }

func (e *RetryableError) Error() string { return e.Err.Error() }
func (e *RetryableError) Unwrap() error { return e.Err }

// UnavailableError reports that the provider failed, not the call.
type UnavailableError struct {
	Err error // never nil

	unreachable bool
}

// Unavailable is [Retryable] for a failure of the provider: it answered 5xx, or the connection
// failed. Several in a row mean that it is down. The error is never nil, even if err is.
func Unavailable(err error) error {
	return &UnavailableError{Err: Retryable(reason(err, "unavailable"))}
}

// Unreachable is [Unavailable] for a provider to which there was no connection.
func Unreachable(err error) error {
	return &UnavailableError{Err: Retryable(reason(err, "unreachable")), unreachable: true}
}

func (e *UnavailableError) Error() string { return e.Err.Error() }
func (e *UnavailableError) Unwrap() error { return e.Err }

// Unavailable returns true.
func (e *UnavailableError) Unavailable() bool { return true }

// Unreachable reports whether there was no connection.
func (e *UnavailableError) Unreachable() bool { return e.unreachable }

// NotCalledError reports that no call was made.
type NotCalledError struct {
	Err error // never nil
}

// NotCalled marks a failure before anything was sent: it is not counted as an answer of the
// provider. What happens to the job depends on err and on what the result is wrapped in, as in
// Permanent(NotCalled(err)). The error is never nil, even if err is.
func NotCalled(err error) error { return &NotCalledError{reason(err, "not called")} }

func (e *NotCalledError) Error() string { return e.Err.Error() }
func (e *NotCalledError) Unwrap() error { return e.Err }

// NotCalled returns true.
func (e *NotCalledError) NotCalled() bool { return true }

func reason(err error, otherwise string) error {
	return cmp.Or(err, errors.New(otherwise))
}
