package redistest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Wire is the network between a client and its server, which a test can break. Its Dial is the
// client's dialer. The zero Wire is ready to use.
type Wire struct {
	mu    sync.Mutex
	conns map[*wireConn]struct{}
	cut   bool
	lose  []byte // nil: lose nothing
	lost  int

	refuse  []byte // nil: refuse nothing
	refused int
}

var errCut = errors.New("redistest: the wire is cut")

// Dial connects, unless the wire is cut.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut {
		return nil, errCut
	}
	inner, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &wireConn{Conn: inner, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = inner.Close()
		return nil, errCut
	}
	if w.conns == nil {
		w.conns = map[*wireConn]struct{}{}
	}
	w.conns[conn] = struct{}{}
	return conn, nil
}

// LoseReply drops the reply to the next command that contains this word, such as its name or a
// key: the server executes the command, but the client's connection breaks.
func (w *Wire) LoseReply(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = []byte("\r\n" + word + "\r\n")
}

// Refuse breaks the connection before every command that contains this word, so that it does not
// arrive. "" ends it.
func (w *Wire) Refuse(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse = nil; word != "" {
		w.refuse = []byte("\r\n" + word + "\r\n")
	}
}

// Refused returns how many commands did not arrive.
func (w *Wire) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// Lost returns how many replies were lost.
func (w *Wire) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// Cut breaks all connections, and refuses new ones until [Wire.Mend].
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for conn := range w.conns {
		_ = conn.Conn.Close()
	}
	clear(w.conns)
}

// Mend ends a [Wire.Cut].
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

type wireConn struct {
	net.Conn
	wire   *Wire
	losing bool // guarded by wire.mu
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.wire.mu.Lock()
	if len(c.wire.lose) > 0 && bytes.Contains(p, c.wire.lose) {
		c.losing, c.wire.lose = true, nil
	}
	refused := len(c.wire.refuse) > 0 && bytes.Contains(p, c.wire.refuse)
	if refused {
		c.wire.refused++
	}
	c.wire.mu.Unlock()
	if refused {
		_ = c.Close()
		return 0, errCut
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mu.Lock()
	losing := c.losing && err == nil
	if losing {
		c.wire.lost++
	}
	c.wire.mu.Unlock()
	if losing {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}
