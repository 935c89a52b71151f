package httplimit

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
)

// inside is a handler whose requests wait in it.
type inside struct {
	entered chan struct{}
	leave   chan func(http.ResponseWriter, *http.Request)
}

func newInside() *inside {
	return &inside{make(chan struct{}), make(chan func(http.ResponseWriter, *http.Request))}
}

func (h *inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.entered <- struct{}{}
	(<-h.leave)(w, r)
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	hijack := func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
		_ = rw.Flush()
	}
	flush := func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		_, _ = io.WriteString(w, "o")
		if err := errors.Join(control.Flush(), control.SetWriteDeadline(time.Now().Add(time.Hour))); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "k")
	}
	for name, leave := range map[string]func(http.ResponseWriter, *http.Request){
		"returns": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") },
		"flushes": flush,
		"hijacks": hijack,
		"panics":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix, limit := prefix(t), atOnce("flying", 1)
			handler := newInside()
			m := mustMiddleware(t, client, MiddlewareConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}})
			var serving sync.WaitGroup // a server does not wait for a request that was hijacked
			wrapped := m.Wrap(handler)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				serving.Add(1)
				defer serving.Done()
				wrapped.ServeHTTP(w, r)
			}))
			defer server.Close()
			defer server.Client().CloseIdleConnections()
			defer serving.Wait()
			ask := func() (int, http.Header) {
				resp, err := server.Client().Get(server.URL)
				if err != nil {
					return 0, nil
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode, resp.Header
			}
			var first sync.WaitGroup
			status := 0
			first.Go(func() { status, _ = ask() })
			<-handler.entered

			second, header := ask()
			if second != 429 || header.Get("Retry-After") != "1" || header.Get("RateLimit") != `"flying";r=0` ||
				header.Get("RateLimit-Policy") != `"flying";q=1;qu="concurrent-requests"` || header.Get("X-RateLimit-Reset") != "" {
				t.Errorf("while the permit is held: %d %v", second, header)
			}
			handler.leave <- leave
			first.Wait()
			if want := map[bool]int{true: 0, false: 200}[name == "panics"]; status != want {
				t.Errorf("the first request ended with %d; want %d", status, want)
			}
			// A hijacked or aborted answer is there before the handler is done.
			until.Done(t, "the permit comes back", func() bool { return peek(t, client, prefix, "", limit).Remaining == 1 })
		})
	}
}

// TestShardsAreUnknownToClients: a refusal names what the limit admits, and not the part of the shard that refused.
func TestShardsAreUnknownToClients(t *testing.T) {
	t.Parallel()
	limit := atOnce("flying", 4)
	limit.Shards = 2
	handler := newInside()
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{{Limit: limit, Key: Everyone}}}).Wrap(handler)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { get(h) })
		<-handler.entered
	}
	if said := problem(t, get(h), 429); said["detail"] != `Limit "flying" admits 4 requests at a time.` {
		t.Errorf("problem %v", said)
	}
	for range 4 {
		handler.leave <- func(http.ResponseWriter, *http.Request) {}
	}
	all.Wait()
}

// TestConcurrencyAndRate holds that both are taken together, and what each is
// given back.
func TestConcurrencyAndRate(t *testing.T) {
	t.Parallel()
	handler := newInside()
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{
		{Limit: perHour("user", 2), Key: ByUser(userOf)}, {Limit: atOnce("flying", 1), Key: Everyone},
	}}).Wrap(handler)
	answers := make(chan *http.Response, 1)
	ask := func(user string) {
		go func() { answers <- get(h, with("User", user)) }()
		<-handler.entered
	}
	done := func(http.ResponseWriter, *http.Request) {}
	ask("ann")
	if said := problem(t, get(h, with("User", "ann")), 429); fmt.Sprint(said["violated-policies"]) != "[flying]" {
		t.Errorf("problem %v", said)
	}
	handler.leave <- done
	<-answers
	ask("ann") // the refused request took nothing of the rate
	handler.leave <- done
	if resp := <-answers; resp.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("the second request: %v", resp.Header)
	}
	if said := problem(t, get(h, with("User", "ann")), 429); fmt.Sprint(said["violated-policies"]) != "[user]" {
		t.Errorf("problem %v", said)
	}
	// Without a user there is the concurrency limit alone.
	ask("")
	if said := problem(t, get(h), 429); fmt.Sprint(said["violated-policies"]) != "[flying]" {
		t.Errorf("problem %v", said)
	}
	handler.leave <- done
	<-answers
}

// TestRatesAroundConcurrency: a middleware with a concurrency limit asks Redis about each request that a rate refuses,
// and one with rates alone around it does not.
func TestRatesAroundConcurrency(t *testing.T) {
	t.Parallel()
	client := patient(t, redistest.Shared(t))
	rate, flight := Rule{Limit: perHour("rate", 1), Key: ByUser(userOf)}, Rule{Limit: atOnce("flight", 1), Key: Everyone}
	of := func(rules ...Rule) *Middleware { return mustMiddleware(t, client, MiddlewareConfig{Rules: rules}) }
	sent := &commands{}
	client.AddHook(sent)
	for name, test := range map[string]struct {
		h     http.Handler
		asked int // about three requests that are refused after one that was
	}{
		"together": {of(rate, flight).Wrap(&ok{}), 3},
		"around":   {of(rate).Wrap(of(flight).Wrap(&ok{})), 0},
	} {
		mustOK(t, get(test.h, with("User", "ann")))
		problem(t, get(test.h, with("User", "ann")), 429)
		before := sent.count()
		for range 3 {
			problem(t, get(test.h, with("User", "ann")), 429)
		}
		if asked := sent.count() - before; asked != test.asked {
			t.Errorf("%s: Redis was asked %d times about 3 requests, want %d", name, asked, test.asked)
		}
		mustOK(t, get(test.h, with("User", "bob")))
	}
}

// TestManyAtOnce runs for the race detector, too: no more get through than the
// limit holds, whatever combination of rules applies.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	next := &ok{}
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{
		{Limit: perHour("user", 1000), Key: ByUser(userOf)}, {Limit: perHour("ip", 50), Key: ByIP(ClientIP{})}, {Limit: perHour("all", 1000), Key: Everyone},
	}}).Wrap(next)
	statuses := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			resp := get(h, func(r *http.Request) {
				if i%2 == 0 {
					r.Header.Set("User", "ann")
				}
			})
			mu.Lock()
			defer mu.Unlock()
			statuses[resp.StatusCode]++
		})
	}
	all.Wait()
	if want := map[int]int{200: 50, 429: 150}; !maps.Equal(statuses, want) || next.count() != 50 {
		t.Errorf("answers %v, %d got through; want %v", statuses, next.count(), want)
	}
}
