package webhook

import (
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// progress tells how far a request got, which decides whether a call without an
// answer may have been taken.
type progress struct {
	mu     sync.Mutex
	conn   *countingConn
	before int64 // bytes that the connection had carried for others
	partly bool  // writing failed, so that the receiver cannot have all of it
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.on(nil) }, // also for the second try after a broken connection
		GotConn: func(info httptrace.GotConnInfo) {
			conn, _ := info.Conn.(*countingConn)
			p.on(conn)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.partly = info.Err != nil
		},
	}
}

func (p *progress) on(conn *countingConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.before, p.partly = conn, 0, false
	if conn != nil {
		p.before = conn.written.Load()
	}
}

// sent tells whether the receiver may have the whole request. In doubt it is
// true: a call that is taken for unsent is made again. That net/http reports a
// request as written says little, for it may still be in a buffer; what counts
// is whether bytes went out.
func (p *progress) sent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil && p.conn.written.Load() > p.before && !p.partly
}

// countingConn counts the bytes of requests. It stands above TLS, whose own
// messages are nobody's request.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}
