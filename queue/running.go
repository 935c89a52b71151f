package queue

import (
	"context"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Running is the job that a handler was called for.
type Running struct {
	ID, Queue, Kind, Tenant string

	// Attempt is 1 for the first call; only failed calls count. At MaxAttempts
	// the job is archived when the call fails.
	Attempt, MaxAttempts int

	// IdempotencyKey is the same for every call of the job, at most 255 characters.
	IdempotencyKey string

	Deadline time.Time // zero: none
	Cost     int64

	attributes string
	// lastOfAsynq: a task of asynq's own client on the last retry it was given;
	// asynq archives it whatever we return.
	lastOfAsynq bool
}

type runningKey struct{}

// Current is the job that a handler's context belongs to; ok is false outside
// of a handler.
func Current(ctx context.Context) (job Running, ok bool) {
	job, ok = ctx.Value(runningKey{}).(Running)
	return job, ok
}

// noTenant is who a task of asynq's own client stands for when it does not say.
const noTenant = "default"

func readRunning(ctx context.Context, task *asynq.Task) Running {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	headers := task.Headers()
	job := Running{
		ID: id, Queue: queue, Kind: task.Type(), Tenant: headers[headerTenant],
		Attempt: retried + 1, MaxAttempts: defaultMaxAttempts,
		IdempotencyKey: idempotencyKey(id), Cost: 1, attributes: headers[headerAttributes],
	}
	if job.Tenant == "" {
		job.Tenant = noTenant
	}
	if n, err := strconv.Atoi(headers[headerMaxAttempts]); err == nil && n > 0 {
		job.MaxAttempts = n
	} else if most != endlessRetry {
		job.MaxAttempts = most + 1
	}
	job.lastOfAsynq = most != endlessRetry && retried >= most
	if n, err := strconv.ParseInt(headers[headerCost], 10, 64); err == nil && n > 0 {
		job.Cost = n
	}
	if micros, err := strconv.ParseInt(headers[headerDeadline], 10, 64); err == nil {
		job.Deadline = time.UnixMicro(micros)
	}
	return job
}

func (job Running) lane() string { return throttle.Escape(job.Tenant) }
