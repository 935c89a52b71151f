package lifecycle

// Answer is the class of a provider's answer to a call or, if none came, of the call's
// error. A job may have another outcome: if its last attempt failed, the outcome is
// [Archived] and the answer AnswerRetryable. A call that ended with its worker is
// AnswerUnknown. A run without a call has no answer, "".
type Answer string

// The classes of answers.
const (
	AnswerOK        Answer = "ok"
	AnswerThrottled Answer = "throttled" // not now: the provider wants fewer calls
	AnswerRetryable Answer = "retryable" // it failed, and may succeed later
	AnswerPostponed Answer = "postponed" // not before a time that the provider names
	AnswerPermanent Answer = "permanent" // it will never succeed
	AnswerUnknown   Answer = "unknown"   // sent, but the result is unknown
)

// Answers returns all classes.
func Answers() []Answer {
	return []Answer{AnswerOK, AnswerThrottled, AnswerRetryable, AnswerPostponed, AnswerPermanent, AnswerUnknown}
}
