package queue

// State is where a job stands, in words for operators.
type State string

// The states of a job.
const (
	StateWaiting   State = "waiting"   // in its lane
	StateScheduled State = "scheduled" // for later
	StateRetry     State = "retry"     // failed, and to be tried again
	StatePending   State = "pending"   // released, not yet in a worker's hands
	StateActive    State = "active"    // in a worker's hands
	StateArchived  State = "archived"  // ended without success, with the reason
)

// stateOf is asynq's word in ours.
func stateOf(asynqState string) State {
	if asynqState == "aggregating" {
		return StateWaiting
	}
	return State(asynqState)
}
