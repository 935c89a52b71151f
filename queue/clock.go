package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var processStart = time.Now()

// redisClock tells this process when a moment of Redis's clock is.
//
// Every answer to TIME shows how far the two clocks can be apart at most: the
// answer took some time on its way. The least of the last seconds is kept, so
// that jitter of the network does not shift slots. Scripts tell the time, too,
// but of their beginning, and they take a while: a first slot placed by one of
// them and a second placed better would stand too close together.
type redisClock struct {
	mu            sync.Mutex
	least, before time.Duration // of this window and the one before
	since         time.Duration // when this window began
	known         bool
}

const (
	clockWindow  = 10 * time.Second
	clockEvery   = 500 * time.Millisecond
	firstSamples = 20 // before the first slot is placed
)

// start asks for the time until the answer is good enough to place slots by.
func (c *redisClock) start(ctx context.Context, client redis.UniversalClient) error {
	for range firstSamples {
		if err := c.sample(ctx, client); err != nil {
			return err
		}
	}
	return nil
}

// Run keeps the clock right until ctx is done.
func (c *redisClock) Run(ctx context.Context, client redis.UniversalClient) {
	every(ctx, clockEvery, func() {
		_ = c.sample(ctx, client) // the next one will do; others report that Redis is away
	})
}

func (c *redisClock) sample(ctx context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	now, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	c.observe(now.UnixMicro(), bootTime())
	return nil
}

// observe notes Redis's time in µs, as an answer told it that came at `now`.
func (c *redisClock) observe(redisMicros int64, now time.Duration) {
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
