package queue

import (
	"errors"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/lifecycle"
)

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
