package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// MiddlewareConfig configures a [Middleware]. Rules and OnFailure are required.
type MiddlewareConfig struct {
	// Rules are 1 to 16 rules whose limits have different names. All of them must
	// admit a request. They are asked in one round trip, and permits are taken from
	// all of them or from none.
	//
	// A leaky bucket cannot be combined with a concurrency limit. Use a token bucket
	// with its capacity as the burst, which admits the same.
	Rules []Rule

	// OnFailure is required: [FailOpen] or [FailClosed].
	OnFailure Failure

	// Prefix of the keys in Redis; "" means "headgate:http". Middlewares share buckets
	// as limiters do that [throttle.New] makes of the limits of all rules.
	Prefix string

	// Cost returns how many permits a request takes of each limit with a rate; less
	// than 1 counts as 1. nil means 1.
	Cost func(*http.Request) int64

	// Timeout is how long Redis has for an answer before OnFailure decides; 0
	// means 250 ms.
	Timeout time.Duration

	// Refuse answers requests that are not let through: it writes status and body.
	// The headers about limits are already set. nil means [Refusal.ServeHTTP].
	Refuse func(http.ResponseWriter, *http.Request, *Refusal)

	// OnError is called if a limit could not be asked, a permit could not be given back,
	// or a [KeyFunc] failed. If Redis admits a request after Timeout and does not take the
	// permit back, another goroutine than the one that serves the request calls it, also
	// after the request has ended. nil means that errors are logged with [slog.Default], at
	// most once a second.
	OnError func(*http.Request, error)

	// Observe is called by the goroutine that serves the request after its limits were
	// asked, so it must be quick. Package limitmetrics has one that counts. nil: nobody
	// observes.
	Observe func(throttle.Observation)
}

// Middleware lets requests through to a handler as fast as its limits allow, and refuses
// the rest. The package documentation describes its responses. It is safe for
// concurrent use.
type Middleware struct {
	gate
	holds  bool // a rule is a concurrency limit
	refuse func(http.ResponseWriter, *http.Request, *Refusal)
}

// NewMiddleware returns a Middleware whose buckets are kept in Redis. The error lists
// everything that is wrong with the configuration. NewMiddleware does not connect to Redis.
func NewMiddleware(client redis.UniversalClient, config MiddlewareConfig) (*Middleware, error) {
	m := &Middleware{
		gate: gate{
			cost:    config.Cost,
			failure: config.OnFailure,
			timeout: config.Timeout,
			onError: config.OnError,
			observe: config.Observe,
		},
		refuse: config.Refuse,
	}
	if m.refuse == nil {
		m.refuse = func(w http.ResponseWriter, r *http.Request, refusal *Refusal) { refusal.ServeHTTP(w, r) }
	}
	leaky := ""
	for _, rule := range config.Rules {
		for _, limit := range rule.limits() {
			m.holds = m.holds || limit.Algorithm == throttle.Concurrency
			if limit.Algorithm == throttle.LeakyBucket {
				leaky = limit.Name
			}
		}
	}
	var leakyErr error
	if m.holds && leaky != "" {
		leakyErr = fmt.Errorf("httplimit: rule %q: a leaky bucket beside a concurrency limit would let requests go one by one: use a token bucket with its capacity as the burst, which admits the same", leaky)
	}
	var err error
	m.rules, err = newRuleBook(client, cmp.Or(config.Prefix, "headgate:http"), config.Rules)
	if err := errors.Join(m.check(), leakyErr, err); err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap returns a handler that calls next for requests that are let through. next gets the
// ResponseWriter of the server, so that flushing, hijacking and everything else that
// [http.ResponseController] offers still works.
//
// A permit of a concurrency limit is held until next returns or panics. If next hands a
// hijacked connection to another goroutine and returns, the permit is given back while
// the connection is still in use.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
}

func (m *Middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	set, keys, err := m.rules.apply(r)
	if err != nil {
		m.refuse(w, r, m.noKey(w, r, err))
		return
	}
	if set == nil {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Add("RateLimit-Policy", set.policy)

	began := time.Now()
	decision, held, err := m.decide(r, set, keys)
	if held != nil && held.Allowed { // from here on, because an observer may panic, too
		defer m.tell(r, held.Release)
	}
	m.saw(r, set, throttle.Observation{Decision: decision, Err: err, Took: time.Since(began)})
	costErr, costly := errors.AsType[*throttle.CostError](err)
	switch {
	case costly:
		m.refuse(w, r, tooCostly(costErr))
		return
	case err != nil && r.Context().Err() != nil:
		// This is not an error of Redis: the sender has gone, or its time is over.
		m.refuse(w, r, &Refusal{Status: http.StatusServiceUnavailable, Detail: "The request ended before it was admitted.", Err: r.Context().Err()})
		return
	case err != nil:
		m.onError(r, err)
		if m.failure == FailClosed {
			m.refuse(w, r, away(w, err))
			return
		}
	default:
		limit := set.named(decision)
		writeDecision(w.Header(), decision, limit)
		if !decision.Allowed {
			m.refuse(w, r, overLimit(decision, limit))
			return
		}
	}
	next.ServeHTTP(w, r)
}

// decide asks the limits. It returns a reservation only if there is something to give
// back later.
func (m *Middleware) decide(r *http.Request, set *ruleSet, keys []string) (throttle.Decision, *throttle.Reservation, error) {
	ctx, stop := context.WithTimeout(r.Context(), m.timeout)
	defer stop()
	cost := m.costOf(r)
	if !m.holds {
		take := func() (throttle.Decision, error) { return set.limiter.Take(ctx, cost, keys...) }
		decision, err := answered(ctx, take, nil)
		return decision, nil, err
	}
	// Reserve even if no concurrency limit applies to this request: Take and Reserve ask
	// some limits in different forms, and a bucket is best asked in one form.
	reserve := func() (*throttle.Reservation, error) { return set.limiter.Reserve(ctx, cost, 0, keys...) }
	reservation, err := answered(ctx, reserve, func(late *throttle.Reservation) { m.tell(r, late.Cancel) })
	if err != nil {
		return throttle.Decision{}, nil, err
	}
	if !set.holds {
		return reservation.Decision, nil, nil
	}
	return reservation.Decision, reservation, nil
}

// noKey returns the refusal of a request without a key.
func (m *Middleware) noKey(w http.ResponseWriter, r *http.Request, err error) *Refusal {
	fault, ok := errors.AsType[*KeyError](err)
	if !ok {
		m.onError(r, err)
		return &Refusal{Status: http.StatusInternalServerError, Detail: "The request could not be checked against its limits.", Err: err}
	}
	if fault.Authenticate != "" {
		w.Header().Set("WWW-Authenticate", fault.Authenticate)
	}
	status := fault.Status
	if status < 400 || status > 499 {
		status = http.StatusBadRequest
	}
	return &Refusal{Status: status, Detail: fault.Detail, Err: err}
}
