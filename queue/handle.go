package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/logkey"
)

// handler makes the calls of one kind.
type handler struct {
	fn            Handler
	call          Handler // fn wrapped in the worker's middleware
	decode        func(payload []byte) (value any, err error)
	timeout       time.Duration
	repeatUnknown bool
	backoff       func(attempt int) time.Duration
	panicked      func(value any, stack []byte)
}

// HandlerOption configures how the jobs of one kind are run.
type HandlerOption func(*handler)

// Timeout sets the maximum time of one call. The default is a minute.
func Timeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// RepeatUnknown repeats calls whose outcome is unknown. Use it for providers that accept
// the idempotency key. Without it such a job is archived, for a person to decide.
func RepeatUnknown() HandlerOption { return func(h *handler) { h.repeatUnknown = true } }

// Backoff sets how long the jobs of a kind wait after a failed call. wait gets the attempt
// that failed, from 1, and can return another value for each job; 0 means that the job goes
// back to its lane at once. The default is [ExponentialBackoff] from 1 s to 10 min.
func Backoff(wait func(attempt int) time.Duration) HandlerOption {
	return func(h *handler) { h.backoff = wait }
}

// ExponentialBackoff returns a function for [Backoff] whose wait doubles with each attempt
// from first to maxWait. Up to half of it is random, so that jobs that failed together do not
// come back together.
func ExponentialBackoff(first, maxWait time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		wait := max(min(first, maxWait), 0)
		for i := 1; i < attempt && wait < maxWait; i++ {
			wait = min(2*wait, maxWait)
		}
		return wait/2 + rand.N(wait/2+1)
	}
}

const defaultTimeout = time.Minute

var defaultBackoff = ExponentialBackoff(time.Second, 10*time.Minute)

// Kind names a kind of job and has T as the type of its payload. Producers and the handler
// share one constant, so that a payload of another type does not compile:
//
//	const SendSMS queue.Kind[SMS] = "sms"
//
// [ResultKind] is for kinds whose calls return a result.
//
// Payloads are encoded as JSON, except []byte and json.RawMessage, which stay unchanged.
type Kind[T any] string

// Job returns a job of this kind. The caller can set its other fields.
func (k Kind[T]) Job(tenant string, payload T) Job {
	return Job{Kind: string(k), Tenant: tenant, Payload: payload}
}

// Decode decodes a payload of this kind.
func (k Kind[T]) Decode(payload []byte) (T, error) {
	value, err := decode[T](payload)
	if err != nil {
		return value, fmt.Errorf("decode the payload of %s: %w", string(k), err)
	}
	return value, nil
}

// decode is the inverse of encodePayload.
func decode[T any](data []byte) (value T, err error) {
	if raw, ok := any(&value).(*[]byte); ok {
		*raw = data
		return value, nil
	}
	return value, json.Unmarshal(data, &value)
}

// Handle registers fn as the handler of a kind. The worker calls fn for every job of the
// kind, at the job's slot. Handle must be called before [Worker.Run]. In fn, [Current]
// returns the job.
//
// A nil error completes the job. Any other error spends an attempt, and the call is
// repeated after a backoff, unless the error, or one that it wraps, has one of these
// methods. A method that returns a bool applies if it returns true.
//
//   - RetryAfter() time.Duration: the provider wants fewer calls. The tenant is paused for
//     that time, or all tenants with WholeAccount() bool. No attempt is spent.
//   - PostponeUntil() time.Time: the job goes again at that time. No attempt is spent. With
//     KeepsFirst() bool, the call still counts for [Running].First.
//   - Permanent() bool: the job is archived.
//   - Unknown() bool: the call was sent, but its outcome is not known. The job is archived,
//     or called again with [RepeatUnknown].
//   - NotCalled() bool: no call was made, so the error is not counted as an answer.
//
// A panic is a failed call, also that of a method of the error. A job whose payload cannot be decoded into T is
// archived.
//
// Payload fields that T does not have are ignored, so that producers that send a new field
// can be deployed before the workers. A T that must reject unknown fields does so in its
// UnmarshalJSON method.
func Handle[T any](w *Worker, kind Kind[T], fn func(context.Context, T) error, options ...HandlerOption) {
	decode := func(payload []byte) (any, error) { return kind.Decode(payload) }
	w.register(string(kind), decode, func(ctx context.Context, payload []byte) error {
		early := earlyOf(ctx, payload)
		if early == nil {
			early = &decoded{}
			early.value, early.err = decode(payload)
		}
		if early.err != nil {
			return &undecodable{fmt.Errorf("%w: %w", early.err, asynq.SkipRetry)}
		}
		value, _ := early.value.(T) // a T that is an interface may be nil
		atLeast(ctx, value)
		return fn(ctx, value)
	}, options)
}

// decoded is a payload that was decoded before the slot of its call: 1 MiB takes longer to
// decode than a call may be late.
type decoded struct {
	payload []byte
	value   any
	err     error
}

// early decodes a payload. It returns nil if that panics: it will again in the call, where a
// panic is a failed call.
func (h *handler) early(payload []byte) (d *decoded) {
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	value, err := h.decode(payload)
	return &decoded{payload, value, err}
}

// earlyOf returns what the payload of a call was decoded to before, or nil if it was not, as
// when middleware passes another one.
func earlyOf(ctx context.Context, payload []byte) *decoded {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.early == nil || len(c.early.payload) != len(payload) || len(payload) > 0 && &c.early.payload[0] != &payload[0] {
		return nil
	}
	return c.early
}

// undecodable is the error of a call that was not made because its payload cannot be
// decoded.
type undecodable struct{ err error }

func (e *undecodable) Error() string   { return e.err.Error() }
func (e *undecodable) Unwrap() error   { return e.err }
func (e *undecodable) NotCalled() bool { return true }

// Kinds returns the kinds with a handler, sorted.
func (w *Worker) Kinds() []string { return slices.Sorted(maps.Keys(w.handlers)) }

func (w *Worker) register(kind string, decode func([]byte) (any, error), fn Handler, options []HandlerOption) {
	h := &handler{timeout: defaultTimeout, backoff: defaultBackoff, decode: decode, fn: fn, call: fn}
	for _, option := range options {
		option(h)
	}
	h.panicked = func(value any, stack []byte) {
		w.logger.Error("handler panicked", logkey.Kind, kind, "panic", fmt.Sprint(value), "stack", string(stack))
	}
	w.handlers[kind] = h
}

// after returns how long a job waits after a failed attempt. A panic of the kind's own function
// is logged, and the default applies.
func (h *handler) after(attempt int) (wait time.Duration) {
	defer func() {
		if value := recover(); value != nil {
			h.panicked(value, debug.Stack())
			wait = defaultBackoff(attempt)
		}
	}()
	return min(max(h.backoff(attempt), 0), check.MaxAhead)
}

// protected calls the handler and returns a panic as an error, so that one job does not
// stop the others. Secrets in the text of the error are hidden.
func (h *handler) protected(ctx context.Context, payload []byte) (err error) {
	defer func() {
		if value := recover(); value != nil {
			h.panicked(value, debug.Stack())
			err = told(fmt.Errorf("panic: %v", value))
		}
	}()
	err = told(h.call(ctx, payload))
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %v: %w", h.timeout, err)
	}
	// The methods of an error can panic, as those of a nil pointer do. Called here once, they do so where it is recovered.
	_, _, _ = answerOf(err), holdOf(err), judge(err, &Running{}, h, time.Time{})
	return err
}
