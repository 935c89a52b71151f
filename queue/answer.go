package queue

import (
	"errors"
	"strconv"

	"github.com/hibiken/asynq"
)

// Answer is what a provider's answer to a call meant, or where none came, what
// the call's error says. A job may end otherwise: one whose last attempt failed
// is [Archived], and its answer AnswerRetryable. A call that the end of its worker
// cut off is unknown. A run without a call has no answer, "".
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

// notCalledError is what a handler answers that made no call.
type notCalledError interface {
	error
	NotCalled() bool
}

// answerOf reads a handler's error in the order of [judge].
func answerOf(err error) Answer {
	if err == nil {
		return AnswerOK
	}
	if none, ok := errors.AsType[notCalledError](err); ok && none.NotCalled() {
		return ""
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

// readAnswers are the calls of all workers by what was answered, from the fields of
// headgate:{queue}:totals, and all of them together.
func readAnswers(totals map[string]string) (answers map[Answer]int64, calls int64) {
	answers = map[Answer]int64{}
	for _, a := range Answers() {
		if n, err := strconv.ParseInt(totals["answer:"+string(a)], 10, 64); err == nil && n > 0 {
			answers[a] = n
			calls += n
		}
	}
	return answers, calls
}
