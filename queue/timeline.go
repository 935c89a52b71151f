package queue

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/queue/lifecycle"
)

// JobEvent is one moment in the life of a job. Those of a job that waits for its
// first call are not kept, nor those of one that is forgotten.
type JobEvent struct {
	At      time.Time        // by Redis's clock
	What    string           // one of the Job... constants
	Attempt int              // 0: of no attempt
	Limit   string           // JobReleased: what held it until then; JobParked: what holds it; "": none did
	Until   time.Time        // JobPaused, JobParked, JobRetry: when it may go on; zero: not known
	Answer  lifecycle.Answer // JobAnswered
	Detail  string           // in words, at most 200 bytes
}

// What happens to a job.
const (
	JobEnqueued  = "enqueued"  // it came into its lane
	JobReleased  = "released"  // dispatch gave it a slot
	JobCalled    = "called"    // its call left
	JobAnswered  = "answered"  // Answer, and what was said in Detail
	JobPaused    = "paused"    // the provider wants fewer calls: of this "tenant" or of the whole "account", as Detail says
	JobParked    = "parked"    // back to its lane without an attempt spent
	JobRetry     = "retry"     // it failed and is tried again
	JobRecovered = "recovered" // its worker was gone
	JobOperator  = "operator"  // an operator did what Detail says: "run" or "retry"
	JobEnded     = "ended"     // Detail begins with the [lifecycle.Outcome]
	JobDropped   = "dropped"   // what came between this and the event before is not kept
)

// readLog reads hg_log (record.lua), the oldest first. Lines that are none are
// left out.
func readLog(text string) []JobEvent {
	var events []JobEvent
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 7)
		fields = append(fields, make([]string, 7-len(fields))...)
		at, err := strconv.ParseUint(fields[0], 10, 53)
		if err != nil || fields[1] == "" || !utf8.ValidString(line) {
			continue
		}
		e := JobEvent{At: time.UnixMicro(int64(at)), What: fields[1], Limit: fields[3], Answer: lifecycle.Answer(fields[5]), Detail: fields[6]}
		if n, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			e.Attempt = int(n)
		}
		if until, err := strconv.ParseUint(fields[4], 10, 53); err == nil && until > 0 {
			e.Until = time.UnixMicro(int64(until))
		}
		events = append(events, e)
	}
	return events
}
