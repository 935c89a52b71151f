package store

import "github.com/headgate/headgate/queue/lifecycle"

// OutcomeOf returns how a job ended, from its state and the fields hg_done and hg_outcome of
// its task; "" if it has not ended. A job has an outcome a moment before its state says so.
func OutcomeOf(state lifecycle.State, done, outcome string) lifecycle.Outcome {
	archived := state == lifecycle.StateArchived
	switch {
	case state == lifecycle.StateCompleted || done == "1" && !archived:
		return lifecycle.Done
	case !archived && done != "0":
		return ""
	}
	if failed := lifecycle.Outcome(outcome); failed.Failed() {
		return failed
	}
	return lifecycle.Archived // also where a tool of asynq's archived it
}
