package queue

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/costs"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// Running is the job that a handler is called for.
type Running struct {
	ID, Queue, Kind, Tenant string

	// Attempt is 1 for the first call. Only failed calls count. If the call at
	// MaxAttempts fails, the job is archived.
	Attempt, MaxAttempts int

	// IdempotencyKey is the same for every call of the job, at most 255 characters.
	IdempotencyKey string

	// First is the start of the job's first run whose call the provider may have acted
	// on, by Redis's clock. It is this run, unless an earlier one failed, was put off by
	// an error with KeepsFirst, or its worker died. Providers forget idempotency keys
	// some time after First.
	First time.Time

	// Unsure reports whether an earlier call may have taken effect although its outcome is not
	// known: no answer came, or its worker died or stopped.
	Unsure bool

	// Held is how long this worker held the job for its slot before the call. The wait in
	// the lane is not included.
	Held time.Duration

	Deadline time.Time // zero: none
	Cost     int64
	Costs    map[string]int64 // by unit; nil: none

	// Periodic is the ID of the [Periodic] that enqueued the job, and Tick the time of
	// its schedule; "" and zero for other jobs.
	Periodic string
	Tick     time.Time

	// The job that this one follows, if it is a follow-up: its id, its result and its
	// error.
	Parent       string
	ParentResult []byte
	ParentError  string

	// Headers are the job's headers, see [Job]. For tasks of asynq's own client they are
	// all headers of the task.
	Headers map[string]string

	attributes, costs string
	kept              bool // the job is kept when it is done
	account           Account
	permits           bool   // the job holds permits of concurrency limits
	owner             string // mark of this run on the job in Redis
	task              asynqwire.Message
	raw               []byte        // task in asynq's encoding
	locked            error         // why the task cannot be decrypted; nil: it can
	waited            time.Duration // until its first call left, since it came or became due; 0: not known

	// Probe reports whether this call tests if a hold, which follows failures of an
	// account or endpoint, can end. Its answer decides for the jobs that are held.
	Probe bool
}

// accounts are the values of [Job].Account.
var accounts = []Account{AnyAccount, SharedAccount, OwnAccount}

// Account says with whose account of the provider the call may be made: see [Job].
func (job *Running) Account() Account { return job.account }

func (job *Running) expired(now time.Time) bool {
	return !job.Deadline.IsZero() && !now.Before(job.Deadline)
}

// call is what a handler reports about its job during the call.
type call struct {
	job     *Running
	handler *handler
	gate    *gate    // nil: the call is made by a test, without Redis
	early   *decoded // the payload; nil: the handler decodes it

	mu       sync.Mutex // protects what follows until the call is over
	over     bool       // nothing is reported any more
	actual   map[string]int64
	known    map[string]int64 // costs of a [Coster], which the job may not have paid
	quotas   []Quota
	rejected bool // see SetRejected
	result   []byte
	pause    hold
	progress *reporter // nil: nothing was reported
}

type callKey struct{}

// Current returns the job of a handler's context. ok is false if ctx is not from a handler.
func Current(ctx context.Context) (job Running, ok bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return Running{}, false
	}
	return *c.job, true
}

// inCall notes what a handler reports about the call of its ctx. It returns an error if ctx is not from a handler, or
// if the call has ended, because nothing reported then is used.
func inCall(ctx context.Context, what string, set func(*call) error) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return fmt.Errorf("queue: %s: ctx is not from a handler", what)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return fmt.Errorf("queue: %s: the call has ended", what)
	}
	return set(c)
}

// SetActual sets the actual costs of the call by unit, such as the tokens that the provider
// counted. The difference to [Job].Costs is given back to the limits, or charged, once, when
// the handler returns, even with an error. Units that are not in costs keep their estimate.
// It returns an error, and sets nothing, if costs are invalid, as in [Job].Costs, or if ctx is
// not the context of a call in flight.
func SetActual(ctx context.Context, costs map[string]int64) error {
	if _, problem := store.EncodeCosts(costs); problem != "" {
		return fmt.Errorf("queue: SetActual: %s", problem)
	}
	return inCall(ctx, "SetActual", func(c *call) error {
		if c.actual == nil {
			c.actual = map[string]int64{}
		}
		maps.Copy(c.actual, costs)
		return nil
	})
}

// Coster is a payload that knows what its call takes from limits with a unit. Of its costs and
// [Job].Costs the larger counts, unit by unit: when a [Client] enqueues it, and again when the
// handler has made the call, for jobs of other producers. [SetActual] replaces both.
type Coster interface {
	Costs() map[string]int64
}

// costs returns the job's costs, or those that its payload knows where these are larger.
func (job Job) costs() map[string]int64 {
	known, ok := job.Payload.(Coster)
	if !ok {
		return job.Costs
	}
	return costs.Larger(job.Costs, known.Costs())
}

// atLeast notes what the payload of a call knows of its costs.
func atLeast(ctx context.Context, payload any) {
	if payload, ok := payload.(Coster); ok {
		known := payload.Costs()
		_ = inCall(ctx, "costs", func(c *call) error { // without a call, nothing is charged
			c.known = known
			return nil
		})
	}
}

// unpaid returns the costs that the payload knows and the job did not pay; "" if there are none.
// The handler's own word counts more.
func (c *call) unpaid() string {
	unpaid := map[string]int64{}
	for unit, n := range c.known {
		if _, said := c.actual[unit]; !said && n > c.job.Costs[unit] {
			unpaid[unit] = n
		}
	}
	if len(unpaid) == 0 {
		return ""
	}
	maps.Copy(unpaid, c.actual)
	text, _ := store.EncodeCosts(unpaid) // what is wrong is not charged
	return text
}

// PauseTenant pauses the other jobs of the tenant after the current call, whatever its
// outcome. Use it if the provider accepted the call but wants no more for now. If the
// provider rejected the call, return an error with RetryAfter instead, see [Handle]. The
// longest of several pauses applies, at most 24 h. PauseTenant returns an error, and pauses
// nothing, if length is not positive or ctx is not the context of a call in flight.
func PauseTenant(ctx context.Context, length time.Duration, reason string) error {
	return pauseAfter(ctx, ofTenant, length, reason)
}

// PauseAccount is [PauseTenant] for the jobs of all tenants of the queue.
func PauseAccount(ctx context.Context, length time.Duration, reason string) error {
	return pauseAfter(ctx, ofAccount, length, reason)
}

func pauseAfter(ctx context.Context, who string, length time.Duration, reason string) error {
	if length <= 0 {
		return fmt.Errorf("queue: pause: the length %v is not positive", length)
	}
	return inCall(ctx, "pause", func(c *call) error {
		if length > c.pause.length {
			c.pause = hold{who: who, length: min(length, maxPause), reason: reason}
		}
		return nil
	})
}

func (c *call) actualCosts() string {
	text, _ := store.EncodeCosts(c.actual) // SetActual has checked them
	return text
}

func newRunning(queue, id string, task asynqwire.Message) *Running {
	headers := task.Headers
	job := &Running{
		ID: id, Queue: queue, Kind: task.Kind, Tenant: task.Tenant(),
		Attempt: task.Retried + 1, MaxAttempts: task.MaxAttempts(store.DefaultMaxAttempts),
		IdempotencyKey: idempotencyKey(id), Cost: 1, Headers: asynqwire.ReadHeaders(headers), attributes: headers[asynqwire.HeaderAttributes], task: task,
	}
	job.task.Headers = nil // the job has them; a worker may hold thousands of jobs
	if job.account = Account(headers[asynqwire.HeaderAccount]); !slices.Contains(accounts, job.account) {
		job.account = OwnAccount // which allows least
	}
	job.kept = headers[asynqwire.HeaderKept] != ""
	if job.attributes == "" { // a task of asynq's own client
		job.attributes = store.WithDerived(job.attributes, store.Derived(job.Kind, task.Payload))
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

// tenant and kind return the escaped names that the scripts use.
func (job *Running) tenant() string { return rediskey.Escape(job.Tenant) }
func (job *Running) kind() string   { return rediskey.Escape(job.Kind) }

// taken returns what the job's call took of the limits, "COST;unit=n;…" with its actual costs before those that it was
// enqueued with, and how many ms its first call waited, "…@MS". A COST of 1 is left out, unless it is all.
func (job *Running) taken(actual string) string {
	text := ""
	if job.Cost != 1 {
		text = strconv.FormatInt(job.Cost, 10)
	}
	expected, _ := store.EncodeCosts(job.Costs) // not the text, which may be that of a task of asynq's own client
	for _, costs := range []string{actual, expected} {
		if costs != "" {
			text += ";" + costs
		}
	}
	if job.waited > 0 {
		text += "@" + strconv.FormatInt(job.waited.Milliseconds(), 10)
	}
	return cmp.Or(text, "1")
}

// attributesIn returns those of the job's attributes that are in a list, as "name=value;…".
func (job *Running) attributesIn(names []string) string {
	var parts []string
	for part := range strings.SplitSeq(job.attributes, ";") {
		name, value, _ := strings.Cut(part, "=")
		if slices.Contains(names, name) && !strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ";")
}

// lockedError reports a job that this worker cannot decrypt. Another worker may have the key, or it
// is added later, so the job waits.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return e.err.Error() }
func (e *lockedError) Unwrap() error { return e.err }

// lockedPause is how long such a job waits before it is tried again.
var lockedPause = time.Minute

// unlock decrypts the payload of a task, and the result that it carries of its parent. After an error
// the task has neither.
func unlock(keys *encryption.Keys, queue, id string, task *asynqwire.Message) error {
	payload, err := keys.Decrypt(task.Payload, encryption.PlaceOf(queue, id, encryption.Payload))
	task.Payload = payload
	if result := resultIn(task.Headers); result != nil && err == nil {
		result, err = keys.Decrypt(result, encryption.PlaceOf(queue, id, encryption.ParentResult))
		task.Headers[asynqwire.HeaderParentResult] = base64.StdEncoding.EncodeToString(result)
	}
	if err != nil {
		return &lockedError{err}
	}
	return nil
}
