package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) {
	pacer.Main()
	redistest.Main(m)
}

// perHour is a limit of which nothing comes back while a test runs.
func perHour(name string, burst int64) throttle.Limit {
	return throttle.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: burst}
}

func atOnce(name string, n int64) throttle.Limit {
	return throttle.Limit{Name: name, Algorithm: throttle.Concurrency, Concurrency: n}
}

func prefix(t testing.TB) string { return "test:" + redistest.Queue(t) }

// patient is a client that waits for a Redis which hangs for as long as a test
// may take: whoever gives up earlier does so by himself.
func patient(t testing.TB, server *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr:                     server.Addr(),
		ReadTimeout:              5 * time.Minute,
		MaxRetries:               -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func mustMiddleware(t testing.TB, client redis.UniversalClient, config MiddlewareConfig) *Middleware {
	t.Helper()
	if config.Prefix == "" {
		config.Prefix = prefix(t)
	}
	if config.OnFailure == 0 {
		config.OnFailure = FailClosed
	}
	if config.Timeout == 0 {
		config.Timeout = time.Minute // a busy machine is not a Redis that is away
	}
	if config.OnError == nil {
		config.OnError = func(_ *http.Request, err error) { t.Errorf("OnError: %v", err) }
	}
	m, err := NewMiddleware(client, config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustTransport(t testing.TB, client redis.UniversalClient, config TransportConfig) *Transport {
	t.Helper()
	if config.Prefix == "" {
		config.Prefix = prefix(t)
	}
	if config.OnFailure == 0 {
		config.OnFailure = FailClosed
	}
	if config.Timeout == 0 {
		config.Timeout = time.Minute
	}
	if config.OnError == nil {
		config.OnError = func(_ *http.Request, err error) { t.Errorf("OnError: %v", err) }
	}
	if config.Base == nil {
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		config.Base = base
	}
	transport, err := NewTransport(client, config)
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// peek is what a bucket has.
func peek(t testing.TB, client redis.UniversalClient, prefix string, key string, limits ...throttle.Limit) throttle.Decision {
	t.Helper()
	limiter, err := throttle.New(client, prefix, limits...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := limiter.Peek(t.Context(), 1, key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// get asks a handler, and returns its answer.
func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func with(header, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(header, value) }
}

func from(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr }
}

// ok is a handler that counts.
type ok struct {
	mu sync.Mutex
	n  int
}

func (h *ok) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	h.n++
	h.mu.Unlock()
	_, _ = fmt.Fprint(w, "ok")
}

func (h *ok) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// userOf is a user func that reads a header, as an authentication might.
func userOf(r *http.Request) string { return r.Header.Get("User") }

// errorLog collects what OnError is told.
type errorLog struct {
	mu   sync.Mutex
	list []error
}

func (l *errorLog) add(_ *http.Request, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, err)
}

func (l *errorLog) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.list...)
}

// commands counts what a client sends, in pipelines or not.
type commands struct {
	mu sync.Mutex
	n  int
}

func (c *commands) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *commands) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.add(1)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.add(len(cmds))
		return next(ctx, cmds)
	}
}
