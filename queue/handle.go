package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/internal/logkey"
)

// handler makes the calls of one kind.
type handler struct {
	fn            Handler
	call          Handler // fn inside of the worker's middleware
	timeout       time.Duration
	repeatUnknown bool
	panicked      func(value any, stack []byte)
}

// HandlerOption changes how the jobs of one kind are run.
type HandlerOption func(*handler)

// Timeout bounds one call; without it a call has a minute.
func Timeout(d time.Duration) HandlerOption { return func(h *handler) { h.timeout = d } }

// RepeatUnknown makes a call again whose outcome is not known, for providers
// that take the idempotency key. Without it such a job is archived, for a person
// to decide.
func RepeatUnknown() HandlerOption { return func(h *handler) { h.repeatUnknown = true } }

const defaultTimeout = time.Minute

// Kind names a kind of job whose payload is a T. Producers and the handler
// share one such constant, so that a payload of another type does not compile:
//
//	const SendSMS queue.Kind[SMS] = "sms"
//
// A payload travels as JSON; a T of []byte or json.RawMessage as it is.
type Kind[T any] string

// Job is a job of this kind. Its other fields are the caller's to set.
func (k Kind[T]) Job(tenant string, payload T) Job {
	return Job{Kind: string(k), Tenant: tenant, Payload: payload}
}

// Decode reads a payload of this kind.
func (k Kind[T]) Decode(payload []byte) (T, error) {
	var value T
	if raw, ok := any(&value).(*[]byte); ok {
		*raw = payload
		return value, nil
	}
	if err := json.Unmarshal(payload, &value); err != nil {
		return value, fmt.Errorf("decode the payload of %s: %w", string(k), err)
	}
	return value, nil
}

// Handle runs fn for every job of a kind, at the moment of its slot. It must be
// called before [Worker.Run]. [Current] tells fn about the job.
//
// A nil error completes the job. Others spend an attempt and are tried again
// with growing pauses, unless the error (or one it wraps) has a method that says
// otherwise: RetryAfter() time.Duration: the provider wants fewer calls;
// ParkUntil() time.Time: not before then (and KeepsFirst() bool: the call counts
// for [Running.First] all the same); Permanent() bool: never; Unknown() bool: sent,
// but the answer is not known. NotCalled() bool says that no call was made at all, so
// that the error does not count as an [lifecycle.Answer]. A panic counts as a failed call, and
// a payload that does not decode into T is archived: it never will.
//
// Fields of a payload that T does not have are passed over, so that producers
// that know a new field can be deployed before the workers: a strict worker
// would archive their jobs. A T that must not miss one refuses it in its own
// UnmarshalJSON.
func Handle[T any](w *Worker, kind Kind[T], fn func(context.Context, T) error, options ...HandlerOption) {
	w.register(string(kind), func(ctx context.Context, payload []byte) error {
		value, err := kind.Decode(payload)
		if err != nil {
			return &undecodable{fmt.Errorf("%w: %w", err, asynq.SkipRetry)}
		}
		return fn(ctx, value)
	}, options)
}

// undecodable is the error of a call that was not made because nobody can read
// what it should carry.
type undecodable struct{ err error }

func (e *undecodable) Error() string   { return e.err.Error() }
func (e *undecodable) Unwrap() error   { return e.err }
func (e *undecodable) NotCalled() bool { return true }

// Kinds lists the kinds that the worker has handlers for, sorted.
func (w *Worker) Kinds() []string { return slices.Sorted(maps.Keys(w.handlers)) }

func (w *Worker) register(kind string, fn Handler, options []HandlerOption) {
	h := &handler{timeout: defaultTimeout, fn: fn, call: fn}
	for _, option := range options {
		option(h)
	}
	h.panicked = func(value any, stack []byte) {
		w.logger.Error("handler panicked", logkey.Kind, kind, "panic", fmt.Sprint(value), "stack", string(stack))
	}
	w.handlers[kind] = h
}

// protected turns a panic into a failed call: one job must not end the others.
func (h *handler) protected(ctx context.Context, payload []byte) (err error) {
	defer func() {
		if value := recover(); value != nil {
			h.panicked(value, debug.Stack())
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	err = h.call(ctx, payload)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timed out after %v: %w", h.timeout, err)
	}
	return err
}
