package ai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

const (
	maxAnswer = 8 << 20
	maxIdle   = 512
)

var errTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)

// exchange is one call below an SDK: its request and its response. The SDKs drop unknown fields
// of requests (and a temperature of 0), and the headers and bodies of refusals, so both are
// kept here.
type exchange struct {
	call clients.Call
	body []byte

	progress clients.Progress

	asked  bool // the SDK tried to send the request
	status int  // 0: no answer
	header http.Header
	answer []byte // the part that was read
	err    error  // why there is no answer, or only a part
}

type exchangeKey struct{}

// begin returns a context with the exchange, and tracks how far the request gets.
func (x *exchange) begin(ctx context.Context) context.Context {
	return x.progress.Watch(context.WithValue(ctx, exchangeKey{}, x))
}

// transport makes the calls of exchanges. It is safe for concurrent use.
type transport struct{ base *http.Transport }

func newTransport() *transport {
	return &transport{shared.New(maxIdle, shared.Dialer())}
}

func (t *transport) client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: shared.Stay}
}

// RoundTrip sends the exchange's body with the SDK's headers, once.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok || x.asked {
		return nil, errors.New("ai: not a call of this client, or a retry by the SDK")
	}
	x.asked = true
	r = r.Clone(r.Context())
	r.ContentLength = int64(len(x.body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
	r.Body, _ = r.GetBody()
	for name, value := range x.call.Headers() {
		r.Header.Set(name, value)
	}
	clients.NeverRepeat(r)
	response, err := t.base.RoundTrip(r)
	if err != nil {
		x.err = err
		return nil, err
	}
	shared.Limit(response, maxAnswer+1)
	defer response.Body.Close()
	x.status, x.header = response.StatusCode, response.Header
	x.answer, x.err = io.ReadAll(response.Body)
	if len(x.answer) > maxAnswer {
		x.answer, x.err = x.answer[:maxAnswer], errTooLarge
	}
	if x.err != nil {
		return nil, x.err
	}
	response.Body = io.NopCloser(bytes.NewReader(x.answer))
	return response, nil
}
