package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// MiddlewareConfig says which requests a [Middleware] lets through.
type MiddlewareConfig struct {
	// Rules must all admit a request, and are asked in one round trip: its
	// permits are taken from all of them or from none. 1 to 16, with different
	// names of limits.
	//
	// A leaky bucket cannot stand beside a concurrency limit. A token bucket
	// with its capacity as the burst admits the same.
	Rules []Rule

	// OnFailure is required.
	OnFailure Failure

	// Prefix of the keys in Redis; "" means "headgate:http". Middlewares with
	// the same prefix, names of limits, and number of rules (one, or several)
	// share buckets, in all processes.
	Prefix string

	// Cost is how many permits a request takes of each limit with a rate; less
	// than 1 counts as 1. nil: each takes 1.
	Cost func(*http.Request) int64

	// Timeout is how long Redis has for an answer before OnFailure decides; 0
	// means 250 ms.
	Timeout time.Duration

	// Refuse answers the requests that are not let through. The headers are set
	// already; it writes status and body. nil: [Refusal.ServeHTTP].
	Refuse func(http.ResponseWriter, *http.Request, *Refusal)

	// OnError is told why a limit could not be asked, a permit not be returned,
	// or a key not be found, by whichever goroutine serves the request. nil: the
	// default logger of log/slog is, once a second at most.
	OnError func(*http.Request, error)
}

// Middleware lets requests through to a handler as fast as its limits allow, and
// refuses the others. The package documentation says what its answers are. It
// is safe for concurrent use.
type Middleware struct {
	gate
	holds  bool // a rule is a concurrency limit
	refuse func(http.ResponseWriter, *http.Request, *Refusal)
}

// NewMiddleware checks the configuration; the error names everything that is
// wrong with it. Redis is not asked.
func NewMiddleware(client redis.UniversalClient, config MiddlewareConfig) (*Middleware, error) {
	m := &Middleware{
		gate: gate{
			cost:    config.Cost,
			failure: config.OnFailure,
			timeout: config.Timeout,
			onError: config.OnError,
		},
		refuse: config.Refuse,
	}
	if m.refuse == nil {
		m.refuse = func(w http.ResponseWriter, r *http.Request, refusal *Refusal) { refusal.ServeHTTP(w, r) }
	}
	prefix := config.Prefix
	if prefix == "" {
		prefix = "headgate:http"
	}
	leaky := ""
	for _, rule := range config.Rules {
		m.holds = m.holds || rule.Limit.Algorithm == throttle.Concurrency
		if rule.Limit.Algorithm == throttle.LeakyBucket {
			leaky = rule.Limit.Name
		}
	}
	var leakyErr error
	if m.holds && leaky != "" {
		leakyErr = fmt.Errorf("httplimit: rule %q: beside a concurrency limit a leaky bucket would let requests go one by one; a token bucket with its capacity as the burst admits what it does alone", leaky)
	}
	var err error
	m.rules, err = newRuleBook(client, prefix, config.Rules)
	if err := errors.Join(m.check(), leakyErr, err); err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap puts the middleware in front of a handler. The handler gets the
// ResponseWriter that the server made, so all it can do it still can: flush,
// hijack, and what else [http.ResponseController] offers.
//
// A permit of a concurrency limit is held until the handler returns or panics.
// A handler that leaves a hijacked connection to another goroutine and returns
// gives it back early.
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

	decision, held, err := m.decide(r, set, keys)
	var costErr *throttle.CostError
	switch {
	case errors.As(err, &costErr):
		m.refuse(w, r, tooCostly(costErr))
		return
	case err != nil && r.Context().Err() != nil:
		// Nothing is wrong with Redis: whoever asked has gone, or ran out of time.
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
	if held != nil {
		defer m.tell(r, held.Release)
	}
	next.ServeHTTP(w, r)
}

// decide asks the limits. A reservation comes back only where there is something
// to give back.
func (m *Middleware) decide(r *http.Request, set *ruleSet, keys []string) (throttle.Decision, *throttle.Reservation, error) {
	ctx, stop := context.WithTimeout(r.Context(), m.timeout)
	defer stop()
	cost := m.costOf(r)
	if !m.holds {
		take := func() (throttle.Decision, error) { return set.limiter.Take(ctx, cost, keys...) }
		decision, err := answered(ctx, take, nil)
		return decision, nil, err
	}
	// Also where no concurrency limit applies: the two ask some limits in
	// different forms, and a bucket is best asked in one.
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

// noKey is the answer to a request that has no key.
func (m *Middleware) noKey(w http.ResponseWriter, r *http.Request, err error) *Refusal {
	var fault *KeyError
	if !errors.As(err, &fault) {
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
