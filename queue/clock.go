package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// redisClock converts times of a Redis's clock to this machine's boot clock. The queues of a
// worker share one redisClock, except in a Cluster, where each queue has its own because it
// may be on another node.
//
// Each reply with Redis's time bounds the offset between the two clocks from both sides:
// Redis read its clock after the request was sent, and before the reply came. redisClock
// keeps the least upper bound of the last seconds, so that network jitter does not shift
// slots. If a later lower bound is above it, Redis's clock was set back, or another Redis
// answers; then redisClock starts again from the new bounds at once. If Redis's clock is set
// forward, the least upper bound drops by itself.
//
// Replies to TIME give the closest bounds. Scripts return the time too, but the time of
// their start, and they take longer. Their replies show at once if the clock by which they
// gave a slot was set.
type redisClock struct {
	redis redis.UniversalClient
	queue string // in a Cluster: the queue whose node is asked

	mu            sync.Mutex
	least, before time.Duration // least upper bound of boot clock minus Redis's clock, in this window and the previous one
	since         time.Duration // when this window began, on the boot clock
	learned       time.Duration // when least was last lowered or set anew, on the boot clock
	known         bool          // least is set
	asking        bool          // ready has asked, but not often enough yet

	asks singleflight.Group // of ready
}

const (
	clockWindow  = 10 * time.Second
	clockEvery   = time.Second
	firstSamples = 20 // before the first slot is used
)

// newClocks returns the clocks by queue, and all distinct clocks.
func newClocks(client redis.UniversalClient, queues []string) (of map[string]*redisClock, all []*redisClock) {
	of = map[string]*redisClock{}
	_, apart := client.(*redis.ClusterClient)
	for _, queue := range queues {
		if apart || len(all) == 0 {
			all = append(all, &redisClock{redis: client, queue: queue})
		}
		of[queue] = all[len(all)-1]
	}
	return of, all
}

// start asks for the time often enough to use the clock for slots.
func (c *redisClock) start(ctx context.Context) error {
	for range firstSamples {
		if err := c.sample(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ready makes a clock good for slots that nobody runs. It knows nothing any more if it was not asked for so long
// that the two clocks may have drifted apart. Concurrent callers share the questions and their error: one after the
// other, they would all wait for a Redis that does not answer.
func (c *redisClock) ready(ctx context.Context) error {
	if c.recent() {
		return nil
	}
	asked := c.asks.DoChan("", func() (any, error) {
		if c.recent() { // another caller has just asked
			return nil, nil
		}
		// Others may wait for the answer after this caller has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
		defer cancel()
		c.mu.Lock()
		c.known, c.asking = false, true
		c.mu.Unlock()
		err := c.start(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asking = false
		return nil, err
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-asked:
		return answer.Err
	}
}

// recent reports whether the clock is good for slots.
func (c *redisClock) recent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known && !c.asking && boottime.Now()-c.since < 2*clockWindow
}

// Run asks for the time regularly until ctx is done.
func (c *redisClock) Run(ctx context.Context) {
	every(ctx, clockEvery, func() {
		_ = c.sample(ctx) // the next sample will do; other parts log that Redis does not answer
	})
}

func (c *redisClock) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	sent := boottime.Now()
	now, err := store.Time(ctx, c.redis, store.Key(c.queue, "waiting"))
	if err != nil {
		return err
	}
	c.observe(now.UnixMicro(), sent, boottime.Now())
	return nil
}

// observe records Redis's time, in Unix µs, from a reply. sent and came are the times of the
// request and the reply on the boot clock.
func (c *redisClock) observe(redisMicros int64, sent, came time.Duration) {
	told := time.Duration(redisMicros) * time.Microsecond
	lowest, most := sent-told-time.Microsecond, came-told // the reply has whole microseconds
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known && sent < c.learned:
		// Redis may have read its clock before it was set. What is kept is newer.
	case !c.known || lowest > min(c.least, c.before):
		c.known, c.least, c.before, c.since, c.learned = true, most, most, came, came
	case came-c.since > clockWindow:
		c.before, c.least, c.since, c.learned = c.least, most, came, came
	case most < c.least:
		c.least, c.learned = most, came
	}
}

// boot converts a time of Redis's clock, in Unix µs, to this machine's boot clock. 0, a time
// that is not known, stays 0.
func (c *redisClock) boot(redisMicros int64) time.Duration {
	if redisMicros == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(redisMicros)*time.Microsecond + min(c.least, c.before)
}

// ahead returns by how much another Redis's clock is ahead of this one, if both are known.
func (c *redisClock) ahead(other *redisClock) (by time.Duration, known bool) {
	mine, ok := c.offset()
	others, known := other.offset()
	return mine - others, ok && known
}

// offset returns by how much the boot clock is ahead of Redis's.
func (c *redisClock) offset() (by time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.least, c.before), c.known
}

// now returns the time on Redis's clock, or the local time if nothing was observed yet.
func (c *redisClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Now()
	}
	return time.UnixMicro((boottime.Now() - min(c.least, c.before)).Microseconds())
}

// onTime reports whether a call that left now would be within its slot. It uses the boot
// clock, so a process that was suspended sends nothing late when it resumes. If Redis's
// clock was set forward since the slot was given, the slot ends earlier by the same amount:
// the limits give later slots by the new time.
func (c *redisClock) onTime(s slot) bool {
	return s.latest == 0 || boottime.Now() <= min(s.latest, c.boot(s.latestMicros))+late
}
