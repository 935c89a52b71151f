package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/httpcall"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/throttle"
)

// provider is a server that notes when it was called.
type provider struct {
	*httptest.Server
	mu    sync.Mutex
	times []time.Time
}

func startProvider(t testing.TB, answer http.HandlerFunc) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.times = append(p.times, time.Now())
		p.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) calls() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.times)
}

// body is a request's body that tells whether it was closed.
type body struct {
	io.Reader
	closed atomic.Int32
}

func (b *body) Close() error {
	b.closed.Add(1)
	return nil
}

func newBody() *body { return &body{Reader: strings.NewReader("hello")} }

func newRequest(t testing.TB, url string, b *body) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b != nil {
		r.Body, r.ContentLength = b, 5
	}
	return r
}

// roundTrip makes a call and reads its answer.
func roundTrip(transport http.RoundTripper, r *http.Request) (int, error) {
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// TestTimedTransportShapes judges the calls where they arrive.
func TestTimedTransportShapes(t *testing.T) {
	const rate, burst, n = 50, 3, 40
	pacer.Measure(t, func(t *testing.T, run *pacer.Run) {
		p := startProvider(t, nil)
		transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{
			{Limit: throttle.Limit{Name: "host", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Burst: burst}},
		}})
		client := &http.Client{Transport: transport}
		run.Here()
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				resp, err := client.Get(p.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			})
		}
		all.Wait()
		times := p.calls()
		if len(times) != n {
			t.Fatalf("%d calls arrived; want %d", len(times), n)
		}
		run.Law("host", times, rate, burst)
	})
}

func TestTransportHosts(t *testing.T) {
	t.Parallel()
	first, second := startProvider(t, nil), startProvider(t, nil)
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{{Limit: perHour("host", 1)}}})
	for _, p := range []*provider{first, second} {
		if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 200 || err != nil {
			t.Errorf("first call: %d, %v", status, err)
		}
		var waitErr *WaitError
		if _, err := roundTrip(transport, newRequest(t, p.URL, nil)); !errors.As(err, &waitErr) {
			t.Errorf("second call: %v; want a WaitError", err)
		}
		if len(p.calls()) != 1 {
			t.Errorf("%d calls arrived; want 1", len(p.calls()))
		}
	}
}

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

// TestSeveralLimitsWait holds that a call waits for a slot of several limits, as
// of one, although those are not reserved from afar.
func TestSeveralLimitsWait(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	every := throttle.Limit{Name: "every", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 1300 * time.Millisecond}}
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{{Limit: every}, {Limit: perHour("b", 10)}}})
	begin := time.Now()
	for range 2 {
		if status, err := roundTrip(transport, newRequest(t, p.URL, nil)); status != 200 || err != nil {
			t.Fatalf("%d, %v", status, err)
		}
	}
	if got := p.calls()[1].Sub(begin); got < 1299*time.Millisecond {
		t.Errorf("the second call came after %v; want 1.3s", got)
	}
}

func TestTransportCost(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{
		Rules: []Rule{{Limit: perHour("tokens", 10)}},
		Cost:  func(r *http.Request) int64 { return r.ContentLength * 2 },
	})
	if status, err := roundTrip(transport, newRequest(t, p.URL, newBody())); status != 200 || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	if _, err := roundTrip(transport, newRequest(t, p.URL, newBody())); err == nil {
		t.Error("the bucket had more than ten")
	}
	b := newBody()
	r := newRequest(t, p.URL, b)
	r.ContentLength = 6
	if _, err := transport.RoundTrip(r); !errors.As(err, new(*throttle.CostError)) || b.closed.Load() == 0 {
		t.Errorf("error %v, body closed %d times; want a CostError and a closed body", err, b.closed.Load())
	}
	if n := len(p.calls()); n != 1 {
		t.Errorf("%d calls arrived; want 1", n)
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

// TestContract holds what net/http asks of a RoundTripper.
func TestContract(t *testing.T) {
	t.Parallel()
	p := startProvider(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{{Limit: perHour("host", 9)}, {Limit: atOnce("flying", 9)}}})
	b := newBody()
	r := newRequest(t, p.URL, b)
	r.Header.Set("X", "y")
	before := *r
	header := r.Header.Clone()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(resp.Body)
	if string(said) != "hello" || resp.Request != r {
		t.Errorf("answer %q to %p; want hello to %p", said, resp.Request, r)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(*r, before) || !reflect.DeepEqual(r.Header, header) {
		t.Errorf("the request was changed: %+v", r)
	}
	if b.closed.Load() == 0 {
		t.Error("the body was not closed")
	}
}

func TestTransportKeys(t *testing.T) {
	t.Parallel()
	p := startProvider(t, nil)
	said := errors.New("no tenant")
	transport := mustTransport(t, redistest.Shared(t).Client(), TransportConfig{Rules: []Rule{{Limit: perHour("tenant", 1), Key: func(r *http.Request) (string, error) {
		switch tenant := r.Header.Get("Tenant"); tenant {
		case "":
			return "", said
		case "internal":
			return "", ErrSkip
		default:
			return tenant, nil
		}
	}}}})
	call := func(tenant string) (*body, error) {
		b := newBody()
		r := newRequest(t, p.URL, b)
		r.Header.Set("Tenant", tenant)
		_, err := roundTrip(transport, r)
		return b, err
	}
	if b, err := call(""); !errors.Is(err, said) || b.closed.Load() == 0 {
		t.Errorf("without a key: %v, body closed %d times", err, b.closed.Load())
	}
	for _, tenant := range []string{"internal", "internal", "a", "b"} {
		if _, err := call(tenant); err != nil {
			t.Errorf("%s: %v", tenant, err)
		}
	}
	if _, err := call("a"); !errors.As(err, new(*WaitError)) {
		t.Errorf("a second call of a: %v", err)
	}
}

// TestFarSlot holds that a call which waits long for one host keeps none from
// another, also where one of several rules applies and the rest are skipped.
func TestFarSlot(t *testing.T) {
	t.Parallel()
	first, second := startProvider(t, nil), startProvider(t, nil)
	prefix := prefix(t)
	limit := throttle.Limit{Name: "host", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 30 * time.Second}}
	never := func(*http.Request) (string, error) { return "", ErrSkip }
	client := redistest.Shared(t).Client()
	transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit}, {Limit: perHour("tenant", 1), Key: never}}})
	call := func(ctx context.Context, p *provider) error {
		_, err := roundTrip(transport, newRequest(t, p.URL, nil).WithContext(ctx))
		return err
	}
	if err := call(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() { waiting <- call(ctx, first) }()
	host := strings.TrimPrefix(first.URL, "http://")
	until.Done(t, "a slot is reserved", func() bool {
		// Company for the limit: together they have the buckets of several.
		return peek(t, client, prefix, host, limit, perHour("company", 1)).RetryAfter > 30*time.Second
	})
	quick, stop := context.WithTimeout(t.Context(), 20*time.Second) // less than the other one's wait
	defer stop()
	if err := call(quick, second); err != nil {
		t.Errorf("the other host: %v", err)
	}
	cancel()
	<-waiting
}

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

func TestTransportConcurrency(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	for name, finish := range map[string]func(*http.Response) error{
		"read":   func(resp *http.Response) error { _, err := io.ReadAll(resp.Body); return err },
		"closed": func(resp *http.Response) error { return resp.Body.Close() },
		"twice":  func(resp *http.Response) error { return errors.Join(resp.Body.Close(), resp.Body.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
			prefix, limit := prefix(t), atOnce("flying", 1)
			transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}, MaxWait: 50 * time.Millisecond})
			resp, err := transport.RoundTrip(newRequest(t, p.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			if got := peek(t, client, prefix, "", limit).Remaining; got != 0 {
				t.Errorf("%d permits left while the answer is unread; want 0", got)
			}
			if _, err := transport.RoundTrip(newRequest(t, p.URL, nil)); !errors.As(err, new(*WaitError)) {
				t.Errorf("a second call: %v; want a WaitError", err)
			}
			if err := finish(resp); err != nil {
				t.Error(err)
			}
			if got := peek(t, client, prefix, "", limit).Remaining; got != 1 {
				t.Errorf("%d permits left after the answer; want 1", got)
			}
			_ = resp.Body.Close()
		})
	}
	t.Run("waits for the permit", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t, nil)
		transport := mustTransport(t, client, TransportConfig{Rules: []Rule{{Limit: atOnce("flying", 1), Key: Everyone}}})
		resp, err := transport.RoundTrip(newRequest(t, p.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error)
		go func() { _, err := roundTrip(transport, newRequest(t, p.URL, nil)); second <- err }()
		_ = resp.Body.Close()
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		prefix, limit := prefix(t), atOnce("flying", 1)
		broken := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") })
		transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}, Base: broken})
		if _, err := transport.RoundTrip(newRequest(t, "http://x", nil)); err == nil || err.Error() != "broken" {
			t.Errorf("error %v; want Base's own", err)
		}
		if got := peek(t, client, prefix, "", limit).Remaining; got != 1 {
			t.Errorf("%d permits left; want 1", got)
		}
	})
	t.Run("upgraded", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(conn, line)
		})
		prefix, limit := prefix(t), atOnce("flying", 1)
		transport := mustTransport(t, client, TransportConfig{Prefix: prefix, Rules: []Rule{{Limit: limit, Key: Everyone}}})
		r := newRequest(t, p.URL, nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		conn, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("the body of a 101 is a %T; want one to write to", resp.Body)
		}
		_, _ = io.WriteString(conn, "hi\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hi\n" || err != nil {
			t.Errorf("echo %q, %v", line, err)
		}
		if got := peek(t, client, prefix, "", limit).Remaining; got != 0 {
			t.Errorf("%d permits left while the connection is up; want 0", got)
		}
		_ = conn.Close()
		if got := peek(t, client, prefix, "", limit).Remaining; got != 1 {
			t.Errorf("%d permits left after it; want 1", got)
		}
	})
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

func TestTransportConfig(t *testing.T) {
	client := redistest.Shared(t).Client()
	good := TransportConfig{Rules: []Rule{{Limit: perHour("a", 1)}}, OnFailure: FailOpen}
	if transport, err := NewTransport(client, good); err != nil || transport.base != http.DefaultTransport {
		t.Fatal(transport, err)
	}
	if good.Rules[0].Key != nil {
		t.Error("the caller's rules were changed")
	}
	for want, change := range map[string]func(*TransportConfig){
		"OnFailure": func(c *TransportConfig) { c.OnFailure = 0 },
		"Rules":     func(c *TransportConfig) { c.Rules = nil },
		"MaxWait":   func(c *TransportConfig) { c.MaxWait = -1 },
		"Timeout":   func(c *TransportConfig) { c.Timeout = -1 },
		"rate": func(c *TransportConfig) {
			c.Rules = []Rule{{Limit: throttle.Limit{Name: "a", Algorithm: throttle.TokenBucket}}}
		},
	} {
		config := good
		change(&config)
		if _, err := NewTransport(client, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	_, err := NewTransport(client, TransportConfig{MaxWait: -1, Timeout: -1})
	for _, want := range []string{"OnFailure", "MaxWait", "Timeout", "Rules"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
