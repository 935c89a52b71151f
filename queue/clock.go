package queue

import (
	"sync"
	"time"
)

var processStart = time.Now()

// redisClock tells this process when a moment of Redis's clock is.
//
// Every reply that carries Redis's time shows how far the two clocks can be
// apart at most: the reply took some time on its way. The least of the last
// seconds is kept, so that jitter of the network does not shift slots.
type redisClock struct {
	mu            sync.Mutex
	least, before time.Duration // of this window and the one before
	since         time.Duration // when this window began
	known         bool
}

const clockWindow = 10 * time.Second

// observe notes Redis's time in µs, from a reply received just now.
func (c *redisClock) observe(redisMicros int64) {
	now := bootTime()
	offset := now - time.Duration(redisMicros)*time.Microsecond
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known:
		c.known, c.least, c.before, c.since = true, offset, offset, now
	case now-c.since > clockWindow:
		c.before, c.least, c.since = c.least, offset, now
	default:
		c.least = min(c.least, offset)
	}
}

// boot is the moment of Redis's clock on this machine's boot clock.
func (c *redisClock) boot(redisMicros int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(redisMicros)*time.Microsecond + min(c.least, c.before)
}

// now is the time on Redis's clock; the local time before anything was observed.
func (c *redisClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Now()
	}
	return time.UnixMicro((bootTime() - min(c.least, c.before)).Microseconds())
}

// skew is how far Redis's clock is ahead of this machine's wall clock.
func (c *redisClock) skew() time.Duration { return time.Until(c.now()) }
