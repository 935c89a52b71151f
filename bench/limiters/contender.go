package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The names that the targets speak of.
const (
	tokenBucket = "headgate token bucket"
	threeLayers = "headgate three layers"
	bareScript  = "headgate's script, bare"
	redisRate   = "redis_rate"
	emptyScript = "empty script"
	stateScript = "TIME, GET, SET PX"
)

// keyLength is the length of every key in Redis, whoever makes it: a prefix and
// the likes of tenant:000000.
const keyLength = 24

// The keys of different quotas are different ones.
const (
	plentyKeys  = 0
	scarceKeys  = 10_000
	lastingKeys = 20_000
)

// quota is a limit, in words that all contenders understand.
type quota struct {
	count  int64
	period time.Duration
	burst  int64
}

var (
	plenty  = quota{count: 1_000_000, period: time.Second, burst: 1_000_000} // admits everything
	scarce  = quota{count: 10, period: time.Minute, burst: 10}               // refuses nearly everything
	lasting = quota{count: 120, period: time.Hour, burst: 10}                // its keys outlive the measuring of their memory
)

// decide is one decision about a key. An error is a decision that was not made.
type decide func(ctx context.Context, key string) (admitted bool, err error)

// contender is what is measured.
type contender struct {
	name     string
	overhead int  // bytes that it adds to a key
	judges   bool // false: there is no limit in it
	plenty   decide
	scarce   decide // nil: not measured with it
	lasting  decide // nil: writes nothing

	client *redis.Client
	trips  *atomic.Int64 // writes to Redis's sockets
}

// key is the i-th key that a contender is asked about.
func (c *contender) key(i int) string { return fmt.Sprintf("%0*d", keyLength-c.overhead, i) }

// under is the contender's way to decide under a load, nil if it has none, and
// the first of its keys there.
func (c *contender) under(l load) (ask decide, first int) {
	if l.Refusing {
		return c.scarce, scarceKeys
	}
	return c.plenty, plentyKeys
}

// newContender has a client of its own, with the same options as any other's.
// A command or pipeline is one write, so writes are round trips.
func newContender(addr string, pool int) *contender {
	trips := new(atomic.Int64)
	return &contender{judges: true, trips: trips, client: redis.NewClient(&redis.Options{
		Addr:     addr,
		PoolSize: pool,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			tcp, ok := conn.(*net.TCPConn)
			if !ok {
				return nil, fmt.Errorf("dial %s: %T is not a TCP connection", addr, conn)
			}
			return &countingConn{TCPConn: tcp, writes: trips}, nil
		},
	})}
}

// countingConn is still a TCPConn for a client that looks whether it is one.
type countingConn struct {
	*net.TCPConn
	writes *atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.TCPConn.Write(b)
}
