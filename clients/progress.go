package clients

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
)

// Progress tells how far a call over HTTP got, which decides whether one without
// an answer may have been taken ([Unknown]) or can be made again ([Retryable]).
// The zero Progress is ready, for one call whose connections are [Counted].
//
// That net/http reports a request as written says little, for it may still be in
// a buffer; what counts is whether bytes went out.
type Progress struct {
	mu     sync.Mutex
	conn   *countedConn
	before int64 // bytes that the connection had carried for others
	partly bool  // writing failed
	tried  bool  // a connection was asked for
}

// Watch makes the context under which the call is to be made.
func (p *Progress) Watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { p.on(nil) }, // also for the second try after a broken connection
		GotConn: func(info httptrace.GotConnInfo) {
			conn, ok := info.Conn.(*countedConn)
			if secure, is := info.Conn.(*tls.Conn); is && !ok {
				conn, _ = secure.NetConn().(*countedConn) // the handshake is over
			}
			p.on(conn)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.partly = info.Err != nil
		},
	})
}

func (p *Progress) on(conn *countedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.before, p.partly, p.tried = conn, 0, false, true
	if conn != nil {
		p.before = conn.written.Load()
	}
}

// Tried reports whether a connection was asked for at all: a call that fails before says
// nothing about its provider.
func (p *Progress) Tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// Began reports whether a single byte of the request went out.
func (p *Progress) Began() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began()
}

// Sent reports whether the provider may have the whole request. In doubt it is
// true: a call that is taken for unsent is made again.
func (p *Progress) Sent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began() && !p.partly
}

func (p *Progress) began() bool { return p.conn != nil && p.conn.written.Load() > p.before }

// Counted counts the bytes that go out over a connection, for [Progress]. It may
// stand above TLS or below it.
func Counted(conn net.Conn) net.Conn { return &countedConn{Conn: conn} }

type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n)) // net/http fails no call while a write of its is under way
	return n, err
}

// NeverRepeat keeps net/http from sending a request again on its own, which it
// does when a kept connection breaks after one that it takes for idempotent: with
// an Idempotency-Key, or a GET. To the provider, and to every limit, that is one
// call more. It changes the request, and must come last.
//
// net/http does not look for the key under a name in lower case, nor does it
// touch a body that it cannot rewind. A request of which nothing was written is
// still sent once more, if it can be.
func NeverRepeat(r *http.Request) {
	if key := r.Header.Values(HeaderIdempotencyKey); len(key) > 0 {
		r.Header.Del(HeaderIdempotencyKey)
		r.Header[strings.ToLower(HeaderIdempotencyKey)] = key
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		r.GetBody = nil
		if r.Body == nil {
			r.Body = io.NopCloser(strings.NewReader(""))
		}
	}
}
