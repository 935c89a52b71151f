package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// JobDetail is all that is known of one job.
type JobDetail struct {
	Explanation

	Priority   string
	Cost       int64             // permits of each limit without a unit
	Costs      map[string]int64  // of limits with one, by unit; nil: none
	Attributes map[string]string // nil: none
	Headers    map[string]string // the user's own; nil: none

	EnqueuedAt time.Time     // zero: not known, for a job with a key that no log tells of
	Deadline   time.Time     // zero: none
	Retention  time.Duration // for which it is remembered when it is done; 0: not

	Payload  []byte
	Result   []byte            // nil: none
	Timeline []lifecycle.Event // the oldest first; of a job that waits for its first call: none
}

// Job is all that is known of one job, or [lifecycle.ErrNoJob]. It carries the payload, the
// headers and the result as they are, which those who show it may have to redact.
func (in *Inspector) Job(ctx context.Context, queue, id string) (JobDetail, error) {
	e, task, err := in.explain(ctx, queue, id)
	if err != nil {
		return JobDetail{}, fmt.Errorf("job %s of queue %q: %w", check.Quote(id), queue, err)
	}
	m := task.message
	d := JobDetail{
		Explanation: e, Priority: m.Priority(), Cost: 1, Costs: store.DecodeCosts(task.costs), Attributes: decodeAttributes(m.Headers[asynqwire.HeaderAttributes]),
		Headers: asynqwire.ReadHeaders(m.Headers), Retention: m.Retention, Payload: m.Payload, Result: task.result, Timeline: store.ReadLog(task.log),
	}
	if n, err := strconv.ParseInt(task.cost, 10, 64); err == nil {
		d.Cost = n
	}
	if micros, err := strconv.ParseInt(m.Headers[asynqwire.HeaderDeadline], 10, 64); err == nil {
		d.Deadline = time.UnixMicro(micros)
	}
	d.EnqueuedAt = d.enqueuedAt()
	return d, nil
}

// enqueuedAt is when the job came: an id that we made tells it, and else the log.
func (d *JobDetail) enqueuedAt() time.Time {
	const timeOrdered = 7
	if id, err := uuid.Parse(d.ID); err == nil && id.Version() == timeOrdered {
		seconds, nanos := id.Time().UnixTime()
		return time.Unix(seconds, nanos)
	}
	for _, event := range d.Timeline {
		if event.What == lifecycle.EventEnqueued {
			return event.At
		}
	}
	if d.State == lifecycle.StateWaiting && d.Attempt == 1 {
		return d.Since
	}
	return time.Time{}
}

// decodeAttributes is the way back from [store.EncodeAttributes].
func decodeAttributes(text string) map[string]string {
	if text == "" {
		return nil
	}
	attributes := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		if name, value, ok := strings.Cut(part, "="); ok {
			attributes[name] = store.Unescape(value)
		}
	}
	return attributes
}
