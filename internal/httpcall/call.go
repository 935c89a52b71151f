// Package httpcall has what transports share that hold calls back: how a call is sent, when it has ended, and what
// the provider's answer asks for.
package httpcall

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// Send makes a call with base. sent is false if there was no connection, so that the call certainly was not
// sent. A transport other than that of net/http may not say whether it had a connection, so sent is true.
func Send(base http.RoundTripper, r *http.Request) (resp *http.Response, sent bool, err error) {
	if _, certain := base.(*http.Transport); !certain {
		resp, err = base.RoundTrip(r)
		return resp, true, err
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err = base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if resp != nil {
		resp.Request = r
	}
	return resp, connected.Load(), err
}

// CloseBody closes the body of a request that is not sent, as a transport must.
func CloseBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// WhenRead calls a func once when the body of an answer was read to its end or closed.
func WhenRead(resp *http.Response, fn func()) {
	if resp.Body == nil { // as other transports than that of net/http may leave it
		fn()
		return
	}
	held := &heldBody{ReadCloser: resp.Body, release: sync.OnceFunc(fn)}
	resp.Body = held
	if w, ok := held.ReadCloser.(io.Writer); ok {
		resp.Body = &heldConn{held, w} // the connection was upgraded
	}
}

type heldBody struct {
	io.ReadCloser
	release func()
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type heldConn struct {
	*heldBody
	io.Writer
}
