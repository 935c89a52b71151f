package lifecycle

// Outcome is what came of a job that a worker was handed.
type Outcome string

// The outcomes; [queue.Observer] is told each of them.
const (
	Done      Outcome = "done"      // the call succeeded
	Retried   Outcome = "retried"   // it failed and will be made again: an attempt was spent
	Throttled Outcome = "throttled" // the provider said not now: no attempt was spent
	Postponed Outcome = "postponed" // the provider named a later time: no attempt was spent
	Archived  Outcome = "archived"  // it failed for good, or for the last time
	Expired   Outcome = "expired"   // its deadline passed before it could go: no call
	Unknown   Outcome = "unknown"   // sent, and nobody knows what came of it; archived for a person
	Crashed   Outcome = "crashed"   // archived: its calls took worker after worker with them
	Parked    Outcome = "parked"    // back to its lane without a call
	Cancelled Outcome = "cancelled" // archived: an operator did not want it any more
	Lost      Outcome = "lost"      // another worker has it now
)

// Outcomes lists the outcomes.
func Outcomes() []Outcome {
	return []Outcome{Done, Retried, Throttled, Postponed, Archived, Expired, Unknown, Crashed, Parked, Cancelled, Lost}
}

// Failed tells the outcomes of a job that ended for good without success.
func (o Outcome) Failed() bool {
	switch o {
	case Archived, Expired, Unknown, Crashed, Cancelled:
		return true
	}
	return false
}
