package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// Running is the job that a handler was called for.
type Running struct {
	ID, Queue, Kind, Tenant string

	// Attempt is 1 for the first call; only failed calls count. At MaxAttempts
	// the job is archived when the call fails.
	Attempt, MaxAttempts int

	// IdempotencyKey is the same for every call of the job, at most 255 characters.
	IdempotencyKey string

	// First is when the first run of the job began whose call the provider may
	// have acted on, by Redis's clock: this one's, unless an earlier one failed, was
	// parked by an error that KeepsFirst, or its worker died. Providers forget
	// idempotency keys some time after it.
	First time.Time

	// Held is how long this worker held the job for its slot, until the call;
	// what it waited before in its lane is not in it.
	Held time.Duration

	Deadline time.Time // zero: none
	Cost     int64
	Costs    map[string]int64 // by unit; nil: none

	// Periodic is the entry that a periodic job belongs to, and Tick the moment
	// of its schedule that it was enqueued for; "" and zero for other jobs.
	Periodic string
	Tick     time.Time

	// Of the job that this one follows, if it follows one: its id, what it set by
	// [SetResult], and why it failed.
	Parent       string
	ParentResult []byte
	ParentError  string

	// Headers are those of [Job], and of a task of asynq's own client all it has.
	Headers map[string]string

	attributes, costs string
	// unsure: of an earlier call nobody knows what came of it.
	unsure bool
	// kept: it is remembered once it is done.
	kept bool
	// permits: it holds permits of concurrency limits, for which others may wait.
	permits bool
	// owner marks this run on the job.
	owner string
	// task is what asynq's encoding of the job says, and raw that encoding.
	task asynqwire.Message
	raw  []byte

	// Probe is whether the job tries what a hold keeps others of its account or endpoint
	// from, after a failure. What comes of it decides for them.
	Probe bool
}

func (job *Running) expired(now time.Time) bool {
	return !job.Deadline.IsZero() && !now.Before(job.Deadline)
}

// call is what a handler says of the job while it runs.
type call struct {
	job           *Running
	repeatUnknown bool // of its handler

	mu     sync.Mutex
	actual map[string]int64
	pause  hold
}

type callKey struct{}

// Current is the job that a handler's context belongs to; ok is false outside
// of a handler.
func Current(ctx context.Context) (job Running, ok bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return Running{}, false
	}
	return *c.job, true
}

// SetActual tells what the running call really took of the limits with a unit,
// such as the tokens that the provider counted. The difference to [Job].Costs
// is given back or charged, once, when the handler returns, also when it fails.
// Units that are not named keep their estimate. An error means that nothing was
// noted: the context is no handler's, or a number is not within 0 to 2^40.
func SetActual(ctx context.Context, costs map[string]int64) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errors.New("queue: SetActual: the context is not that of a handler")
	}
	if _, problem := store.EncodeCosts(costs); problem != "" {
		return fmt.Errorf("queue: SetActual: %s", problem)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.actual == nil {
		c.actual = map[string]int64{}
	}
	maps.Copy(c.actual, costs)
	return nil
}

// PauseTenant makes the other calls of the tenant wait once the running one has ended,
// whatever its outcome. It is for a provider that took the call and said that it was the
// last for now; an error with RetryAfter says so of a call that was refused. Of several
// pauses the longest holds, up to 24 h. An error means that nothing was noted: the context
// is not that of a handler, or the length is not above 0.
func PauseTenant(ctx context.Context, length time.Duration, reason string) error {
	return pauseAfter(ctx, ofTenant, length, reason)
}

// PauseAccount is [PauseTenant] for the calls of all tenants of the queue.
func PauseAccount(ctx context.Context, length time.Duration, reason string) error {
	return pauseAfter(ctx, ofAccount, length, reason)
}

func pauseAfter(ctx context.Context, who string, length time.Duration, reason string) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errors.New("queue: pause: the context is not that of a handler")
	}
	if length <= 0 {
		return fmt.Errorf("queue: pause: the length %v is not above 0", length)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if length > c.pause.length {
		c.pause = hold{who: who, length: min(length, maxPause), reason: reason}
	}
	return nil
}

func (c *call) pauseAfter() hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pause
}

func (c *call) actualCosts() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _ := store.EncodeCosts(c.actual) // checked when they were noted
	return text
}

func newRunning(queue, id string, task asynqwire.Message) *Running {
	headers := task.Headers
	job := &Running{
		ID: id, Queue: queue, Kind: task.Kind, Tenant: headers[asynqwire.HeaderTenant],
		Attempt: task.Retried + 1, MaxAttempts: store.DefaultMaxAttempts,
		IdempotencyKey: idempotencyKey(id), Cost: 1, Headers: asynqwire.ReadHeaders(headers), attributes: headers[asynqwire.HeaderAttributes], task: task,
	}
	if job.Tenant == "" {
		job.Tenant = asynqwire.NoTenant
	}
	if n, err := strconv.Atoi(headers[asynqwire.HeaderMaxAttempts]); err == nil && n > 0 {
		job.MaxAttempts = n
	} else if task.Retries != asynqwire.EndlessRetry {
		job.MaxAttempts = task.Retries + 1
	}
	job.kept = headers[asynqwire.HeaderKept] != ""
	if store.EndpointIn(job.attributes) == "" {
		job.attributes = store.WithEndpoint(job.attributes, job.Kind, task.Payload)
	}
	if n, err := strconv.ParseInt(headers[asynqwire.HeaderCost], 10, 64); err == nil && n > 0 {
		job.Cost = n
	}
	job.costs = headers[asynqwire.HeaderCosts]
	job.Costs = store.DecodeCosts(job.costs)
	if micros, err := strconv.ParseInt(headers[asynqwire.HeaderDeadline], 10, 64); err == nil {
		job.Deadline = time.UnixMicro(micros)
	}
	if second, err := strconv.ParseInt(headers[asynqwire.HeaderTick], 10, 64); err == nil {
		job.Periodic, job.Tick = headers[asynqwire.HeaderPeriodic], time.Unix(second, 0)
	}
	job.readParent(headers)
	return job
}

// tenant and kind are as the scripts spell them.
func (job *Running) tenant() string { return rediskey.Escape(job.Tenant) }
func (job *Running) kind() string   { return rediskey.Escape(job.Kind) }
