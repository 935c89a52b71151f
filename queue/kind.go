package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hibiken/asynq"
)

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

// Handle runs fn for every job of the kind, as [Handle] does.
//
// Fields of a payload that T does not have are passed over, so that producers
// that know a new field can be deployed before the workers: a strict worker
// would archive their jobs. A T that must not miss one refuses it in its own
// UnmarshalJSON.
func (k Kind[T]) Handle(w *Worker, fn func(context.Context, T) error, options ...HandlerOption) {
	w.register(string(k), func(ctx context.Context, payload []byte) error {
		value, err := k.Decode(payload)
		if err != nil {
			return &undecodable{fmt.Errorf("%w: %w", err, asynq.SkipRetry)}
		}
		return fn(ctx, value)
	}, options)
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
