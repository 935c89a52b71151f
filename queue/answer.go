package queue

import (
	"errors"
	"strconv"

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

// readAnswers are the calls of all workers by what was answered, from the fields of
// headgate:{queue}:totals, and all of them together.
func readAnswers(totals map[string]string) (answers map[lifecycle.Answer]int64, calls int64) {
	answers = map[lifecycle.Answer]int64{}
	for _, a := range lifecycle.Answers() {
		if n, err := strconv.ParseInt(totals["answer:"+string(a)], 10, 64); err == nil && n > 0 {
			answers[a] = n
			calls += n
		}
	}
	return answers, calls
}
