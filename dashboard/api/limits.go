package api

import (
	"cmp"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/httplimit"
)

// RequestLimits limit requests to the API, across all processes that share a Redis. All three
// apply to each request. A batch is one request.
//
// If Redis does not answer, the limits admit requests, whose handlers then report the failure.
type RequestLimits struct {
	PerKey   throttle.Rate // of each key without its own rate; zero: 10,000/s
	PerIP    throttle.Rate // from each address or IPv6 /64 network; zero: 10,000/s
	PerRoute throttle.Rate // to each method and path of the API; zero: 20,000/s

	// Trusted are the proxies in front of the API whose X-Forwarded-For is trusted.
	Trusted []netip.Prefix

	timeout time.Duration // of each decision; 0: a second
}

func (l RequestLimits) withDefaults() RequestLimits {
	l.PerKey = cmp.Or(l.PerKey, throttle.PerSecond(10_000))
	l.PerIP = cmp.Or(l.PerIP, throttle.PerSecond(10_000))
	l.PerRoute = cmp.Or(l.PerRoute, throttle.PerSecond(20_000))
	return l
}

// bucket returns a limit with the rate's count as its burst.
func bucket(name string, rate throttle.Rate) throttle.Limit {
	return throttle.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: rate, Burst: rate.Count}
}

func perKey(rate throttle.Rate) throttle.Limit { return bucket("key", rate) }

// requestLimits has a middleware for each rate of keys.
type requestLimits struct {
	config Config

	mu     sync.Mutex
	byRate map[throttle.Rate]*httplimit.Middleware
}

func newRequestLimits(config Config) (*requestLimits, error) {
	l := &requestLimits{config: config, byRate: map[throttle.Rate]*httplimit.Middleware{}}
	_, err := l.of(config.Requests.PerKey)
	return l, err
}

// of returns the middleware for keys with a rate.
func (l *requestLimits) of(rate throttle.Rate) (*httplimit.Middleware, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m, ok := l.byRate[rate]; ok {
		return m, nil
	}
	// Callers without a valid key are limited only by address, so that they do not use up the
	// permits of others.
	known := func(key httplimit.KeyFunc) httplimit.KeyFunc {
		return func(r *http.Request) (string, error) {
			if callerOf(r).denied != nil {
				return "", httplimit.ErrSkip
			}
			return key(r)
		}
	}
	m, err := httplimit.NewMiddleware(l.config.Redis, httplimit.MiddlewareConfig{
		Rules: []httplimit.Rule{
			{Limit: perKey(rate), Key: known(func(r *http.Request) (string, error) { return callerOf(r).key.ID, nil })},
			{Limit: bucket("address", l.config.Requests.PerIP), Key: byAddress(l.config.Requests.Trusted)},
			{Limit: bucket("route", l.config.Requests.PerRoute), Key: known(func(r *http.Request) (string, error) { return callerOf(r).pattern, nil })},
		},
		OnFailure: httplimit.FailOpen,
		Prefix:    "headgate:api",
		Timeout:   cmp.Or(l.config.Requests.timeout, time.Second),
		OnError:   func(*http.Request, error) {}, // the handler will report it
		Observe:   l.config.Observe,
		Refuse: func(w http.ResponseWriter, r *http.Request, refusal *httplimit.Refusal) {
			p := newProblem(refusal.Status, codeRateLimited, "%s", refusal.Detail)
			p.write(w, r)
		},
	})
	if err == nil {
		l.byRate[rate] = m
	}
	return m, err
}

// byAddress skips requests without an address, as on a Unix socket.
func byAddress(trusted []netip.Prefix) httplimit.KeyFunc {
	byIP := httplimit.ByIP(httplimit.ClientIP{Trusted: trusted})
	return func(r *http.Request) (string, error) {
		key, err := byIP(r)
		if err != nil {
			return "", httplimit.ErrSkip
		}
		return key, nil
	}
}

// wrap limits requests to next by their caller's rate.
func (l *requestLimits) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rate := cmp.Or(callerOf(r).key.Rate, l.config.Requests.PerKey)
		m, err := l.of(rate)
		if err != nil { // the rate was validated
			panic(err)
		}
		m.Wrap(next).ServeHTTP(w, r)
	})
}
