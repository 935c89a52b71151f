package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

const maxResult = 64 << 10

// SetResult sets the result of the job that is being handled, for [Client.Result], asynq's
// Inspector and the job's follow-ups. []byte and json.RawMessage are stored unchanged, any
// other value as JSON; at most 64 KiB. The last value is stored when the handler returns
// nil, together with the job's outcome, and kept as long as the job, see [Job].Retention.
//
// It returns an error if the value is too large or cannot be encoded, or if ctx is not the
// context of a call in flight.
func SetResult(ctx context.Context, value any) error {
	encoded, err := encodePayload(value)
	if err != nil {
		return fmt.Errorf("queue: SetResult: %w", err)
	}
	if len(encoded) > maxResult {
		return fmt.Errorf("queue: SetResult: %d bytes; the maximum is %d; store large data elsewhere and keep a reference", len(encoded), maxResult)
	}
	if encryption.Encrypted(encoded) {
		return fmt.Errorf("queue: SetResult: %w", encryption.ErrMarked)
	}
	return inCall(ctx, "SetResult", func(c *call) error {
		c.result = slices.Clone(encoded)
		return nil
	})
}

// ResultKind names a kind of job whose call has a result. In is the type of its payload and
// Out that of its result:
//
//	const Charge queue.ResultKind[Order, Receipt] = "charge"
//
// Results are encoded like payloads, see [Kind].
type ResultKind[In, Out any] string

// Job returns a job of this kind. The caller can set its other fields.
func (k ResultKind[In, Out]) Job(tenant string, payload In) Job {
	return Kind[In](k).Job(tenant, payload)
}

// ErrNoResult reports that a job has no result: it has not ended, it failed, or its handler
// set none.
var ErrNoResult = errors.New("the job has no result")

// ResultOf returns the result of a job of this kind that [Client.Result] has looked up, or
// [ErrNoResult].
func (k ResultKind[In, Out]) ResultOf(job JobResult) (Out, error) {
	if job.Kind != string(k) {
		var none Out
		return none, fmt.Errorf("job %s is of kind %s, not %s", check.Quote(job.ID), job.Kind, string(k))
	}
	if job.Outcome != lifecycle.Done {
		job.Result = nil // it can have one from a call that was not the last
	}
	return k.decode(job.ID, job.Result)
}

// ParentResult returns the result of the job that a follow-up follows, which is of this kind,
// or [ErrNoResult].
func (k ResultKind[In, Out]) ParentResult(job Running) (Out, error) {
	return k.decode(job.Parent, job.ParentResult)
}

func (k ResultKind[In, Out]) decode(id string, result []byte) (value Out, err error) {
	if result == nil {
		return value, fmt.Errorf("%w: %s", ErrNoResult, check.Quote(id))
	}
	if value, err = decode[Out](result); err != nil {
		return value, fmt.Errorf("decode the result of job %s of kind %s: %w", check.Quote(id), string(k), err)
	}
	return value, nil
}

// HandleResult is [Handle] for calls with a result. If fn returns a nil error, its value is
// stored as by [SetResult]. If the value cannot be stored, the job is archived with the
// reason, because the call was made and must not be repeated.
func HandleResult[In, Out any](w *Worker, kind ResultKind[In, Out], fn func(context.Context, In) (Out, error), options ...HandlerOption) {
	Handle(w, Kind[In](kind), func(ctx context.Context, payload In) error {
		value, err := fn(ctx, payload)
		if err != nil {
			return err
		}
		if err := SetResult(ctx, value); err != nil {
			return &resultError{err}
		}
		return nil
	}, options...)
}

// resultError reports that a call succeeded but its result cannot be stored.
type resultError struct{ err error }

func (e *resultError) Error() string {
	return "the call was made, but its result cannot be stored: " + e.err.Error()
}
func (e *resultError) Unwrap() error   { return e.err }
func (e *resultError) Permanent() bool { return true }

// JobResult is the state and the result of one job.
type JobResult struct {
	ID, Queue, Kind, Tenant string

	State lifecycle.State

	// Outcome is how the job ended; "" if it has not ended. It can be set a moment before
	// State changes.
	Outcome lifecycle.Outcome

	Result  []byte    // the result set by the handler; nil: none
	Err     string    // why it ended without success, or why its last attempt failed
	EndedAt time.Time // to the second; zero while State is neither archived nor completed
}

// Result returns the state and the result of a job, or [lifecycle.ErrNoJob]. A completed job
// is kept for its Retention, an archived one until it is deleted.
func (c *Client) Result(ctx context.Context, queue, id string) (JobResult, error) {
	home, err := c.routes.find(ctx, queue, id)
	if err != nil {
		return JobResult{}, fmt.Errorf("look up job %s in queue %q: %w", check.Quote(id), queue, err)
	}
	fields, err := c.redis.HMGet(ctx, asynqwire.Key(home, "t:"+id), "state", "hg_done", "hg_outcome", "hg_error", "result", "msg").Result()
	if err != nil {
		return JobResult{}, fmt.Errorf("look up job %s in queue %q: %w", check.Quote(id), queue, err)
	}
	text := store.Texts(fields)
	if text[0] == "" {
		return JobResult{}, fmt.Errorf("%w: %s in queue %q", lifecycle.ErrNoJob, check.Quote(id), queue)
	}
	message, err := asynqwire.Decode([]byte(text[5]))
	if err != nil {
		return JobResult{}, fmt.Errorf("look up job %s in queue %q: %w", check.Quote(id), queue, err)
	}
	r := JobResult{ID: id, Queue: queue, Kind: message.Kind, Tenant: message.Tenant(), State: lifecycle.StateOf(text[0]), Err: message.Failure}
	if fields[4] != nil {
		if r.Result, err = c.keys.Decrypt([]byte(text[4]), encryption.PlaceOf(home, id, encryption.Result)); err != nil {
			return JobResult{}, fmt.Errorf("look up job %s in queue %q: %w", check.Quote(id), queue, err)
		}
	}
	switch r.Outcome = store.OutcomeOf(r.State, text[1], text[2]); {
	case r.Outcome == lifecycle.Done:
		r.Err = ""
	case text[1] == "0":
		r.Err = text[3]
	}
	switch r.State {
	case lifecycle.StateCompleted:
		r.EndedAt = message.Completed
	case lifecycle.StateArchived:
		if r.EndedAt, err = c.archivedAt(ctx, home, id); err != nil {
			return JobResult{}, fmt.Errorf("look up job %s in queue %q: %w", check.Quote(id), queue, err)
		}
	}
	return r, nil
}

// archivedAt returns when a job was archived; zero if it is not archived.
func (c *Client) archivedAt(ctx context.Context, queue, id string) (time.Time, error) {
	pipe := c.redis.Pipeline()
	asynqs := pipe.ZScore(ctx, asynqwire.Key(queue, "archived"), id)
	ours := pipe.ZScore(ctx, store.Key(queue, "archive"), id)
	if err := store.Execute(ctx, pipe); err != nil {
		return time.Time{}, err
	}
	if asynqs.Err() == nil {
		return time.Unix(int64(asynqs.Val()), 0), nil
	}
	if ours.Err() == nil {
		return time.UnixMicro(int64(ours.Val())), nil
	}
	return time.Time{}, nil
}
