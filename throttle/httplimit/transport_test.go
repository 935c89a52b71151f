package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
