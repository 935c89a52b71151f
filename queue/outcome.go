package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// What a handler's error may say of itself; package clients makes such errors.
type (
	throttledError interface {
		error
		RetryAfter() time.Duration
	}
	accountError interface {
		error
		WholeAccount() bool
	}
	postponedError interface {
		error
		ParkUntil() time.Time
	}
	keptFirstError interface {
		error
		KeepsFirst() bool
	}
	permanentError interface {
		error
		Permanent() bool
	}
	unknownError interface {
		error
		Unknown() bool
	}
	// A holding error is about more than its job: the "account", that of the "tenant", or
	// the "endpoint". The length is 0 where nobody knows it, named where the provider
	// told it. Of others, pauses grow.
	holdingError interface {
		error
		Holds() (who string, length time.Duration, named bool)
	}
	unreachableError interface {
		error
		Unreachable() bool
	}
)

// Whom a provider's answer holds back.
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

// hold is a pause that a call brings about. The zero hold is none.
type hold struct {
	who    string
	length time.Duration
	reason string
	// sign is "" for a pause that only passes. Of one whose end a single job tries it is
	// '=' where the provider named its length, '+' where pauses grow, and '!' where they
	// do because the endpoint could not be reached.
	sign string
}

// holdOf reads what an error says about others than its job.
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
	unreachable, ok := errors.AsType[unreachableError](err)
	switch {
	case named && h.length > 0:
		h.sign = "="
	case ok && unreachable.Unreachable() && h.who == ofEndpoint:
		h.sign = "!"
	}
	if h.length <= 0 {
		h.length = throttledPause
	}
	h.length = min(h.length, maxHold)
	return h
}

const (
	throttledPause = time.Second         // when the provider does not say how long
	maxPause       = 24 * time.Hour      // whatever the provider says
	maxHold        = 32 * 24 * time.Hour // such as of a quota of the month
	firstBackoff   = time.Second
	maxBackoff     = 10 * time.Minute
)

// verdict is what follows from a handler's answer.
type verdict struct {
	outcome lifecycle.Outcome
	hold    hold
	unsure  bool   // the provider may have acted on the call
	first   bool   // the call counts for Running.First though no attempt was spent
	actual  string // what the call cost, by unit
	err     error  // why it did not succeed; a *retryError: it goes back to its lane
	result  []byte // of a call that succeeded

	answer lifecycle.Answer
	called time.Time // when the call left, by Redis's clock
	took   time.Duration
}

// record is the run as settle.lua writes it down; "" for a job that went back to
// its lane without a call.
func (v verdict) record(job *Running) string {
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
	return fmt.Sprintf("%s %s %d %d %d %d %d %s", v.outcome, v.answer, attempt, called, took.Microseconds(), again.Microseconds(), kept, reason)
}

// judge decides what follows from a handler's error.
func judge(err error, job *Running, repeatUnknown bool, now time.Time) verdict {
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
		whole, ok := errors.AsType[accountError](err)
		return verdict{
			outcome: lifecycle.Throttled, hold: hold{who: whoOf(ok && whole.WholeAccount()), length: min(pause, maxPause), reason: err.Error()},
			err: &retryError{err: err},
		}
	}
	if postponed, ok := errors.AsType[postponedError](err); ok {
		wait := min(max(postponed.ParkUntil().Sub(now), 0), check.MaxAhead)
		kept, ok := errors.AsType[keptFirstError](err)
		return verdict{outcome: lifecycle.Postponed, first: ok && kept.KeepsFirst(), err: &retryError{err: err, after: wait}}
	}
	// Whoever looks for what a person has to decide looks for this outcome: so has
	// a job that is unknown and cannot be asked again, for whatever reason.
	end := lifecycle.Archived
	said, ok := errors.AsType[unknownError](err)
	unknown := ok && said.Unknown()
	if unknown {
		end = lifecycle.Unknown
	}
	if permanent, final := errors.AsType[permanentError](err); final && permanent.Permanent() || errors.Is(err, asynq.SkipRetry) {
		return archive(end, err)
	}
	if unknown && !repeatUnknown {
		return archive(end, fmt.Errorf("outcome unknown: %w", err))
	}
	if job.Attempt >= job.MaxAttempts {
		err = fmt.Errorf("attempt %d of %d: %w", job.Attempt, job.MaxAttempts, err)
		if job.unsure && !unknown {
			end, err = lifecycle.Unknown, fmt.Errorf("%w; %w", err, errUnsure)
		}
		return archive(end, err)
	}
	return verdict{outcome: lifecycle.Retried, unsure: unknown, err: &retryError{err: err, failed: true, after: backoff(job.Attempt)}}
}

// expire ends a job whose deadline has passed.
func expire(job *Running) verdict {
	if job.unsure {
		return archive(lifecycle.Unknown, fmt.Errorf("%w; %w", errExpired, errUnsure))
	}
	return archive(lifecycle.Expired, errExpired)
}

func archive(outcome lifecycle.Outcome, err error) verdict {
	return verdict{outcome: outcome, err: &endError{err}}
}

// backoff is the wait after a failed attempt: doubling from a second to ten
// minutes, of which up to half is left to chance, so that jobs that failed
// together do not come back together.
func backoff(attempt int) time.Duration {
	wait := maxBackoff
	if attempt < 20 {
		wait = min(firstBackoff<<(attempt-1), maxBackoff)
	}
	return wait/2 + rand.N(wait/2+1)
}

// retryError sends a job back to its lane, at once or by way of the retry set.
type retryError struct {
	err    error
	failed bool          // it counts as a failed attempt
	after  time.Duration // from now; 0: back to the lane at once
}

func (e *retryError) Error() string { return check.BoundReason(e.err.Error()) }
func (e *retryError) Unwrap() error { return e.err }

var (
	errParked  = errors.New("waits in its lane for a slot")
	errExpired = errors.New("expired: its deadline passed before it could go")
	errUnsure  = errors.New("what came of an earlier call is not known")
	errCrashed = errors.New("crashed: its workers died while they called it")
)

// canceled tells a call that was cut off by the worker's end from one that failed.
func canceled(ctx context.Context, err error) bool {
	return err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil
}

// notCalledError is what a handler answers that made no call.
type notCalledError interface {
	error
	NotCalled() bool
}

// answerOf reads a handler's error in the order of [judge].
func answerOf(err error) lifecycle.Answer {
	if err == nil {
		return lifecycle.AnswerOK
	}
	if none, ok := errors.AsType[notCalledError](err); ok && none.NotCalled() {
		return ""
	}
	if _, ok := errors.AsType[throttledError](err); ok {
		return lifecycle.AnswerThrottled
	}
	if _, ok := errors.AsType[postponedError](err); ok {
		return lifecycle.AnswerParked
	}
	if unknown, ok := errors.AsType[unknownError](err); ok && unknown.Unknown() {
		return lifecycle.AnswerUnknown
	}
	if permanent, ok := errors.AsType[permanentError](err); ok && permanent.Permanent() || errors.Is(err, asynq.SkipRetry) {
		return lifecycle.AnswerPermanent
	}
	return lifecycle.AnswerRetryable
}
