package queue

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/headgate/headgate/queue/lifecycle"
)

// Handler makes one call. Its context carries the job ([Current]) and ends
// when the call's time is up.
type Handler func(ctx context.Context, payload []byte) error

// Middleware puts something around a handler: before and after every call.
type Middleware func(next Handler) Handler

// Use puts middleware around the handlers of all kinds, those registered later
// too; the first one given is the outermost. It must be called before
// [Worker.Run].
//
// Middleware runs once for every call that is made: after the job's slot came,
// and within the time that its kind allows. Outside of it stay waiting and
// holding, so that nothing done here can move a call away from its slot by more
// than the time it takes (be quick before next); jobs that end without a call
// (expired, crashed), of which [Observer] is told; and what becomes of the
// error, for which see [OutcomeOf]. A panic passes through middleware, the
// worker recovers it outside of all.
func (w *Worker) Use(middleware ...Middleware) { w.middleware = append(w.middleware, middleware...) }

// around is the handler inside of all middleware.
func (w *Worker) around(h Handler) Handler {
	for i := len(w.middleware) - 1; i >= 0; i-- {
		h = w.middleware[i](h)
	}
	return h
}

// OutcomeOf is what follows from a handler's error, for middleware that reports
// it; ctx is the handler's. A call that timed out or panicked has failed.
func OutcomeOf(ctx context.Context, err error) lifecycle.Outcome {
	if canceled(ctx, err) && errors.Is(ctx.Err(), context.Canceled) {
		return lifecycle.Parked // the worker stopped; the job is called again
	}
	current, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		current = &call{}
	}
	return judge(err, current.job, current.repeatUnknown, time.Now()).outcome
}

// Use lets functions see every job before it is checked, and change it, in the
// order given: to name the tenant of a request, or to add headers. An error
// refuses the job and is what Enqueue answers with. Use must be called before
// the first job is enqueued.
//
// The job is the client's own copy: its Headers, Attributes and Costs can be
// written, and the caller's stay as they are.
func (c *Client) Use(change ...func(context.Context, *Job) error) {
	c.change = append(c.change, change...)
}

// changed is a job after all functions of [Client.Use].
func (c *Client) changed(ctx context.Context, job Job) (Job, error) {
	if len(c.change) == 0 {
		return job, nil
	}
	job.Headers, job.Attributes, job.Costs = ownMap(job.Headers), ownMap(job.Attributes), ownMap(job.Costs)
	for _, change := range c.change {
		if err := change(ctx, &job); err != nil {
			return job, err
		}
	}
	return job, nil
}

func ownMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}
