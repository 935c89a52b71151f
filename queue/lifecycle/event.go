package lifecycle

import "time"

// Event is one moment in the life of a job. Those of a job that waits for its
// first call are not kept, nor those of one that is forgotten.
type Event struct {
	At      time.Time // by Redis's clock
	What    string    // one of the Job... constants
	Attempt int       // 0: of no attempt
	Limit   string    // JobReleased: what held it until then; JobParked: what holds it; "": none did
	Until   time.Time // JobPaused, JobParked, JobRetry: when it may go on; zero: not known
	Answer  Answer    // JobAnswered
	Detail  string    // in words, at most 200 bytes
}

// What happens to a job.
const (
	EventEnqueued  = "enqueued"  // it came into its lane
	EventReleased  = "released"  // dispatch gave it a slot
	EventCalled    = "called"    // its call left
	EventAnswered  = "answered"  // Answer, and what was said in Detail
	EventPaused    = "paused"    // the provider wants fewer calls: of this "tenant" or of the whole "account", as Detail says
	EventParked    = "parked"    // back to its lane without an attempt spent
	EventRetry     = "retry"     // it failed and is tried again
	EventRecovered = "recovered" // its worker was gone
	EventOperator  = "operator"  // an operator did what Detail says: "run" or "retry"
	EventEnded     = "ended"     // Detail begins with the [lifecycle.Outcome]
	EventDropped   = "dropped"   // what came between this and the event before is not kept
)
