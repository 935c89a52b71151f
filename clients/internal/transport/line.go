package transport

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/headgate/headgate/clients"
)

// Call tracks one call of a [Line], also below an SDK: how far it got, and its answer, of which
// the errors of SDKs say too little. The zero Call is ready to use.
type Call struct {
	clients.Progress

	mu     sync.Mutex
	status int // 0: no answer came
	header http.Header
}

type callKey struct{}

// Watch returns the context with which the call must be made.
func (c *Call) Watch(ctx context.Context) context.Context {
	return c.Progress.Watch(context.WithValue(ctx, callKey{}, c))
}

func (c *Call) answered(response *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.header = response.StatusCode, response.Header
}

// Status returns the status of the answer; 0 if none came.
func (c *Call) Status() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Header returns a header of the answer.
func (c *Call) Header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header.Get(name)
}

// Line makes the calls of a client or of its SDK. It does not repeat them, follows no redirects,
// and limits the size of answers.
type Line struct {
	*http.Transport
	MaxAnswer int64 // bytes
}

// RoundTrip makes one call.
func (l *Line) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = twiceClosed{r.Body}
	}
	clients.NeverRepeat(r)
	response, err := l.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if call, ok := r.Context().Value(callKey{}).(*Call); ok {
		call.answered(response)
	}
	Limit(response, l.MaxAnswer)
	return response, nil
}

// Do is RoundTrip, under the name that Amazon's SDK requires.
func (l *Line) Do(r *http.Request) (*http.Response, error) { return l.RoundTrip(r) }

// twiceClosed is a body that Amazon's SDK also closes as soon as there is an answer. If Close
// returned the error of the second call, net/http would treat the request as not written and
// drop the connection.
type twiceClosed struct{ io.ReadCloser }

func (b twiceClosed) Close() error {
	b.ReadCloser.Close()
	return nil
}
