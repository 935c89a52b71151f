// Package webhook makes HTTP calls to the URLs that jobs name.
//
// It refuses private addresses unless told otherwise, follows no redirect, and
// retries nothing: that is the queue's.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"

	"github.com/headgate/headgate/clients"
)

// Config says how webhooks are sent; the zero value is ready to use.
type Config struct {
	Timeout      time.Duration // of one call, dialling included; 0 means 30 s
	AllowPrivate bool          // also call private, loopback and link-local addresses
	MaxBody      int           // bytes of a request's body; 0 means 1 MiB
}

const (
	defaultTimeout = 30 * time.Second
	defaultMaxBody = 1 << 20
	// mostResponse is read of an answer, so that its connection can be used again.
	mostResponse = 64 << 10
)

// Sender makes calls. It is safe for concurrent use.
type Sender struct {
	config    Config
	client    *http.Client
	transport *http.Transport
}

// New makes a sender.
func New(config Config) *Sender {
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.MaxBody = cmp.Or(config.MaxBody, defaultMaxBody)
	dialer := &net.Dialer{Timeout: config.Timeout, KeepAlive: 30 * time.Second}
	if !config.AllowPrivate {
		// Asked for the address that is dialled, after the name was resolved: a name
		// that points elsewhere the second time gets no further.
		dialer.Control = ssrf.New(ssrf.WithAnyPort()).Safe
	}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 1024, // a burst of calls to one host must not dial anew each time
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	return &Sender{config: config, transport: transport, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections. Calls that are being made are finished.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send makes one call. What its error means:
//
//	429, and 503 with Retry-After        Throttled
//	408, 425 and other 5xx               Retryable
//	other 3xx and 4xx                    Permanent
//	no connection, no TLS                Retryable
//	a private address, a bad request     Permanent
//	sent, but no answer                  Unknown
func (s *Sender) Send(ctx context.Context, call clients.Call, r Request) error {
	if err := r.Validate(); err != nil {
		return clients.Permanent(err)
	}
	if len(r.Body) > s.config.MaxBody {
		return clients.Permanent(fmt.Errorf("body: %d bytes are more than %d", len(r.Body), s.config.MaxBody))
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { sent.Store(true) },
	})
	request, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodPost), r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return clients.Permanent(errors.New("url: it is not a URL"))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Headgate")
	for name, value := range r.Headers {
		request.Header.Set(name, value)
	}
	for name, value := range call.Headers() {
		request.Header.Set(name, value)
	}
	// With the key the transport would send the call again by itself.
	request.GetBody = nil
	response, err := s.client.Do(request)
	if err != nil {
		return failed(err, sent.Load(), request.URL.Host)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, mostResponse)) // the status decides; the text only explains
	return answered(response, body)
}

// failed judges a call without an answer. The error names the host, never the
// rest of the URL, where receivers keep their secrets.
func failed(err error, sent bool, host string) error {
	cause := err
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		cause = wrapped.Err
	}
	cause = fmt.Errorf("%s: %w", host, cause)
	switch {
	case errors.Is(err, context.Canceled):
		return cause
	case errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrProhibitedPort):
		return clients.Permanent(fmt.Errorf("%w (private addresses are refused unless allowed)", cause))
	case sent:
		return clients.Unknown(fmt.Errorf("no answer from %w", cause))
	}
	return clients.Retryable(cause)
}

func answered(response *http.Response, body []byte) error {
	status := response.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	err := fmt.Errorf("%s answered %d", response.Request.URL.Host, status)
	if text := clients.Printable(string(body), 200); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	after := response.Header.Get("Retry-After")
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && after != "":
		return clients.Throttled(clients.ParseRetryAfter(after, time.Now()), err)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		return clients.Retryable(err)
	}
	return clients.Permanent(err)
}
