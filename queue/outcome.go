package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Methods that a handler's error may have. Package clients returns such errors.
type (
	throttledError interface {
		error
		RetryAfter() time.Duration
	}
	postponedError interface {
		error
		PostponeUntil() time.Time
	}
	// A holdingError holds back more than its own job: all jobs of the "account", of the
	// "tenant"'s own account, or of the "endpoint". length is 0 if it is not known. named
	// reports that the provider named the length; otherwise each hold in a row is longer.
	holdingError interface {
		error
		Holds() (who string, length time.Duration, named bool)
	}

	accountError     interface{ WholeAccount() bool }
	keptFirstError   interface{ KeepsFirst() bool }
	permanentError   interface{ Permanent() bool }
	unknownError     interface{ Unknown() bool }
	unreachableError interface{ Unreachable() bool }
	notCalledError   interface{ NotCalled() bool } // no call was made
)

// says reports whether an error has a method, and the method returns true, as in says(err, unknownError.Unknown).
func says[T any](err error, method func(T) bool) bool {
	var found T
	return errors.As(err, &found) && method(found)
}

// The values of hold.who: which jobs a provider's answer holds back.
const (
	ofTenant   = "tenant"
	ofAccount  = "account"
	ofEndpoint = "endpoint"
)

func whoOf(account bool) string {
	if account {
		return ofAccount
	}
	return ofTenant
}

// hold is a pause that a call causes. The zero hold means none.
type hold struct {
	who    string
	length time.Duration
	reason string
	// sign is "" for a pause that simply ends. Other holds end when a single job, the
	// probe, gets an answer: "=" if the provider named the length, "+" if each hold in a
	// row is longer, "!" if it is also because the endpoint could not be reached.
	sign string
}

// holdOf returns the hold that an error asks for.
func holdOf(err error) hold {
	said, ok := errors.AsType[holdingError](err)
	if !ok {
		return hold{}
	}
	h := hold{reason: err.Error()}
	var named bool
	h.who, h.length, named = said.Holds()
	if h.who == "" {
		return hold{}
	}
	h.sign = "+"
	switch {
	case named && h.length > 0:
		h.sign = "="
	case says(err, unreachableError.Unreachable) && h.who == ofEndpoint:
		h.sign = "!"
	}
	if h.length <= 0 {
		h.length = throttledPause
	}
	h.length = min(h.length, maxHold)
	return h
}

const (
	throttledPause = time.Second         // if the provider names no length
	maxPause       = 24 * time.Hour      // of a pause without a probe
	maxHold        = 32 * 24 * time.Hour // of a hold, such as for a monthly quota
)

// toldError is an error of a handler with the secrets in its text hidden: logs, Redis and pages get it.
type toldError struct {
	error
	text string
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.error }

// told hides the secrets in the text of an error, such as a payload that a provider repeats.
func told(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	hidden := redact.Text(text)
	if hidden == text {
		return err
	}
	return &toldError{err, hidden}
}

// verdict is what happens to a job after its run.
type verdict struct {
	outcome lifecycle.Outcome
	hold    hold
	unsure  bool   // the provider may have acted on the call
	first   bool   // the call counts for Running.First although no attempt was spent
	actual  string // actual costs, "unit=n;…"; "": as estimated
	told    string // what the provider said of its limits; "": nothing
	unpaid  string // actual costs with what the payload knows beyond the job's; "": nothing
	err     error  // why the job is not done; a *retryError sends it back to its lane
	result  []byte // of a call that succeeded

	answer lifecycle.Answer
	called time.Time // when the call left, by Redis's clock
	took   time.Duration
}

// record encodes the run for the history that settle.lua writes. It is "" for a job that
// goes back to its lane without a call.
// taken and attributes are for conformance: see [Running.taken] and [Running.attributesIn].
func (v verdict) record(job *Running, taken, attributes string) string {
	if v.outcome == lifecycle.Parked && v.answer == "" {
		return ""
	}
	attempt, called, took := job.Attempt, v.called.UnixMicro(), v.took
	if v.answer == "" {
		attempt, called, took = attempt-1, 0, 0
	}
	kept, reason, again := 0, "", time.Duration(0)
	if job.kept {
		kept = 1
	}
	if v.err != nil {
		reason = check.Printable(v.err.Error(), store.MaxEventReason)
	}
	if retry, ok := errors.AsType[*retryError](v.err); ok {
		again = retry.after
	}
	return fmt.Sprintf("%s %s %d %d %d %d %d %s %s %s", v.outcome, v.answer, attempt, called, took.Microseconds(), again.Microseconds(), kept, taken, attributes, reason)
}

// final reports whether an error says that no further call can succeed.
func final(err error) bool {
	return says(err, permanentError.Permanent) || errors.Is(err, asynq.SkipRetry)
}

// judge returns the verdict on the error of a handler h.
func judge(err error, job *Running, h *handler, now time.Time) verdict {
	if err == nil {
		return verdict{outcome: lifecycle.Done}
	}
	if throttled, ok := errors.AsType[throttledError](err); ok {
		if h := holdOf(err); h.who != "" {
			return verdict{outcome: lifecycle.Throttled, hold: h, err: &retryError{err: err}}
		}
		pause := throttled.RetryAfter()
		if pause <= 0 {
			pause = throttledPause
		}
		return verdict{
			outcome: lifecycle.Throttled, hold: hold{who: whoOf(says(err, accountError.WholeAccount)), length: min(pause, maxPause), reason: err.Error()},
			err: &retryError{err: err},
		}
	}
	if postponed, ok := errors.AsType[postponedError](err); ok {
		wait := min(max(postponed.PostponeUntil().Sub(now), 0), check.MaxAhead)
		return verdict{outcome: lifecycle.Postponed, first: says(err, keptFirstError.KeepsFirst), err: &retryError{err: err, after: wait}}
	}
	// Unknown is the outcome that a person has to look at. A job whose last call has an
	// unknown outcome gets it, for whatever reason it is not called again.
	end := lifecycle.Archived
	unknown := says(err, unknownError.Unknown)
	if unknown {
		end = lifecycle.Unknown
	}
	if final(err) {
		if job.Unsure && !unknown && answerOf(err) == "" { // else the provider, which knows the key, has answered
			return archive(lifecycle.Unknown, fmt.Errorf("%w; %w", err, errUnsure))
		}
		return archive(end, err)
	}
	if unknown && !h.repeatUnknown {
		return archive(end, fmt.Errorf("outcome unknown: %w", err))
	}
	if job.Attempt >= job.MaxAttempts {
		err = fmt.Errorf("attempt %d of %d: %w", job.Attempt, job.MaxAttempts, err)
		if job.Unsure && !unknown {
			end, err = lifecycle.Unknown, fmt.Errorf("%w; %w", err, errUnsure)
		}
		return archive(end, err)
	}
	return verdict{outcome: lifecycle.Retried, unsure: unknown, err: &retryError{err: err, failed: true, after: h.after(job.Attempt)}}
}

// expire ends a job whose deadline has passed.
func expire(job *Running) verdict {
	if job.Unsure {
		return archive(lifecycle.Unknown, fmt.Errorf("%w; %w", errExpired, errUnsure))
	}
	return archive(lifecycle.Expired, errExpired)
}

func archive(outcome lifecycle.Outcome, err error) verdict {
	return verdict{outcome: outcome, err: &endError{err}}
}

// retryError sends a job back to its lane, at once or through the retry set.
type retryError struct {
	err    error
	failed bool          // counts as a failed attempt
	after  time.Duration // wait before it goes back; 0: none
}

func (e *retryError) Error() string { return check.BoundReason(e.err.Error()) }
func (e *retryError) Unwrap() error { return e.err }

var (
	errParked  = errors.New("waits in its lane for a slot")
	errExpired = errors.New("expired: its deadline passed before it could go")
	errUnsure  = errors.New("the outcome of an earlier call is not known")
	errCrashed = errors.New("crashed: its workers died during its calls")
)

// canceled reports whether a call was cut off: its ctx was canceled, and its error is a cancellation, or an unknown outcome
// of a call that may be repeated. Such a call has not failed, so it does not use up an attempt.
func canceled(ctx context.Context, err error, repeatUnknown bool) bool {
	return errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || repeatUnknown && says(err, unknownError.Unknown))
}

// cut is the verdict on a call that was cut off.
func cut(err error) verdict {
	return verdict{outcome: lifecycle.Parked, unsure: true, err: &retryError{err: fmt.Errorf("cut off: %w", err)}}
}

// cutOff reports whether v is that of cut. No job is parked after its call for another reason.
func (v verdict) cutOff() bool { return v.outcome == lifecycle.Parked && v.unsure }

// answerOf returns the answer that a handler's error stands for; "" if no call was made. It
// tests the methods in the order of judge.
func answerOf(err error) lifecycle.Answer {
	if err == nil {
		return lifecycle.AnswerOK
	}
	if says(err, notCalledError.NotCalled) {
		return ""
	}
	if _, ok := errors.AsType[throttledError](err); ok {
		return lifecycle.AnswerThrottled
	}
	if _, ok := errors.AsType[postponedError](err); ok {
		return lifecycle.AnswerPostponed
	}
	if says(err, unknownError.Unknown) {
		return lifecycle.AnswerUnknown
	}
	if final(err) {
		return lifecycle.AnswerPermanent
	}
	return lifecycle.AnswerRetryable
}
