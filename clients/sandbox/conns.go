package sandbox

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/emersion/go-smtp"
)

// connTracker is a listener that can close its connections: go-smtp's own method would end the
// session while a message is being received.
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

// Close can be called twice, as go-smtp does.
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

// raw returns the connection below that of the session, without TLS.
func (s *session) raw() *trackedConn {
	conn := s.conn.Conn()
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*trackedConn) // the listener returns no others
}

// refusal returns a reply for go-smtp to write. After a 421 it closes the connection, which
// go-smtp leaves to its user.
func (c *trackedConn) refusal(code int, enhanced smtp.EnhancedCode, text string) error {
	if code == 421 {
		c.last.Store(true)
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}
