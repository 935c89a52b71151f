package httplimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/httpcall"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/throttle"
)

func TestWaitError(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	for name, limits := range map[string][]throttle.Limit{
		"one limit":       {perHour("a", 1)},
		"two limits":      {perHour("a", 1), perHour("b", 2)},
		"and concurrency": {perHour("a", 1), atOnce("flying", 10)},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []Rule
			for _, limit := range limits {
				rules = append(rules, Rule{Limit: limit})
			}
			before := len(p.calls())
			transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: rules})
			client := &http.Client{Transport: transport}
			if resp, err := client.Post(p.URL, "", nil); err != nil {
				t.Fatal(err)
			} else {
				_ = resp.Body.Close()
			}
			refused := func(r *http.Request, most time.Duration) {
				t.Helper()
				b := newBody()
				r.Body, r.ContentLength = b, 5
				_, err := client.Do(r)
				waitErr, ok := errors.AsType[*WaitError](err)
				if !ok {
					t.Fatalf("error %v; want a WaitError", err)
				}
				if waitErr.RetryAfter() < 50*time.Minute || waitErr.RetryAfter() > time.Hour || waitErr.Decision.Limit != "a" || waitErr.MaxWait > most || waitErr.MaxWait <= 0 {
					t.Errorf("%+v", waitErr)
				}
				if _, ok := errors.AsType[interface {
					error
					RetryAfter() time.Duration
				}](err); !ok {
					t.Error("nothing in the error says RetryAfter")
				}
				if b.closed.Load() == 0 {
					t.Error("the request's body was not closed")
				}
			}
			refused(newRequest(t, p.URL, nil), defaultMaxWait)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			refused(newRequest(t, p.URL, nil).WithContext(ctx), 30*time.Second)
			if n := len(p.calls()) - before; n != 1 {
				t.Errorf("%d calls arrived; want 1", n)
			}
		})
	}
}

// TestCallNotMade holds that what certainly was not sent gives its slot back, and
// nothing else does.
func TestCallNotMade(t *testing.T) {
	t.Parallel()
	nobody := "http://" + redistest.FreeAddr(t)
	rude := startProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	dialErr := &net.OpError{Op: "dial", Err: errors.New("refused")}
	tests := map[string]struct {
		url  string
		base http.RoundTripper
		left int64
	}{
		"nobody there":                {nobody, nil, 5},
		"bad scheme":                  {"gopher://example.com", nil, 5},
		"hung up":                     {rude.URL, nil, 4},
		"somebody else's transport":   {nobody, roundTripper(func(r *http.Request) (*http.Response, error) { httpcall.CloseBody(r); return nil, dialErr }), 4},
		"somebody else's, in between": {rude.URL, roundTripper(http.DefaultTransport.RoundTrip), 4},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := redistest.Shared(t).Client()
			prefix, limit := prefix(t), perHour("host", 5)
			transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}, Base: test.base})
			b := newBody()
			if _, err := transport.RoundTrip(newRequest(t, test.url, b)); err == nil {
				t.Fatal("no error")
			}
			until.Done(t, "the body is closed", func() bool { return b.closed.Load() > 0 })
			if got := peek(t, client, prefix, "", limit).Remaining; got != test.left {
				t.Errorf("%d permits left; want %d", got, test.left)
			}
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestContextEnds holds that a call which gives up while it waits gives its slot
// to others.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	p := startProvider(t, nil)
	prefix := prefix(t)
	limit := throttle.Limit{Name: "host", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 30 * time.Second}}
	transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}})
	if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 200 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	slot := func() time.Duration { return peek(t, client, prefix, "", limit).RetryAfter }

	ctx, cancel := context.WithCancel(t.Context())
	b := newBody()
	failed := make(chan error)
	go func() {
		_, err := transport.RoundTrip(newRequest(t, p.URL, b).WithContext(ctx))
		failed <- err
	}()
	until.Done(t, "a slot is reserved", func() bool { return slot() > 30*time.Second })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || b.closed.Load() == 0 {
		t.Errorf("error %v, body closed %d times; want the context's and a closed body", err, b.closed.Load())
	}
	until.Done(t, "the slot is given back", func() bool { return slot() <= 30*time.Second })

	b = newBody()
	if _, err := transport.RoundTrip(newRequest(t, p.URL, b).WithContext(ctx)); !errors.Is(err, context.Canceled) || b.closed.Load() == 0 {
		t.Errorf("with a context that has ended: %v, body closed %d times", err, b.closed.Load())
	}
	if n := len(p.calls()); n != 1 {
		t.Errorf("%d calls arrived; want 1", n)
	}
}

// TestErrorsNameTheirCall: OnError gets the call whose slot Redis did not take back.
func TestErrorsNameTheirCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := patient(t, server)
	p := startProvider(t, nil)
	prefix := prefix(t)
	limit := throttle.Limit{Name: "host", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 30 * time.Second}}
	named := make(chan *http.Request, 1)
	transport := mustTransport(t, client, TransportConfig{
		Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}, OnError: func(r *http.Request, _ error) { named <- r },
	})
	if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 200 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	call := newRequest(t, p.URL, nil).WithContext(ctx)
	failed := make(chan error)
	go func() {
		_, err := transport.RoundTrip(call)
		failed <- err
	}()
	until.Done(t, "a slot is reserved", func() bool { return peek(t, client, prefix, "", limit).RetryAfter > 30*time.Second })
	until.Done(t, "Redis has answered", func() bool { s := client.PoolStats(); return s.IdleConns == s.TotalConns })
	server.Kill()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want the context's error", err)
	}
	if r := <-named; r != call {
		t.Errorf("OnError was called with a request to %v; want that of the call", r.URL)
	}
}

func TestTransportFailure(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill,
		"hangs":  (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := patient(t, server)
			p := startProvider(t, nil)
			said := &errorLog{}
			make := func(failure Failure) *Transport {
				return mustTransport(t, client, TransportConfig{
					Rules: []Rule{{Limit: perHour("a", 1)}}, OnFailure: failure, OnError: said.add, Timeout: 30 * time.Millisecond,
				})
			}
			open, closed := make(FailOpen), make(FailClosed)
			fail(server)
			for range 2 {
				if status, err := roundTrip(open, newRequest(t, p.URL, newBody())); status != 200 || err != nil {
					t.Errorf("open: %d, %v", status, err)
				}
			}
			b := newBody()
			if _, err := closed.RoundTrip(newRequest(t, p.URL, b)); err == nil || errors.As(err, new(*WaitError)) || b.closed.Load() == 0 {
				t.Errorf("closed: %v, body closed %d times; want an error that is no WaitError", err, b.closed.Load())
			}
			// An error that is returned is not told again.
			if len(p.calls()) != 2 || len(said.all()) != 2 {
				t.Errorf("%d calls arrived, errors %v; want 2 and 2", len(p.calls()), said.all())
			}
			if name == "hangs" {
				server.Resume()
			}
		})
	}
}
