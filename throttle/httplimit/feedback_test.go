package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestFeedback holds that a provider's answer pauses the bucket of the call, in
// Redis, and that the call itself is never repeated.
func TestFeedback(t *testing.T) {
	t.Parallel()
	skewed := time.Now().Add(-1000 * time.Hour).UTC()
	tests := map[string]struct {
		status int
		header map[string]string
		min    time.Duration // of the pause; 0: none
		max    time.Duration
	}{
		"all is well":   {200, map[string]string{"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "1800"}, 0, 0},
		"429":           {429, map[string]string{"Retry-After": "1800"}, 29 * time.Minute, 30 * time.Minute},
		"503":           {503, map[string]string{"Retry-After": "1800"}, 29 * time.Minute, 30 * time.Minute},
		"absurd":        {429, map[string]string{"Retry-After": "99999999999"}, 24*time.Hour - time.Minute, 24 * time.Hour},
		"none left":     {200, map[string]string{"RateLimit": `"hourly";r=0;t=1800`}, 29 * time.Minute, 30 * time.Minute},
		"another clock": {429, map[string]string{"Date": skewed.Format(http.TimeFormat), "Retry-After": skewed.Add(30 * time.Minute).Format(http.TimeFormat)}, 29 * time.Minute, 30 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client()
			p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				for header, value := range test.header {
					w.Header().Set(header, value)
				}
				w.WriteHeader(test.status)
			})
			prefix := prefix(t)
			flying, limit, other := atOnce("flying", 9), perHour("provider", 9), perHour("ours", 9)
			transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{
				{Limit: flying, Key: Everyone}, {Limit: limit, Key: func(r *http.Request) (string, error) { return r.Header.Get("Account"), nil }}, {Limit: other, Key: Everyone},
			}})
			call := func(account string) (int, error) {
				r := newRequest(t, p.URL, newBody())
				r.Header.Set("Account", account)
				return roundTrip(transport, r)
			}
			if status, err := call("a"); status != test.status || err != nil {
				t.Fatalf("%d, %v; want the answer as it is", status, err)
			}
			status, err := call("a")
			if test.min == 0 {
				if err != nil {
					t.Errorf("a second call: %v", err)
				}
				return
			}
			waitErr, ok := errors.AsType[*WaitError](err)
			if !ok {
				t.Fatalf("a second call: %d, %v; want a WaitError", status, err)
			}
			if d := waitErr.Decision; d.Limit != "provider" || waitErr.RetryAfter() < test.min || waitErr.RetryAfter() > test.max || !strings.Contains(d.Paused, fmt.Sprint(test.status)) {
				t.Errorf("a second call: %+v; want a pause of %v to %v, with its reason", d, test.min, test.max)
			}
			if status, err := call("b"); status != test.status || err != nil {
				t.Errorf("another account: %d, %v; want it not to wait", status, err)
			}
			if n := len(p.calls()); n != 2 {
				t.Errorf("%d calls arrived; want 2: none is repeated", n)
			}
		})
	}
}

// TestShortPause holds that calls go on after a pause, which all of them heed.
func TestShortPause(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		if first.CompareAndSwap(false, true) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		}
	})
	rules := []Rule{{Limit: throttle.Limit{Name: "host", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Burst: 10}}}
	config := TransportConfig{Prefix: prefix(t), Rules: rules}
	if status, err := roundTrip(mustTransport(t, redistest.Shared(t).Client(), config), newRequest(t, p.URL, nil)); status != 429 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	other := mustTransport(t, redistest.Shared(t).Client(), config) // another process
	if status, err := roundTrip(other, newRequest(t, p.URL, nil)); status != 200 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	// The second was told when its answer was written, the provider noted it before.
	if times := p.calls(); times[1].Sub(times[0]) < 990*time.Millisecond {
		t.Errorf("the second call came after %v; want a second", times[1].Sub(times[0]))
	}
}

// TestFeedbackFails holds that an answer is an answer, also when nobody can be
// told what it asks for.
func TestFeedbackFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		server.Kill()
		w.WriteHeader(429)
	})
	said := &errorLog{}
	transport := mustTransport(t, patient(t, server), TransportConfig{Rules: []Rule{{Limit: perHour("a", 1)}}, OnError: said.add})
	if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 429 || err != nil {
		t.Errorf("%d, %v; want the provider's answer", status, err)
	}
	if len(said.all()) != 1 {
		t.Errorf("errors %v; want one", said.all())
	}
}

// TestNothingToPause holds that concurrency limits alone are no error.
func TestNothingToPause(t *testing.T) {
	t.Parallel()
	p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) })
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{{Limit: atOnce("flying", 1)}}})
	for range 2 {
		if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 429 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
	}
}
