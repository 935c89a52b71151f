package queue

import (
	"time"

	"github.com/headgate/headgate/queue/lifecycle"
)

// Observer is told what a worker does, for metrics. Its methods are called
// often and by many goroutines: they must be quick. Kind is "" for jobs of kinds
// that the worker has no handler for: it only puts them away. Embed [NoObserver] to
// stay one when methods are added.
type Observer interface {
	// Gated is called for every decision about the slot of a job in a worker's hands.
	Gated(queue string, gating Gating)

	// Called is called after every call that was made.
	Called(queue string, call Called)

	// Finished is called once for every run of a job.
	Finished(queue, kind string, outcome lifecycle.Outcome)

	// Dispatched is called after every round of dispatch.
	Dispatched(queue string, round Round)

	// RoundTrip is called for every round trip to Redis, for all queues together.
	RoundTrip(trip RoundTrip)
}

// Gating is one decision about a job's slot.
type Gating struct {
	Kind     string
	Decision string // "sent" at its slot; "missed": too late for it, another follows; "parked": back to its lane

	// Of a job that was parked.
	Reason ParkReason
	Limit  string // whose next slot was far; "" where Reason names no limit

	Asked time.Duration // what Redis took for it: the mark on the job, or another slot

	// Of a call that is sent now.
	Held     time.Duration // in the worker's hands, until its slot
	Runnable time.Duration // since it could have gone: it had its slot, or only lacked a worker with room
	Waited   time.Duration // since the job was accepted, or since its time came; 0 after the first attempt
}

// ParkReason is why a job in a worker's hands went back to its lane.
type ParkReason string

// The reasons.
const (
	ParkedByLimit       ParkReason = "limit"       // its next slot is far
	ParkedByConcurrency ParkReason = "concurrency" // all permits of a concurrency limit are taken
	ParkedByPause       ParkReason = "pause"       // its tenant, its kind or the queue is paused
	ParkedByWindow      ParkReason = "window"      // its send window is closed
	ParkedBySuspicion   ParkReason = "suspicion"   // it may crash workers, and waits for its turn among such jobs
	ParkedByKind        ParkReason = "kind"        // this worker has no handler for it
	ParkedByStop        ParkReason = "stop"        // the worker stops
)

// ParkReasons lists the reasons.
func ParkReasons() []ParkReason {
	return []ParkReason{ParkedByLimit, ParkedByConcurrency, ParkedByPause, ParkedByWindow, ParkedBySuspicion, ParkedByKind, ParkedByStop}
}

// Called is one call that was made.
type Called struct {
	Kind    string
	Attempt int // as in [Running]
	Took    time.Duration
	Answer  lifecycle.Answer
}

// Round is one round of dispatch.
type Round struct {
	Took     time.Duration
	Released int   // jobs handed to workers
	Waiting  int64 // jobs in all lanes afterwards
	Enqueued int64 // jobs ever accepted by the queue

	Held        int64         // jobs in this worker's hands, of all its queues
	Sending     int64         // of these, calls under way
	Concurrency int64         // how many it can hold
	Starved     time.Duration // since the round before, if jobs could go and found no room in this worker
}

// RoundTrip is one round trip to Redis.
type RoundTrip struct {
	// Command is a command's name in lower case, "script:" and a script's name, or
	// "pipeline" for several at once.
	Command string
	Took    time.Duration
	Failed  bool // no answer came, or one that refused it
}

// NoObserver does nothing.
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
