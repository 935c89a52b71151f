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

// Progress tracks how far an HTTP call got. That decides whether a call without an answer may
// have been accepted ([Unknown]) or can be repeated ([Retryable]). The zero Progress is ready to
// use, for one call whose connections are [Counted].
//
// net/http also reports a request as written if it is still in a buffer, so Progress counts the
// bytes written to the connection.
type Progress struct {
	mu     sync.Mutex
	conn   *countedConn
	before int64 // bytes written to the connection by earlier calls
	hidden bool  // there is a connection, whose bytes are not counted
	partly bool  // writing the request failed
	tried  bool  // a connection was requested
}

// Watch returns the context with which the call must be made.
func (p *Progress) Watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { p.on(nil, false) }, // also for a retry by net/http after a broken connection
		GotConn: func(info httptrace.GotConnInfo) {
			conn := info.Conn
			for { // behind a proxy, TLS can be in TLS; the handshakes have ended
				secure, is := conn.(*tls.Conn)
				if !is {
					break
				}
				conn = secure.NetConn()
			}
			counted, is := conn.(*countedConn)
			p.on(counted, !is)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.partly = info.Err != nil
		},
	})
}

func (p *Progress) on(conn *countedConn, hidden bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.before, p.hidden, p.partly, p.tried = conn, 0, hidden, false, true
	if conn != nil {
		p.before = conn.written.Load()
	}
}

// Tried reports whether a connection was requested: a call that fails before that says nothing
// about its provider.
func (p *Progress) Tried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried
}

// Began reports whether at least one byte of the request was written. In doubt it returns true.
func (p *Progress) Began() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began()
}

// Sent reports whether the provider may have the whole request. In doubt it returns true,
// because calls that were not sent are repeated.
func (p *Progress) Sent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began() && !p.partly
}

func (p *Progress) began() bool {
	return p.hidden || p.conn != nil && p.conn.written.Load() > p.before
}

// Counted wraps a connection to count the bytes written, for [Progress]. It can be above or
// below TLS.
func Counted(conn net.Conn) net.Conn { return &countedConn{Conn: conn} }

type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n)) // net/http does not fail a call during a write
	return n, err
}

// NeverRepeat keeps net/http from repeating a request by itself. It does that if a reused
// connection breaks after a request that it considers idempotent, such as a GET or one with an
// Idempotency-Key or an X-Idempotency-Key. For the provider and for every limit, that is another call.
// NeverRepeat modifies the request and must be called last.
//
// It uses that net/http does not find a key under a lower-case name, and does not resend a body
// that it cannot rewind. net/http still resends a request of which nothing was written, because the
// connection was closed before. A GET, HEAD or OPTIONS fails then: it has a body that net/http
// cannot rewind, although an empty one, and nothing else keeps it from being resent after it was
// written.
func NeverRepeat(r *http.Request) {
	for _, name := range []string{HeaderIdempotencyKey, "X-" + HeaderIdempotencyKey} {
		if key := r.Header.Values(name); len(key) > 0 {
			r.Header.Del(name)
			r.Header[strings.ToLower(name)] = key
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		r.GetBody = nil
		if r.Body == nil {
			r.Body = io.NopCloser(strings.NewReader(""))
		}
	}
}
