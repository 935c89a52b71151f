package httplimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestObserveMiddleware: each request that was asked about is observed once, with the limits that applied.
func TestObserveMiddleware(t *testing.T) {
	server := redistest.Start(t)
	for _, failure := range []Failure{FailOpen, FailClosed} {
		var seen []throttle.Observation
		m := mustMiddleware(t, server.Client(), MiddlewareConfig{
			Rules: []Rule{
				{Limit: perHour("user", 1), Key: ByUser(func(r *http.Request) string { return r.Header.Get("User") })},
				{Limit: perHour("all", 3), Key: Everyone},
			},
			OnFailure: failure, OnError: func(*http.Request, error) {},
			Observe: func(o throttle.Observation) { seen = append(seen, o) },
		})
		serve := func(user string) int {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("User", user)
			w := httptest.NewRecorder()
			m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			return w.Code
		}
		for i, want := range []struct {
			user   string
			code   int
			limits int
			limit  string
		}{{"alice", 200, 2, "user"}, {"alice", 429, 2, "user"}, {"", 200, 1, "all"}, {"", 200, 1, "all"}, {"", 429, 1, "all"}} {
			code := serve(want.user)
			if len(seen) != i+1 {
				t.Fatalf("%d requests, %d observations", i+1, len(seen))
			}
			if o := seen[i]; code != want.code || len(o.Limits) != want.limits || o.Decision.Limit != want.limit || o.Decision.Allowed != (code == 200) || o.Err != nil || o.Unlimited || o.Took <= 0 {
				t.Errorf("request %d: %d, observed %+v", i, code, o)
			}
		}
		server.Kill()
		code := serve("bob")
		o := seen[len(seen)-1]
		if len(seen) != 6 || o.Err == nil || o.Unlimited != (failure == FailOpen) || o.Unlimited != (code == 200) {
			t.Errorf("without Redis: %d, observed %+v", code, o)
		}
		server.Restart()
	}
}

// TestObserverPanics: a permit of a concurrency limit comes back also if the observer panics, which a server survives.
func TestObserverPanics(t *testing.T) {
	client := redistest.Shared(t).Client()
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer provider.Close()
	panics := true
	observe := func(o throttle.Observation) {
		if panics {
			panic("the observer")
		}
		if !o.Decision.Allowed {
			t.Errorf("%+v", o)
		}
	}
	m := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{{Limit: atOnce("requests", 1), Key: Everyone}}, Observe: observe}).Wrap(&ok{})
	transport := mustTransport(t, client, TransportConfig{Rules: []Rule{{Limit: atOnce("calls", 1), Key: Everyone}}, Observe: observe, MaxWait: time.Second})
	for name, call := range map[string]func(){
		"middleware": func() {
			m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		},
		"transport": func() {
			r, err := http.NewRequestWithContext(t.Context(), "GET", provider.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := transport.RoundTrip(r); err != nil {
				t.Error(err)
			} else {
				resp.Body.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			panics = true
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the observer did not panic")
					}
				}()
				call()
			}()
			panics = false
			call()
		})
	}
}

// TestObserveTransport: each call is observed once, with the time until its slot.
func TestObserveTransport(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer provider.Close()
	var seen []throttle.Observation
	limit := throttle.Limit{Name: "provider", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(20)}
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{
		Rules: []Rule{{Limit: limit}}, Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) },
		Observe: func(o throttle.Observation) { seen = append(seen, o) },
	})
	client := &http.Client{Transport: transport}
	get := func(path string) error {
		r, err := http.NewRequestWithContext(t.Context(), "GET", provider.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	transport.maxWait = time.Minute
	calls := 0
	for waited := false; !waited; { // on a machine that stalls, a call comes after its slot
		if err := get("/"); err != nil {
			t.Fatal(err)
		}
		calls++
		o := seen[len(seen)-1]
		if len(seen) != calls || calls == 100 || !o.Decision.Allowed || o.Waited < o.Decision.Delay || o.Took <= 0 {
			t.Fatalf("%d calls, observed %+v", calls, seen)
		}
		waited = o.Decision.Delay > 0
	}
	if err := get("/" + strings.Repeat("a", 1999)); err != nil { // a hundred seconds of the limit
		t.Fatal(err)
	}
	transport.maxWait = time.Millisecond
	err := get("/")
	var waitErr *WaitError
	if o := seen[len(seen)-1]; !errors.As(err, &waitErr) || len(seen) != calls+2 || o.Err != nil || o.Decision != waitErr.Decision || o.Waited != 0 {
		t.Errorf("%v; observed %+v", err, o)
	}
}
