package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/httpcall"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/throttle"
)

const (
	// defaultMaxWait is how long a call waits for its slot if nothing else is configured.
	defaultMaxWait = time.Minute

	// nearby is how far ahead a slot of several limits is reserved: a distant one would
	// take a moment of a shared limit from calls that can go before it.
	nearby = time.Second

	// poll is how often a call asks for a permit of a concurrency limit: there is no
	// event when one comes back.
	poll = 20 * time.Millisecond
)

// TransportConfig configures a [Transport]. Rules and OnFailure are required.
type TransportConfig struct {
	// Rules are 1 to 16 rules whose limits have different names. All of them must
	// admit a call. A rule without a Key has a bucket for each host. The first rule
	// with a rate is the one whose bucket is paused if the provider asks for that.
	Rules []Rule

	// OnFailure is required: if Redis does not answer, a call goes at once with
	// [FailOpen], and ends in an error with [FailClosed].
	OnFailure Failure

	// Base makes the calls; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is how long a call may wait for its slot; 0 means a minute. A call that
	// would have to wait longer, or beyond the deadline of its context, ends in a
	// [WaitError] at once.
	MaxWait time.Duration

	// Prefix of the keys in Redis; "" means "headgate:calls". Transports share buckets
	// as limiters do that [throttle.New] makes of the limits of all rules.
	Prefix string

	// Cost returns how many permits a call takes of each limit with a rate; less than
	// 1 counts as 1. nil means 1.
	Cost func(*http.Request) int64

	// Timeout is how long Redis has for each answer before OnFailure decides; 0
	// means 250 ms.
	Timeout time.Duration

	// OnError is called with errors that RoundTrip does not return: a call went without
	// a slot, a bucket could not be paused, or a permit could not be given back. It may be
	// called by another goroutine than that of the call, also after the call has ended. nil
	// means that errors are logged with [slog.Default], at most once a second.
	OnError func(*http.Request, error)

	// Observe is called by the goroutine of the call before it is sent, or when it is not
	// sent, so it must be quick. Package limitmetrics has one that counts. nil: nobody
	// observes.
	Observe func(throttle.Observation)
}

// Transport is an [http.RoundTripper] that delays each call until its limits admit it,
// and pauses a limit if the answers of the provider ask for that. It never repeats a
// call. It is safe for concurrent use.
type Transport struct {
	gate
	base    http.RoundTripper
	maxWait time.Duration
}

// WaitError reports a call that was not made, because its slot is further away than its
// MaxWait or its deadline allows, or because too many calls are waiting.
type WaitError struct {
	Decision throttle.Decision
	MaxWait  time.Duration // how long the call could have waited
}

func (e *WaitError) Error() string {
	why := ""
	if e.Decision.Paused != "" {
		why = fmt.Sprintf(" (paused: %q)", e.Decision.Paused)
	}
	if e.slot() == 0 {
		return fmt.Sprintf("httplimit: limit %q has no room for the call for another %v%s", e.Decision.Limit, e.Decision.RetryAfter, why)
	}
	return fmt.Sprintf("httplimit: limit %q admits the call in %v%s, but it may wait only %v", e.Decision.Limit, e.slot(), why, e.MaxWait)
}

// RetryAfter returns how long to wait before the same call can go at once. A call that
// can wait for its slot again may be tried earlier, after Decision.RetryAfter.
func (e *WaitError) RetryAfter() time.Duration {
	return max(e.Decision.RetryAfter, e.slot())
}

// slot returns how far away the slot was if that was the reason, and 0 otherwise.
func (e *WaitError) slot() time.Duration {
	if e.Decision.Delay > e.MaxWait {
		return e.Decision.Delay
	}
	return 0
}

// NewTransport returns a Transport whose buckets are kept in Redis. The error lists
// everything that is wrong with the configuration. NewTransport does not connect to Redis.
func NewTransport(client redis.UniversalClient, config TransportConfig) (*Transport, error) {
	t := &Transport{
		gate: gate{
			cost:    config.Cost,
			failure: config.OnFailure,
			timeout: config.Timeout,
			onError: config.OnError,
			observe: config.Observe,
		},
		base:    cmp.Or(config.Base, http.DefaultTransport),
		maxWait: cmp.Or(config.MaxWait, defaultMaxWait),
	}
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

// RoundTrip waits for the call's slot and then makes the call with Base. In addition to
// the errors of Base it returns a [WaitError], the error of the request's context if that
// is done while the call waits, a [throttle.CostError] for a cost that a limit never
// admits, the error of a [KeyFunc], and with [FailClosed] that of Redis. After any error
// that is not of Base nothing was sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	set, keys, err := t.rules.apply(r)
	if err != nil {
		httpcall.CloseBody(r)
		return nil, err
	}
	if set == nil {
		return t.base.RoundTrip(r)
	}
	began := time.Now()
	slot, asked, err := t.wait(r, set, t.costOf(r), keys)
	seen := throttle.Observation{Err: err, Took: asked}
	waitErr, tooFar := errors.AsType[*WaitError](err)
	switch {
	case err == nil:
		seen.Decision, seen.Waited = slot.Decision, time.Since(began)-asked
	case tooFar:
		seen.Decision, seen.Err = waitErr.Decision, nil
	}
	kept := false // by the response
	defer func() {
		if slot != nil && set.holds && !kept {
			t.tell(r, slot.Release)
		}
	}()
	t.saw(r, set, seen)
	if err != nil {
		_, costly := errors.AsType[*throttle.CostError](err)
		if r.Context().Err() != nil || t.failure == FailClosed || tooFar || costly {
			httpcall.CloseBody(r)
			return nil, err
		}
		t.onError(r, err)
		slot = nil
	}
	resp, sent, err := httpcall.Send(t.base, r)
	if err != nil {
		if slot != nil && !sent {
			t.tell(r, slot.Cancel)
		}
		return nil, err
	}
	t.listen(r, set, keys, resp)
	if slot != nil && set.holds {
		kept = true
		httpcall.WhenRead(resp, func() { t.tell(r, slot.Release) })
	}
	return resp, nil
}

// wait returns when the call may go. It does what [throttle.Limiter.Wait] does, but each
// question to Redis has a timeout, so that a Redis that hangs can be told from a slot that
// is far away. asked is how long the answers took.
func (t *Transport) wait(call *http.Request, set *ruleSet, cost int64, keys []string) (slot *throttle.Reservation, asked time.Duration, err error) {
	ctx := call.Context()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
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
		asking := time.Now()
		r, err := t.reserve(call, set, cost, near, keys)
		asked += time.Since(asking)
		if err != nil {
			return nil, asked, err
		}
		if r.Allowed {
			if err := wait.For(ctx, r.Delay); err != nil {
				t.tell(call, r.Cancel)
				return nil, asked, err
			}
			return r, asked, nil
		}
		var pause time.Duration
		switch limit := set.named(r.Decision); {
		case left <= 0:
			// The last try, at the end of the time, was refused too.
		case limit.Algorithm == throttle.Concurrency:
			pause = min(poll, left)
		case len(set.limits) > 1 && near < r.Delay && r.Delay <= left:
			pause = r.Delay - near/2
		}
		if pause == 0 {
			if r.RetryAfter == r.Delay-near {
				r.RetryAfter -= left - near // a call may wait longer than each reservation
			}
			return nil, asked, &WaitError{Decision: r.Decision, MaxWait: max(maxWait, 0)}
		}
		if err := wait.For(ctx, pause); err != nil {
			return nil, asked, err
		}
	}
}

func (t *Transport) reserve(call *http.Request, set *ruleSet, cost int64, within time.Duration, keys []string) (*throttle.Reservation, error) {
	ctx := call.Context()
	asking, stop := context.WithTimeout(ctx, t.timeout)
	defer stop()
	reserve := func() (*throttle.Reservation, error) { return set.limiter.Reserve(asking, cost, within, keys...) }
	r, err := answered(asking, reserve, func(late *throttle.Reservation) { t.tell(call, late.Cancel) })
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

// listen pauses the provider's bucket if the answer asks for that.
func (t *Transport) listen(r *http.Request, set *ruleSet, keys []string, resp *http.Response) {
	length, reason := httpcall.PauseFor(resp)
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
