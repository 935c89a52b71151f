package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

const (
	// defaultMaxWait is how long a call waits for its slot at most.
	defaultMaxWait = time.Minute

	// nearby is how far ahead a slot of several limits is reserved: a far one
	// would take a moment of a shared limit from calls that can go before it.
	nearby = time.Second

	// poll is how often a call asks for a permit of a concurrency limit, of
	// whose return nobody tells.
	poll = 20 * time.Millisecond
)

// TransportConfig says how fast a [Transport] lets calls go.
type TransportConfig struct {
	// Rules must all admit a call. The first one with a rate is the provider's:
	// its bucket is paused when the provider says that it has had enough. A rule
	// without a Key has a bucket for each host. 1 to 16, with different names of
	// limits.
	Rules []Rule

	// OnFailure is required: with FailClosed a call for which Redis gives no slot
	// ends in an error, with FailOpen it goes at once.
	OnFailure Failure

	// Base makes the calls; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is the longest that a call waits for its slot; what would take
	// longer ends in a [WaitError] at once. The request's own deadline counts as
	// well. 0 means a minute.
	MaxWait time.Duration

	// Prefix of the keys in Redis; "" means "headgate:calls". Transports with
	// the same prefix, names of limits, and number of rules (one, or several)
	// share buckets, in all processes.
	Prefix string

	// Cost is how many permits a call takes of each limit with a rate; less than
	// 1 counts as 1. nil: each takes 1.
	Cost func(*http.Request) int64

	// Timeout is how long Redis has for each answer before OnFailure decides; 0
	// means 250 ms.
	Timeout time.Duration

	// OnError is told of errors that no caller gets: why a call went without a
	// slot, or a bucket was not paused. nil: the default logger of log/slog is,
	// once a second at most.
	OnError func(*http.Request, error)
}

// Transport is an [http.RoundTripper] that holds each call until its limits
// admit it, and pauses them as the provider's answers ask for. It never repeats
// a call. It is safe for concurrent use.
type Transport struct {
	gate
	base    http.RoundTripper
	certain bool // base tells by a trace whether it had a connection
	maxWait time.Duration
}

// WaitError reports a call that was not made, because its slot is further away
// than its MaxWait or its deadline, or because too many wait already.
type WaitError struct {
	Decision throttle.Decision
	MaxWait  time.Duration // what it could have waited
}

func (e *WaitError) Error() string {
	why := ""
	if e.Decision.Paused != "" {
		why = fmt.Sprintf(" (paused: %q)", e.Decision.Paused)
	}
	if e.slot() == 0 {
		return fmt.Sprintf("limit %q has no place for the call for another %v%s", e.Decision.Limit, e.Decision.RetryAfter, why)
	}
	return fmt.Sprintf("limit %q admits the call in %v%s, and it may wait %v", e.Decision.Limit, e.slot(), why, e.MaxWait)
}

// RetryAfter is how long to wait before the same call may go at once: until its slot,
// where that is too far away. A call that may wait for its slot again can be tried
// earlier, after Decision.RetryAfter.
func (e *WaitError) RetryAfter() time.Duration {
	return max(e.Decision.RetryAfter, e.slot())
}

// slot is how far away the slot was, where that was the reason; else 0.
func (e *WaitError) slot() time.Duration {
	if e.Decision.Delay > e.MaxWait {
		return e.Decision.Delay
	}
	return 0
}

// NewTransport checks the configuration; the error names everything that is
// wrong with it. Redis is not asked.
func NewTransport(client redis.UniversalClient, config TransportConfig) (*Transport, error) {
	t := &Transport{
		gate: gate{
			cost:    config.Cost,
			failure: config.OnFailure,
			timeout: config.Timeout,
			onError: config.OnError,
		},
		base:    config.Base,
		maxWait: cmp.Or(config.MaxWait, defaultMaxWait),
	}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	_, t.certain = t.base.(*http.Transport)
	rules := slices.Clone(config.Rules)
	for i := range rules {
		if rules[i].Key == nil {
			rules[i].Key = ByHost
		}
	}
	var waitErr error
	if t.maxWait < 0 {
		waitErr = fmt.Errorf("httplimit: MaxWait: %v is negative", t.maxWait)
	}
	var err error
	t.rules, err = newRuleBook(client, cmp.Or(config.Prefix, "headgate:calls"), rules)
	if err := errors.Join(t.check(), waitErr, err); err != nil {
		return nil, err
	}
	return t, nil
}

// RoundTrip waits for the call's slot and makes it. Beside the errors of Base
// there are [WaitError], the context's error when that ended while the call
// waited, [throttle.CostError] for a cost that a limit never admits, a KeyFunc's
// error, and with FailClosed that of Redis. After any of them but Base's own
// nothing was sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	set, keys, err := t.rules.apply(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if set == nil {
		return t.base.RoundTrip(r)
	}
	slot, err := t.wait(r.Context(), set, t.costOf(r), keys)
	if err != nil {
		var waitErr *WaitError
		var costErr *throttle.CostError
		if r.Context().Err() != nil || t.failure == FailClosed || errors.As(err, &waitErr) || errors.As(err, &costErr) {
			closeBody(r)
			return nil, err
		}
		t.onError(r, err)
		slot = nil
	}
	resp, sent, err := t.send(r)
	if err != nil {
		if slot != nil && !sent {
			t.tell(r, slot.Cancel)
		} else if slot != nil && set.holds {
			t.tell(r, slot.Release)
		}
		return nil, err
	}
	t.listen(r, set, keys, resp)
	if slot != nil && set.holds {
		held := &heldBody{ReadCloser: resp.Body, release: sync.OnceFunc(func() { t.tell(r, slot.Release) })}
		resp.Body = held
		if w, ok := held.ReadCloser.(io.Writer); ok {
			resp.Body = &heldConn{held, w} // of a connection that was upgraded
		}
	}
	return resp, nil
}

// send makes the call. It is certain that it was not sent if there was no
// connection to send it on; of other transports than net/http's own, which may
// do more than they tell, nothing is certain.
func (t *Transport) send(r *http.Request) (resp *http.Response, sent bool, err error) {
	if !t.certain {
		resp, err = t.base.RoundTrip(r)
		return resp, true, err
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err = t.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if resp != nil {
		resp.Request = r
	}
	return resp, connected.Load(), err
}

// wait returns when the call may go. It does what [throttle.Limiter.Wait] does,
// but bounds each question to Redis, so that a Redis that hangs is told from a
// slot that is far away.
func (t *Transport) wait(ctx context.Context, set *ruleSet, cost int64, keys []string) (*throttle.Reservation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := time.Now()
	maxWait := t.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	for {
		left := maxWait - time.Since(start)
		near := left
		if len(set.limits) > 1 {
			near = min(left, nearby)
		}
		r, err := t.reserve(ctx, set, cost, near, keys)
		if err != nil {
			return nil, err
		}
		if r.Allowed {
			if err := sleep(ctx, r.Delay); err != nil {
				t.giveBack(ctx, r)
				return nil, err
			}
			return r, nil
		}
		var pause time.Duration
		switch limit := set.named(r.Decision); {
		case left <= 0:
			// The last try, at the very end, was in vain as well.
		case limit.Algorithm == throttle.Concurrency:
			pause = min(poll, left)
		case len(set.limits) > 1 && near < r.Delay && r.Delay <= left:
			pause = r.Delay - near/2
		}
		if pause == 0 {
			if r.RetryAfter == r.Delay-near {
				r.RetryAfter -= left - near // a call may wait longer than each reservation
			}
			return nil, &WaitError{Decision: r.Decision, MaxWait: max(maxWait, 0)}
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func (t *Transport) reserve(ctx context.Context, set *ruleSet, cost int64, within time.Duration, keys []string) (*throttle.Reservation, error) {
	asking, stop := context.WithTimeout(ctx, t.timeout)
	defer stop()
	reserve := func() (*throttle.Reservation, error) { return set.limiter.Reserve(asking, cost, within, keys...) }
	r, err := answered(asking, reserve, func(late *throttle.Reservation) { t.giveBack(ctx, late) })
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

func (t *Transport) giveBack(ctx context.Context, r *throttle.Reservation) {
	t.tell((&http.Request{}).WithContext(ctx), r.Cancel)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listen pauses the provider's bucket if its answer asks for that.
func (t *Transport) listen(r *http.Request, set *ruleSet, keys []string, resp *http.Response) {
	length, reason := pauseFor(resp)
	if length <= 0 {
		return
	}
	i := slices.IndexFunc(set.limits, func(limit throttle.Limit) bool { return limit.Algorithm != throttle.Concurrency })
	if i < 0 {
		return // nothing there can be paused
	}
	until := time.Now().Add(length)
	t.tell(r, func(ctx context.Context) error {
		return set.limiter.Pause(ctx, set.limits[i].Name, keys[i], until, reason)
	})
}

// heldBody gives a permit back once the answer was read or closed.
type heldBody struct {
	io.ReadCloser
	release func()
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type heldConn struct {
	*heldBody
	io.Writer
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
