package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Failure says what happens to a request if Redis does not answer, answers too late, or
// answers with an error. There is no default, because either value can be wrong.
type Failure int

const (
	// FailOpen lets requests through without any limit. What is behind must be able
	// to bear that.
	FailOpen Failure = iota + 1

	// FailClosed refuses requests until Redis answers again. Redis must then be as
	// available as what it protects.
	FailClosed
)

// defaultTimeout is how long Redis has for an answer if nothing else is configured.
const defaultTimeout = 250 * time.Millisecond

// gate is what a Middleware and a Transport share.
type gate struct {
	rules   *ruleBook
	cost    func(*http.Request) int64
	failure Failure
	timeout time.Duration
	onError func(*http.Request, error)
	observe func(throttle.Observation) // nil: nobody observes
}

func (g *gate) check() error {
	var errs []error
	if g.failure != FailOpen && g.failure != FailClosed {
		errs = append(errs, errors.New("httplimit: OnFailure: say what happens to requests while Redis does not answer: FailOpen lets them through without a limit, FailClosed refuses them"))
	}
	if g.timeout < 0 {
		errs = append(errs, fmt.Errorf("httplimit: Timeout: %v is negative", g.timeout))
	}
	g.timeout = cmp.Or(g.timeout, defaultTimeout)
	if g.onError == nil {
		g.onError = logOncePerSecond()
	}
	return errors.Join(errs...)
}

func (g *gate) costOf(r *http.Request) int64 {
	if g.cost == nil {
		return 1
	}
	return max(g.cost(r), 1)
}

// saw tells the observer about a call, unless it was invalid or its context ended first.
func (g *gate) saw(r *http.Request, set *ruleSet, seen throttle.Observation) {
	if _, invalid := errors.AsType[*throttle.CostError](seen.Err); g.observe == nil || invalid || seen.Err != nil && r.Context().Err() != nil {
		return
	}
	seen.Limits, seen.Unlimited = set.names, seen.Err != nil && g.failure == FailOpen
	g.observe(seen)
}

// tell tells the limiter something about a request that may have ended. It returns after
// the timeout at the latest.
func (g *gate) tell(r *http.Request, do func(context.Context) error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), g.timeout)
	defer stop()
	_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, do(ctx) }, nil)
	if err != nil {
		g.onError(r, err)
	}
}

// answered returns the answer of ask, or an error once ctx is done, because clients of
// Redis usually heed only their own timeouts. An answer that comes later is given to late
// unless that is nil, and a later error is ignored.
func answered[T any](ctx context.Context, ask func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer) // not buffered: each answer is received here or is late
	go func() {
		value, err := ask()
		select {
		case answers <- answer{value, err}:
		case <-ctx.Done():
			if err == nil && late != nil {
				late(value)
			}
		}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("httplimit: no answer from Redis: %w", ctx.Err())
	}
}

// logOncePerSecond logs at most one error per second of an outage.
func logOncePerSecond() func(*http.Request, error) {
	var next atomic.Int64
	return func(r *http.Request, err error) {
		now, due := time.Now().UnixNano(), next.Load()
		if now >= due && next.CompareAndSwap(due, now+int64(time.Second)) {
			slog.ErrorContext(r.Context(), "a limit could not be asked", "error", err)
		}
	}
}
