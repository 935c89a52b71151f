package queue

import "time"

// Observer is told what a worker does, for metrics. Its methods are called
// often and by many goroutines: they must be quick. Embed [NoObserver] to stay
// one when methods are added.
type Observer interface {
	// Finished is called once for every run of a job.
	Finished(queue, kind string, outcome Outcome)

	// Gated is called when a job's slot was decided on: "sent" on time, "missed"
	// (it came too late to its slot), "parked" (its next slot was far).
	Gated(queue, decision string)

	// Dispatched is called after every round of dispatch.
	Dispatched(queue string, round Round)
}

// Round is one round of dispatch.
type Round struct {
	Took     time.Duration
	Released int   // jobs handed to workers
	Waiting  int64 // jobs in all lanes afterwards
	Enqueued int64 // jobs ever accepted by the queue
}

// NoObserver does nothing.
type NoObserver struct{}

// Finished does nothing.
func (NoObserver) Finished(string, string, Outcome) {}

// Gated does nothing.
func (NoObserver) Gated(string, string) {}

// Dispatched does nothing.
func (NoObserver) Dispatched(string, Round) {}

// Attribute keys of log lines.
const (
	logQueue   = "queue"
	logJob     = "job"
	logTenant  = "tenant"
	logKind    = "kind"
	logError   = "error"
	logMessage = "message"
	logAttempt = "attempt"
	logOutcome = "outcome"
	logTook    = "took"
)
