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
)

// Failure says what becomes of a request when Redis gives no answer: it is away,
// too slow, or unable. There is no default, because either can be the wrong one.
type Failure int

const (
	// FailOpen lets requests through, without any limit: what is behind must be
	// able to bear that.
	FailOpen Failure = iota + 1

	// FailClosed refuses requests until Redis answers again: then Redis must be
	// as available as what it protects.
	FailClosed
)

// defaultTimeout is how long Redis has for an answer.
const defaultTimeout = 250 * time.Millisecond

// gate is what a Middleware and a Transport share.
type gate struct {
	rules   *ruleBook
	cost    func(*http.Request) int64
	failure Failure
	timeout time.Duration
	onError func(*http.Request, error)
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

// tell tells the limiter something about a request that may be over already. It
// keeps nobody longer than the timeout.
func (g *gate) tell(r *http.Request, do func(context.Context) error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.Context()), g.timeout)
	defer stop()
	_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, do(ctx) }, nil)
	if err != nil {
		g.onError(r, err)
	}
}

// answered is ask's answer, if that comes before ctx is done: clients of Redis
// mostly heed their own timeouts alone. An answer that comes later is given to
// late, if there is one, and a later error forgotten.
func answered[T any](ctx context.Context, ask func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer) // not buffered: each answer is taken here or is late
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

// logOncePerSecond logs errors, but not one for every request of an outage.
func logOncePerSecond() func(*http.Request, error) {
	var next atomic.Int64
	return func(r *http.Request, err error) {
		now, due := time.Now().UnixNano(), next.Load()
		if now >= due && next.CompareAndSwap(due, now+int64(time.Second)) {
			slog.ErrorContext(r.Context(), "a limit could not be asked", "error", err)
		}
	}
}
