package payment

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// progress tells how far a call got, which decides whether one without an answer
// may have been taken.
type progress struct {
	mu      sync.Mutex
	conn    *countingConn
	before  int64 // bytes that the connection had carried for others
	code    int   // of the answer; 0: none came
	headers http.Header
}

type progressKey struct{}

func (p *progress) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, progressKey{}, p), &httptrace.ClientTrace{
		GetConn: func(string) { p.on(nil) }, // also for the second try after a broken connection
		GotConn: func(info httptrace.GotConnInfo) {
			conn := info.Conn
			if secure, ok := conn.(*tls.Conn); ok {
				conn = secure.NetConn() // the handshake is over
			}
			counting, _ := conn.(*countingConn)
			p.on(counting)
		},
	})
}

func (p *progress) on(conn *countingConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.before = conn, 0
	if conn != nil {
		p.before = conn.written.Load()
	}
}

// sent tells whether Stripe may have the request. In doubt it is true: a single
// byte is enough. That net/http reports a request as written says little, for it
// may still be in a buffer; what counts is whether bytes went out.
func (p *progress) sent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil && p.conn.written.Load() > p.before
}

func (p *progress) answered(response *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.headers = response.StatusCode, response.Header
}

func (p *progress) status() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

func (p *progress) header(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.headers.Get(name)
}

// countingConn counts the bytes that were sent.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: mostDial, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn}, nil
}
