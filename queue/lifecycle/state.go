// Package lifecycle names what a job goes through: the states that it is in, the answers to
// its calls, and the outcomes of its runs. The queue, its inspector and its operator share
// these words.
package lifecycle

import "strings"

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

// StateOf is asynq's word in ours.
func StateOf(asynqState string) State {
	if asynqState == "aggregating" {
		return StateWaiting
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
