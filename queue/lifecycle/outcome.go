package lifecycle

// Outcome is the result of a run of a job.
type Outcome string

// The outcomes. A [queue.Observer] receives each of them.
const (
	Done      Outcome = "done"      // the call succeeded
	Retried   Outcome = "retried"   // the call failed and will be retried: an attempt was used up
	Throttled Outcome = "throttled" // the provider said not now: no attempt was used up
	Postponed Outcome = "postponed" // the provider named a later time: no attempt was used up
	Archived  Outcome = "archived"  // it failed permanently, or its attempts are used up
	Expired   Outcome = "expired"   // its deadline passed before the call
	Unknown   Outcome = "unknown"   // sent, but the result is unknown; archived for a person to check
	Crashed   Outcome = "crashed"   // archived: several workers died during its calls
	Parked    Outcome = "parked"    // back to its lane without a call
	Cancelled Outcome = "cancelled" // archived: an operator cancelled it
	Lost      Outcome = "lost"      // another worker has it now
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Done, Retried, Throttled, Postponed, Archived, Expired, Unknown, Crashed, Parked, Cancelled, Lost}
}

// Failed reports whether the job ended without success.
func (o Outcome) Failed() bool {
	switch o {
	case Archived, Expired, Unknown, Crashed, Cancelled:
		return true
	}
	return false
}
