package email

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// line makes the calls of providers with an HTTP API. It follows no redirects and limits the
// size of answers.
type line struct{ transport *http.Transport }

const maxAnswer = 64 << 10

func newLine(maxIdle int) *line { return &line{shared.New(maxIdle, shared.Dialer())} }

// Do makes one call, without repeats. Amazon's SDK requires this name.
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
	shared.Limit(response, maxAnswer)
	return response, nil
}

// twiceClosed is a body that the SDK also closes as soon as there is an answer. If Close
// returned the error of the second call, net/http would treat the request as not written and
// drop the connection.
type twiceClosed struct{ io.ReadCloser }

func (b twiceClosed) Close() error {
	b.ReadCloser.Close()
	return nil
}

func (l *line) close() { l.transport.CloseIdleConnections() }

// progress tracks how far a call got, and the status of its answer.
type progress struct {
	clients.Progress
	status atomic.Int64 // 0: no answer came
}

type progressKey struct{}

func (p *progress) watch(ctx context.Context) context.Context {
	return p.Watch(context.WithValue(ctx, progressKey{}, p))
}

// lost returns what a call without an answer means:
//
//	it was sent                                       unknown
//	the worker is shutting down                       ctx's error
//	no connection was requested                       retryable, not called
//	the worker lacks files or ports                   postponed for a second
//	no address, no connection, no TLS, or a broken
//	connection or a timeout before it was sent        unreachable
func lost(ctx, limited context.Context, provider string, sent, tried bool, err error, reason string) error {
	reason = clients.Printable(shared.Cause(limited, errors.New(reason)).Error(), maxReason)
	if !tried && !sent && ctx.Err() == nil {
		return clients.Retryable(clients.NotCalled(fmt.Errorf("%s: %s", provider, reason)))
	}
	return shared.Lost(ctx, provider, sent, err, reason)
}

// without removes secrets from a provider's text: some repeat what they were sent.
func without(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}
