package queue

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// Call runs the handler of one job immediately, with the worker's middleware, and returns
// the handler's error and the outcome that it stands for. It is for tests of handlers: it
// uses no Redis, no limits and no retries, and it drops the job's result.
func (w *Worker) Call(ctx context.Context, job Job) (lifecycle.Outcome, error) {
	queue := job.Queue
	if queue == "" {
		queue = job.Kind
		if len(w.config.Queues) > 0 {
			queue = w.config.Queues[0]
		}
	}
	now := time.Now()
	a, err := job.accept(queue, now)
	if err != nil {
		return "", err
	}
	message, err := asynqwire.Decode(a.message)
	if err != nil {
		return "", err
	}
	registered := w.handlers[job.Kind]
	if registered == nil {
		return "", validation.Field("kind", "no handler for "+check.Quote(job.Kind)+check.Suggest(job.Kind, w.Kinds()))
	}
	h := *registered
	h.call = w.around(h.fn)
	running := newRunning(queue, a.id, message)
	running.First = now
	current := &call{job: running, handler: &h}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, current), h.timeout)
	defer cancel()
	err = h.protected(ctx, running.task.Payload)
	current.end()
	return OutcomeOf(ctx, err), err
}
