package sandbox

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/emersion/go-smtp"
)

// connTracker is a listener that can close what it accepted: go-smtp's own way
// to do so pulls the session away from under a message that is being taken.
type connTracker struct {
	net.Listener
	mu     sync.Mutex
	closed bool
	conns  map[*trackedConn]struct{}
}

func (t *connTracker) Accept() (net.Conn, error) {
	inner, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &trackedConn{Conn: inner, tracker: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		inner.Close()
		return nil, net.ErrClosed
	}
	t.conns[conn] = struct{}{}
	return conn, nil
}

// Close may be called twice: go-smtp does so, too.
func (t *connTracker) Close() error {
	if err := t.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (t *connTracker) closeAll() error {
	err := t.Close()
	t.mu.Lock()
	t.closed = true
	var open []*trackedConn
	for conn := range t.conns {
		open = append(open, conn)
	}
	t.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
	return err
}

type trackedConn struct {
	net.Conn
	tracker *connTracker
	last    atomic.Bool // close after the next reply
}

func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

func (c *trackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.last.Load() {
		c.Close()
	}
	return n, err
}

// raw is the connection below that of the session, without TLS.
func (s *session) raw() *trackedConn {
	conn := s.conn.Conn()
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*trackedConn) // nothing else is accepted
}

// refusal is a reply for go-smtp to write. After 421 the connection is closed,
// as the code says; go-smtp leaves that to its user.
func (c *trackedConn) refusal(code int, enhanced smtp.EnhancedCode, text string) error {
	if code == 421 {
		c.last.Store(true)
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}
