package lifecycle

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
