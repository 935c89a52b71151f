package queue

import (
	"errors"

	"github.com/hibiken/asynq"
)

// Answer is what a provider's answer to a call meant, or where none came, what
// the call's error says. A job may end otherwise: one whose last attempt failed
// is [Archived], and its answer AnswerRetryable.
type Answer string

// The classes of answers.
const (
	AnswerOK        Answer = "ok"
	AnswerThrottled Answer = "throttled" // not now: fewer calls are wanted
	AnswerRetryable Answer = "retryable" // it failed, and may succeed another time
	AnswerParked    Answer = "parked"    // not before a time that it names
	AnswerPermanent Answer = "permanent" // never
	AnswerUnknown   Answer = "unknown"   // sent, and nobody knows what came of it
)

// Answers lists the classes.
func Answers() []Answer {
	return []Answer{AnswerOK, AnswerThrottled, AnswerRetryable, AnswerParked, AnswerPermanent, AnswerUnknown}
}

// answerOf reads a handler's error in the order of [judge].
func answerOf(err error) Answer {
	if err == nil {
		return AnswerOK
	}
	if _, ok := errors.AsType[throttledError](err); ok {
		return AnswerThrottled
	}
	if _, ok := errors.AsType[postponedError](err); ok {
		return AnswerParked
	}
	if unknown, ok := errors.AsType[unknownError](err); ok && unknown.Unknown() {
		return AnswerUnknown
	}
	if permanent, ok := errors.AsType[permanentError](err); ok && permanent.Permanent() || errors.Is(err, asynq.SkipRetry) {
		return AnswerPermanent
	}
	return AnswerRetryable
}
