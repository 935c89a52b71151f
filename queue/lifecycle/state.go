// Package lifecycle names what a job goes through: the states that it is in, the answers to
// its calls, and the outcomes of its runs. The queue, its inspector and its operator share
// these words.
package lifecycle

import "strings"

// State is where a job stands.
type State string

// The states of a job.
const (
	StateWaiting   State = "waiting"   // in its lane
	StateScheduled State = "scheduled" // for later
	StateRetry     State = "retry"     // failed, and to be tried again
	StatePending   State = "pending"   // released, not yet in a worker's hands
	StateActive    State = "active"    // in a worker's hands
	StateArchived  State = "archived"  // ended without success, with the reason
	StateCompleted State = "completed" // ended with success, and remembered
	StateEnded     State = "ended"     // and forgotten, though its key is still taken
)

// StateOf is asynq's word in ours; "" is that of a job that has no task any more.
func StateOf(asynqState string) State {
	switch asynqState {
	case "aggregating":
		return StateWaiting
	case "":
		return StateEnded
	}
	return State(asynqState)
}

// Join lists states for people, separated by commas.
func Join(states []State) string {
	words := make([]string, len(states))
	for i, state := range states {
		words[i] = string(state)
	}
	return strings.Join(words, ", ")
}
