package breaker

import (
	"context"
	"errors"
	"time"
)

// evidence is what an outcome says of the provider.
type evidence int

const (
	up evidence = iota
	down
	neither
)

// errNoAnswer stands for a call that ended without an outcome: it panicked, or
// the worker ended.
var errNoAnswer = errors.New("ended without an outcome")

// judge asks for the behaviour of an outcome, in the order in which a queue does.
func judge(err error) evidence {
	if err == nil {
		return up
	}
	if _, refused := errors.AsType[*DownError](err); refused || errors.Is(err, errNoAnswer) || errors.Is(err, context.Canceled) {
		return neither
	}
	if _, throttled := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); throttled {
		return up
	}
	if _, parked := errors.AsType[interface {
		error
		ParkUntil() time.Time
	}](err); parked {
		return up
	}
	if permanent, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err); ok && permanent.Permanent() {
		return neither
	}
	return down
}
