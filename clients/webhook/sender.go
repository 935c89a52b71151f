package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// Config says how calls are made. The zero Config is ready for use.
type Config struct {
	// Timeout bounds a call from dialling to the end of its answer. 0 means 30 s.
	Timeout time.Duration

	// AllowPrivate lets calls go to addresses that are not of the public internet.
	AllowPrivate bool

	// Secrets gives the signing secrets of a tenant, as [CheckSecret] wants them:
	// with each of them every call is signed as Standard Webhooks has it, so that
	// during a rotation the old and the new one are given. Without an error and
	// without secrets, the tenant's calls are not signed. It is asked before each
	// call, by many at once. nil means that nothing is signed.
	Secrets func(ctx context.Context, tenant string) ([]string, error)

	// RetryNotFound is for how long after its first attempt a job whose receiver
	// answers 404 is tried again. 0 means an hour; below 0, 404 is permanent.
	RetryNotFound time.Duration
	// MaxRetryAfter bounds for how long a receiver can ask to be left alone. 0 means
	// an hour.
	MaxRetryAfter time.Duration

	// MaxBody is how many bytes the body of a request may have. 0 means 1 MiB.
	MaxBody int

	// UserAgent is sent when the request names none. "" means Headgate.
	UserAgent string

	// TLS holds further roots, or a certificate of ours. nil means the system's
	// roots.
	TLS *tls.Config

	// MaxIdlePerHost is how many connections to one host are kept for the next
	// calls; more may be open while they are in use. 0 means 512.
	MaxIdlePerHost int
}

// Sender makes calls. It keeps connections for later ones.
type Sender struct {
	config    Config
	dialer    *dialer
	transport *http.Transport
	now       func() time.Time
}

const (
	maxIdle   = 4096
	maxAnswer = 64 << 10
)

// New makes a Sender; fields of the Config that are not above zero mean their
// defaults, but for RetryNotFound.
func New(config Config) *Sender {
	config.Timeout = cmp.Or(max(config.Timeout, 0), 30*time.Second)
	config.RetryNotFound = cmp.Or(config.RetryNotFound, retryNotFound)
	config.MaxRetryAfter = cmp.Or(max(config.MaxRetryAfter, 0), time.Hour)
	config.MaxBody = cmp.Or(max(config.MaxBody, 0), 1<<20)
	config.MaxIdlePerHost = cmp.Or(max(config.MaxIdlePerHost, 0), 512)
	config.UserAgent = cmp.Or(config.UserAgent, "Headgate")
	dialer := newDialer(config)
	transport := shared.New(config.MaxIdlePerHost)
	transport.Proxy, transport.DialContext, transport.DialTLSContext = nil, dialer.plain, dialer.secure
	transport.MaxIdleConns = max(maxIdle, config.MaxIdlePerHost)
	transport.DisableCompression = true // an answer is read for its first line at most
	return &Sender{config: config, dialer: dialer, now: time.Now, transport: transport}
}

// Close closes the connections that wait for the next call. Calls under way go
// on; the Sender stays usable.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send makes the call. nil means that it was answered with 2xx; otherwise see
// the tables at [outcome] and [Sender.notFound] for answers, and [lost] for calls
// without one.
//
// When ctx is cancelled before the request was sent, the error wraps ctx's.
// Cancelled later, the outcome is unknown, as after a lost connection.
func (s *Sender) Send(ctx context.Context, call clients.Call, request Request) error {
	if err := request.Validate(); err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	if size := len(request.body()); size > s.config.MaxBody {
		return clients.Permanent(clients.NotCalled(fmt.Errorf("body: %d bytes are more than %d", size, s.config.MaxBody)))
	}
	// Its own cause tells the end of the time from the end of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.config.Timeout, fmt.Errorf("gave up after %v", s.config.Timeout))
	defer cancel()
	seen := &clients.Progress{}
	r, err := s.build(seen.Watch(limited), call, request)
	if err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	if err := s.sign(limited, r, call, request.body()); err != nil {
		return err
	}
	hidden := secretsOf(r)
	response, err := s.transport.RoundTrip(r)
	if err != nil {
		return lost(ctx, limited, r.URL.Host, hidden, seen.Sent(), err)
	}
	defer response.Body.Close()
	// Read to its end, the connection can be used again. Of a longer answer the
	// rest is not worth the wait, and what follows the status decides nothing.
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode/100 == 2 {
		return nil
	}
	err = s.outcome(response, hidden.cut(body))
	if response.StatusCode == http.StatusNotFound {
		return s.notFound(call, errors.Unwrap(err))
	}
	return err
}

func (s *Sender) build(ctx context.Context, call clients.Call, request Request) (*http.Request, error) {
	u, err := parseURL(request.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	u.Fragment, u.RawFragment = "", ""
	r, err := http.NewRequestWithContext(ctx, request.method(), "", nil)
	if err != nil {
		return nil, errors.New("method: it is not one of HTTP")
	}
	r.URL, r.Host = u, u.Host
	if body := request.body(); len(body) > 0 {
		r.ContentLength = int64(len(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
		r.Header.Set("Content-Type", "application/json")
		if request.Text != "" {
			r.Header.Set("Content-Type", "text/plain; charset=utf-8")
		}
	}
	r.Header.Set("User-Agent", s.config.UserAgent)
	for name, value := range request.Headers {
		r.Header.Set(name, value)
	}
	for name, value := range call.Headers() {
		r.Header.Set(name, value)
	}
	clients.NeverRepeat(r)
	return r, nil
}
