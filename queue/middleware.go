package queue

import (
	"context"
	"maps"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Handler makes one call. Its context has the job, see [Current], and ends after the
// timeout of the job's kind.
type Handler func(ctx context.Context, payload []byte) error

// Middleware wraps a handler.
type Middleware func(next Handler) Handler

// Use wraps the handlers of all kinds in middleware, including kinds registered later. The
// first middleware is the outermost. Use must be called before [Worker.Run].
//
// Middleware runs once for every call, after the job's slot has come and within the timeout
// of its kind. Code before next delays the call beyond its slot, so keep it fast. To change
// the payload, pass another slice to next: this one may be decoded already.
//
// Middleware does not run for jobs that end without a call (expired, crashed); [Observer]
// is notified of these. [OutcomeOf] returns the outcome of a handler's error. A panic
// passes through the middleware and is recovered by the worker.
func (w *Worker) Use(middleware ...Middleware) { w.middleware = append(w.middleware, middleware...) }

// around wraps a handler in all middleware.
func (w *Worker) around(h Handler) Handler {
	for i := len(w.middleware) - 1; i >= 0; i-- {
		h = w.middleware[i](h)
	}
	return h
}

// OutcomeOf returns the outcome of a handler's error, for middleware that reports it. ctx is
// the handler's context. A call that timed out or panicked has failed.
func OutcomeOf(ctx context.Context, err error) lifecycle.Outcome {
	current, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		current = &call{job: &Running{Attempt: 1, MaxAttempts: store.DefaultMaxAttempts}, handler: &handler{backoff: defaultBackoff}}
	}
	if canceled(ctx, err, current.handler.repeatUnknown) {
		return lifecycle.Parked // the worker stopped; the job is called again
	}
	return judge(err, current.job, current.handler, time.Now()).outcome
}

// Use adds functions that can change every job before it is checked, such as to set the
// tenant or to add headers. They run in the order given. An error rejects the job and is
// returned by [Client.Enqueue]. Use must be called before the first job is enqueued.
//
// The job is a copy: changing its fields, or the maps Headers, Attributes and Costs, does
// not change the caller's job.
func (c *Client) Use(change ...func(context.Context, *Job) error) {
	c.change = append(c.change, change...)
}

// changed returns the job after all functions of [Client.Use].
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
