package lifecycle

import "time"

// Event is an event in the life of a job. No events are kept of a job that waits for its
// first call, or that is deleted.
type Event struct {
	At      time.Time // by the clock of Redis
	What    string    // one of the Event... constants
	Attempt int       // 0: it belongs to no attempt
	Limit   string    // EventReleased: the limit that held it until then; EventParked: that holds it; "": none
	Until   time.Time // EventPaused, EventParked, EventRetry: when it may continue; zero: not known
	Answer  Answer    // EventAnswered
	Detail  string    // text of at most 200 bytes
}

// The values of What.
const (
	EventEnqueued  = "enqueued"  // it came into its lane
	EventReleased  = "released"  // the dispatcher gave it a slot
	EventCalled    = "called"    // its call left
	EventAnswered  = "answered"  // see Answer; Detail has the provider's words
	EventPaused    = "paused"    // the provider wants fewer calls; Detail is "tenant", "account" or "endpoint"
	EventParked    = "parked"    // it went back to its lane without using up an attempt
	EventRetry     = "retry"     // it failed and will be retried
	EventRecovered = "recovered" // its worker was gone
	EventOperator  = "operator"  // an operator changed it; Detail is "run" or "retry"
	EventEnded     = "ended"     // Detail begins with the [Outcome]
	EventDropped   = "dropped"   // the events between this and the one before are not kept
)
