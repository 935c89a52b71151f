package email

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/clients"
)

// line carries the calls of providers that are reached over HTTP. It follows no
// redirects, and bounds what an answer can make its reader hold.
type line struct{ transport *http.Transport }

const (
	mostDial   = 10 * time.Second // for a connection, and again for TLS on it
	mostAnswer = 64 << 10
)

func newLine(maxIdle int) *line {
	dialer := &net.Dialer{Timeout: mostDial, KeepAlive: 30 * time.Second}
	// HTTP/2 would put all calls on one connection, whose loss makes the outcome of
	// all of them unknown.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &line{&http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return clients.Counted(conn), nil
		},
		Protocols:              protocols,
		TLSHandshakeTimeout:    mostDial,
		IdleConnTimeout:        30 * time.Second, // less than any server should wait
		MaxIdleConns:           max(maxIdle, 0),
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Do makes one call, and no second one. It has the name that Amazon's SDK wants.
func (l *line) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = twiceClosed{r.Body}
	}
	clients.NeverRepeat(r)
	response, err := l.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if p, ok := r.Context().Value(progressKey{}).(*progress); ok {
		p.status.Store(int64(response.StatusCode))
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, mostAnswer), response.Body}
	return response, nil
}

// twiceClosed is a body that the SDK closes, too, as soon as there is an answer.
// For net/http to hear of it from Close would make a request that was written
// look as if it was not, and cost the connection.
type twiceClosed struct{ io.ReadCloser }

func (b twiceClosed) Close() error {
	b.ReadCloser.Close()
	return nil
}

func (l *line) close() { l.transport.CloseIdleConnections() }

// progress is how far a call got, and the status of its answer.
type progress struct {
	clients.Progress
	status atomic.Int64 // 0: no answer came
}

type progressKey struct{}

func (p *progress) watch(ctx context.Context) context.Context {
	return p.Watch(context.WithValue(ctx, progressKey{}, p))
}

// lost is what a call without an answer means:
//
//	it was sent                                       unknown
//	the worker ends                                   ctx's error
//	no connection was asked for: no credentials       retryable, not called
//	no address, no connection, no TLS, a connection
//	that broke, or the time was up, before it was sent unreachable
func lost(ctx, limited context.Context, provider string, sent, tried bool, reason string) error {
	if limited.Err() != nil {
		reason = context.Cause(limited).Error()
	}
	reason = clients.Printable(reason, mostReason)
	switch {
	case sent:
		return clients.Unknown(fmt.Errorf("%s: no answer after the message was sent: %s", provider, reason))
	case ctx.Err() != nil:
		return fmt.Errorf("mail by %s: %w", provider, ctx.Err())
	}
	// As text: an error that matches a context's would be taken for a call that was
	// never made.
	err := fmt.Errorf("%s: %s", provider, reason)
	if !tried {
		return clients.Retryable(clients.NotCalled(err))
	}
	return clients.Unreachable(err)
}

// without cuts secrets out of a provider's words: some repeat what they were sent.
func without(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// checkURL wants https, or this machine: a message and what authenticates it go
// over the line. Its errors do not repeat the text.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("it is not a URL")
	case u.User != nil:
		return errors.New("it has a user or a password")
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("it is not https://host, with or without a path")
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return errors.New("it is not https, and not of this machine")
	}
	return nil
}
