package queue

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// slowScripts is a connection to a Redis that answers everything but scripts at once.
type slowScripts struct {
	net.Conn
	by     time.Duration // how much later it answers scripts
	script bool          // the latest request was one
}

// dialSlowScripts returns a dialer of connections to a Redis that answers scripts this much later.
func dialSlowScripts(by time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		return &slowScripts{Conn: conn, by: by}, err
	}
}

func (c *slowScripts) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("*")) { // else it is more of the same request
		c.script = bytes.Contains(b[:min(len(b), 20)], []byte("eval"))
	}
	return c.Conn.Write(b)
}

func (c *slowScripts) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.script {
		time.Sleep(c.by)
	}
	return n, err
}

// TestSlowScripts: a job whose slots are over when they come gets more time with each of them, and goes.
func TestSlowScripts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Per: []string{"tenant"}}), func(c *Config) {
		c.Redis.Dialer = dialSlowScripts(40 * time.Millisecond) // more than a job has to leave at once
	})
	r.add(t, nil)
	r.run(t)
	r.wait(t)
	if missed := r.seen.outcomes("missed"); missed < 2 || missed > 8 {
		t.Errorf("it missed %d slots; want a few", missed)
	}
}
