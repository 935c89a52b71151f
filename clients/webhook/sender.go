package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// Config configures a [Sender]. The zero Config is ready to use.
type Config struct {
	// Timeout limits a call, from dialling to the end of the answer. 0 means 30 s.
	Timeout time.Duration

	// AllowPrivate allows calls to addresses that are not public internet addresses.
	AllowPrivate bool

	// Secrets returns the signing secrets of a tenant, in the form of [CheckSecret]. Every call is
	// signed with each of them according to Standard Webhooks; during a rotation, return the old
	// and the new secret. If it returns neither secrets nor an error, the tenant's calls are not
	// signed. It is called before each call, concurrently. nil means that no call is signed.
	Secrets func(ctx context.Context, tenant string) ([]string, error)

	// Quota gets what an answer says of the receiver's limit on requests, before Send returns. It is
	// called with Send's ctx, concurrently, and only for answers that say something of it. nil means
	// that it is ignored.
	Quota func(ctx context.Context, quota clients.Quota)

	// RetryNotFound is how long after its first attempt a job is retried if the receiver answers
	// 404. 0 means an hour. If it is negative, 404 is permanent.
	RetryNotFound time.Duration
	// MaxRetryAfter is the max Retry-After of a receiver. 0 means an hour.
	MaxRetryAfter time.Duration

	// MaxBody is the max number of bytes of a request body. 0 means 1 MiB.
	MaxBody int

	// UserAgent is the default User-Agent. "" means Headgate.
	UserAgent string

	// TLS can have other roots or a client certificate. nil means the system's roots.
	TLS *tls.Config

	// MaxIdlePerHost is the max number of idle connections per host; more can be open while in
	// use. 0 means 512.
	MaxIdlePerHost int
}

// Sender makes calls. It reuses connections.
type Sender struct {
	config    Config
	dialer    *net.Dialer // of transport
	transport *http.Transport
	now       func() time.Time
}

const (
	maxIdle   = 4096
	maxAnswer = 64 << 10
)

// New returns a Sender. Fields of the Config that are zero or negative mean their defaults,
// except a negative RetryNotFound.
func New(config Config) *Sender {
	config.Timeout = cmp.Or(max(config.Timeout, 0), 30*time.Second)
	config.RetryNotFound = cmp.Or(config.RetryNotFound, retryNotFound)
	config.MaxRetryAfter = cmp.Or(max(config.MaxRetryAfter, 0), time.Hour)
	config.MaxBody = cmp.Or(max(config.MaxBody, 0), 1<<20)
	config.MaxIdlePerHost = cmp.Or(max(config.MaxIdlePerHost, 0), 512)
	config.UserAgent = cmp.Or(config.UserAgent, "Headgate")
	dialer := shared.Dialer()
	if !config.AllowPrivate {
		// Check the address that is dialled, not the name, which may resolve to another address
		// the second time.
		dialer.Control = publicOnly
	}
	transport := shared.New(config.MaxIdlePerHost, dialer)
	transport.Proxy = nil // it would dial in our place
	transport.TLSClientConfig = cmp.Or(config.TLS, &tls.Config{}).Clone()
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.MaxIdleConns = max(maxIdle, config.MaxIdlePerHost)
	transport.DisableCompression = true // at most the beginning of an answer is used
	return &Sender{config: config, dialer: dialer, now: time.Now, transport: transport}
}

// Close closes idle connections. Calls in flight continue, and the Sender stays usable.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send makes the call. If the error is nil, the answer was 2xx; otherwise see the tables at
// [Sender.outcome] and [Sender.notFound] for answers, and at lost for calls without an answer.
//
// If ctx is cancelled before the request was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection.
func (s *Sender) Send(ctx context.Context, call clients.Call, request Request) error {
	if err := request.Validate(); err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	if size := len(request.body()); size > s.config.MaxBody {
		return clients.Permanent(clients.NotCalled(fmt.Errorf("body: %d bytes; the maximum is %d", size, s.config.MaxBody)))
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
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
	shared.Limit(response, maxAnswer)
	defer response.Body.Close()
	if s.config.Quota != nil {
		if quota := QuotaOf(response.Header); quota != nil {
			s.config.Quota(ctx, *quota)
		}
	}
	// A connection can be reused only after reading the answer to its end. The rest of a longer
	// answer is not worth the wait; only the status matters.
	body, _ := io.ReadAll(response.Body)
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
		return nil, errors.New("method: it is not an HTTP method")
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
