// Package lifecycle defines the states of a job, the answers to its calls, and the
// outcomes of its runs. The packages queue, inspect and operate share them.
package lifecycle

import "strings"

// State is the state of a job.
type State string

// The states of a job.
const (
	StateWaiting   State = "waiting"   // in its lane
	StateScheduled State = "scheduled" // to be sent later
	StateRetry     State = "retry"     // failed, and will be retried
	StatePending   State = "pending"   // released, not yet taken by a worker
	StateActive    State = "active"    // held by a worker
	StateArchived  State = "archived"  // ended without success, with a reason
	StateCompleted State = "completed" // the call succeeded, and the job is kept for its retention
	StateEnded     State = "ended"     // deleted, but its key is still taken
)

// StateOf returns the State for asynq's state of a task; [StateEnded] for "", which means
// that there is no task any more.
func StateOf(asynqState string) State {
	switch asynqState {
	case "aggregating":
		return StateWaiting
	case "":
		return StateEnded
	}
	return State(asynqState)
}

// Join returns states as text, separated by commas.
func Join(states []State) string {
	words := make([]string, len(states))
	for i, state := range states {
		words[i] = string(state)
	}
	return strings.Join(words, ", ")
}
