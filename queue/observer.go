package queue

import (
	"time"

	"github.com/headgate/headgate/queue/lifecycle"
)

// Observer receives events of a worker, for metrics. Its methods are called often and
// concurrently, so they must be fast. kind is "" for kinds without a handler in the worker.
// Embed [NoObserver] so that the type still implements Observer when methods are added.
type Observer interface {
	// Gated is called after every decision about the slot of a job that the worker holds.
	Gated(queue string, gating Gating)

	// Called is called after every call.
	Called(queue string, call Called)

	// Finished is called once for every run of a job.
	Finished(queue, kind string, outcome lifecycle.Outcome)

	// Dispatched is called after every round of dispatch.
	Dispatched(queue string, round Round)

	// RoundTrip is called after every round trip to Redis.
	RoundTrip(trip RoundTrip)
}

// Gating is one decision about a job's slot.
type Gating struct {
	Kind     string
	Decision string // "sent" at its slot; "missed" its slot, and gets another; "parked": went back to its lane

	// Only if Decision is "parked".
	Reason ParkReason
	Limit  string // the limit that holds the job; "" if Reason is not about a limit

	Asked time.Duration // duration of the request to Redis for another slot; 0: there was none

	// Only if Decision is "sent".
	Held     time.Duration // wait for slots in this worker
	Runnable time.Duration // time since the job had its slot, or since it only lacked a worker with room
	Waited   time.Duration // time since the job was accepted or became due; 0 after the first call, or not known
}

// ParkReason is the reason why a worker sent a job back to its lane.
type ParkReason string

// The reasons to park a job.
const (
	ParkedByLimit       ParkReason = "limit"       // its next slot is far
	ParkedByConcurrency ParkReason = "concurrency" // all permits of a concurrency limit are taken
	ParkedByPause       ParkReason = "pause"       // its tenant, its kind or the queue is paused
	ParkedByWindow      ParkReason = "window"      // its send window is closed
	ParkedBySuspicion   ParkReason = "suspicion"   // it may crash workers, and such jobs are called one at a time
	ParkedByKind        ParkReason = "kind"        // this worker has no handler for it
	ParkedByStop        ParkReason = "stop"        // the worker stops
)

// ParkReasons returns all reasons.
func ParkReasons() []ParkReason {
	return []ParkReason{ParkedByLimit, ParkedByConcurrency, ParkedByPause, ParkedByWindow, ParkedBySuspicion, ParkedByKind, ParkedByStop}
}

// Called is one call that was made.
type Called struct {
	Kind    string
	Attempt int // see [Running]
	Took    time.Duration
	Answer  lifecycle.Answer
}

// Round is one round of dispatch.
type Round struct {
	Took     time.Duration
	Released int   // jobs handed to this worker
	Waiting  int64 // jobs in all lanes after the round
	Enqueued int64 // jobs ever accepted by the queue

	Held        int64         // jobs that this worker holds, of all its queues
	Sending     int64         // of these, calls in flight
	Concurrency int64         // see [Config]
	Starved     time.Duration // time since the previous round, if jobs could go but this worker had no room
}

// RoundTrip is one round trip to Redis.
type RoundTrip struct {
	// Command is the name of the command in lower case, "script:" and the name of the
	// script, or "pipeline" for several commands.
	Command string
	Took    time.Duration
	Failed  bool // there was no reply, or an error
}

// NoObserver is an [Observer] that does nothing.
type NoObserver struct{}

// Gated does nothing.
func (NoObserver) Gated(string, Gating) {}

// Called does nothing.
func (NoObserver) Called(string, Called) {}

// Finished does nothing.
func (NoObserver) Finished(string, string, lifecycle.Outcome) {}

// Dispatched does nothing.
func (NoObserver) Dispatched(string, Round) {}

// RoundTrip does nothing.
func (NoObserver) RoundTrip(RoundTrip) {}
