package email

import (
	"sync"
	"time"
)

// pool keeps idle connections. It reuses the most recent one first, so that the others expire.
type pool struct {
	most, perConn int
	timeout       time.Duration

	mu     sync.Mutex
	idle   []*conn // oldest first
	sweep  *time.Timer
	closed bool
}

func newPool(config Config) *pool {
	return &pool{most: max(config.MaxIdle, 0), perConn: config.MaxPerConn, timeout: config.IdleTimeout}
}

// take returns an idle connection, or nil.
func (p *pool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 || time.Since(p.idle[n-1].idle) >= p.timeout {
		return nil // if the latest is too old, all are
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	return c
}

// put adds a connection to the pool, or closes it.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	if p.closed || len(p.idle) >= p.most || c.sent >= p.perConn {
		p.mu.Unlock()
		c.close()
		return
	}
	defer p.mu.Unlock()
	c.idle = time.Now()
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		// One timer for all connections, which runs only while there are any.
		p.sweep = time.AfterFunc(p.timeout, p.expire)
	}
}

// expire closes connections that were idle for too long.
func (p *pool) expire() {
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].idle) >= p.timeout {
		n++
	}
	old := p.idle[:n:n]
	p.idle = append([]*conn(nil), p.idle[n:]...)
	p.sweep = nil
	if len(p.idle) > 0 {
		p.sweep = time.AfterFunc(p.timeout-time.Since(p.idle[0].idle), p.expire)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	old := p.idle
	p.idle = nil
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}
