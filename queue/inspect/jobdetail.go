package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// JobDetail is everything that is known about one job.
type JobDetail struct {
	Explanation

	Priority   string
	Cost       int64             // permits of each limit without a unit
	Costs      map[string]int64  // permits of limits with a unit, by unit; nil: none
	Attributes map[string]string // nil: none
	Headers    map[string]string // the user's own; nil: none

	EnqueuedAt time.Time     // zero: not known, for a job with a key and no log
	Deadline   time.Time     // zero: none
	Retention  time.Duration // how long it is kept once it is done; 0: it is not kept

	Payload  []byte
	Result   []byte            // nil: none
	Locked   string            // why Payload and Result cannot be decrypted; "": they can, or are not encrypted
	Timeline []lifecycle.Event // oldest first; empty for a job that waits for its first call
}

// Owner returns the tenant and the kind of a job, or [lifecycle.ErrNoJob]. It takes the same
// commands whether there is such a job or not, so that its time tells nothing.
func (in *Inspector) Owner(ctx context.Context, queue, id string) (tenant, kind string, err error) {
	_, lane, err := in.find(ctx, queue, id)
	if err != nil {
		return "", "", fmt.Errorf("owner of job %s of queue %q: %w", check.Quote(id), queue, err)
	}
	of := store.ParseLane(lane)
	return store.Unescape(of.Tenant), store.Unescape(of.Kind), nil
}

// find returns the partition and the lane of a job, or [lifecycle.ErrNoJob]. It takes the same commands
// whether there is such a job or not.
func (in *Inspector) find(ctx context.Context, queue, id string) (home, lane string, err error) {
	l, err := in.layout(ctx, queue)
	if err != nil {
		return "", "", err
	}
	home, lane, err = store.FindJob(ctx, in.redis, l, id)
	if err == nil && home == "" {
		err = lifecycle.ErrNoJob
	}
	return home, lane, err
}

// Job returns everything that is known about one job, or [lifecycle.ErrNoJob]. The
// payload, the headers and the result are complete; callers that show them may have to
// redact them.
func (in *Inspector) Job(ctx context.Context, queue, id string) (JobDetail, error) {
	home, e, task, err := in.explain(ctx, queue, id)
	if err != nil {
		return JobDetail{}, fmt.Errorf("job %s of queue %q: %w", check.Quote(id), queue, err)
	}
	m := task.message
	d := JobDetail{
		Explanation: e, Priority: m.Priority(), Cost: 1, Costs: store.DecodeCosts(task.costs), Attributes: decodeAttributes(m.Headers[asynqwire.HeaderAttributes]),
		Headers: asynqwire.ReadHeaders(m.Headers), Retention: m.Retention, Timeline: store.ReadLog(task.log),
	}
	d.Payload, err = in.keys.Decrypt(m.Payload, encryption.PlaceOf(home, id, encryption.Payload))
	if err == nil {
		d.Result, err = in.keys.Decrypt(task.result, encryption.PlaceOf(home, id, encryption.Result))
	}
	if err != nil {
		d.Locked = err.Error()
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

// enqueuedAt returns when the job was enqueued, from an id that Headgate made, or else
// from the log.
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

// decodeAttributes reads what [store.EncodeAttributes] writes.
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
