package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
)

func TestFailure(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill,
		"hangs":  (*redistest.Server).Pause,
	} {
		for _, concurrent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, concurrent %v", name, concurrent), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				client := patient(t, server)
				rules := []Rule{{Limit: perHour("user", 1), Key: Everyone}}
				if concurrent {
					rules = append(rules, Rule{Limit: atOnce("flying", 5), Key: Everyone})
				}
				said := &errorLog{}
				next := &ok{}
				make := func(failure Failure) http.Handler {
					return mustMiddleware(t, client, MiddlewareConfig{
						Rules: rules, OnFailure: failure, OnError: said.add, Timeout: 30 * time.Millisecond,
					}).Wrap(next)
				}
				open, closed := make(FailOpen), make(FailClosed)
				fail(server)
				// With Redis hanging, nothing but the middleware's own timeout ends the wait.
				for range 3 {
					resp := get(open)
					mustOK(t, resp)
					if resp.Header.Get("RateLimit") != "" || resp.Header.Get("RateLimit-Policy") == "" {
						t.Errorf("open: %v; want the policy, and no count that nobody knows", resp.Header)
					}
				}
				resp := get(closed)
				problem(t, resp, 503)
				if resp.Header.Get("Retry-After") != "5" || resp.Header.Get("RateLimit") != "" {
					t.Errorf("closed: %v", resp.Header)
				}
				if next.count() != 3 || len(said.all()) != 4 {
					t.Errorf("%d requests got through, errors %v; want 3, and 4 errors", next.count(), said.all())
				}
				if name == "hangs" {
					server.Resume()
				}
			})
		}
	}
}

// TestLateAnswer holds that a permit comes back which Redis granted to a request
// that waited no more.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := patient(t, server)
	limit := atOnce("flying", 1)
	limit.Lease = time.Second
	h := mustMiddleware(t, client, MiddlewareConfig{
		Rules: []Rule{{Limit: limit, Key: Everyone}}, OnFailure: FailClosed, Timeout: 200 * time.Millisecond, OnError: func(*http.Request, error) {},
	}).Wrap(&ok{})
	mustOK(t, get(h))
	server.Pause()
	problem(t, get(h), 503)
	server.Resume()
	until.Done(t, "a permit is free", func() bool { return get(h).StatusCode == 200 })
}

// TestRequestEnds holds that a client which goes away says nothing about Redis.
func TestRequestEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := patient(t, server)
	next := &ok{}
	for _, failure := range []Failure{FailOpen, FailClosed} {
		h := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{{Limit: perHour("all", 100), Key: Everyone}}, OnFailure: failure}).Wrap(next)
		server.Pause()
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan *http.Response)
		go func() { answered <- get(h, func(r *http.Request) { *r = *r.WithContext(ctx) }) }()
		cancel()
		problem(t, <-answered, 503)

		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		problem(t, get(h, func(r *http.Request) { *r = *r.WithContext(ctx) }), 503)
		cancel()
		server.Resume()
	}
	if next.count() > 0 {
		t.Error("a request that had ended got through")
	}
}
