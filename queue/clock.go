package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// redisClock tells this process when a moment of the clock of a queue's Redis is. The queues
// of a worker share one; only in a Cluster may each have another Redis, and a clock of its own.
//
// An answer that tells the time bounds the offset between the two clocks from both
// sides: Redis read its clock after the question was sent, and before the answer
// came. The least upper bound of the last seconds is kept, so that jitter of the
// network does not shift slots. A lower bound above it proves that Redis's clock was
// set back, or that another Redis answers: what was kept is dropped at once. A clock
// that was set forward gives a lower upper bound by itself.
//
// Answers to TIME give the closest bounds. Scripts tell the time as well, but of
// their beginning, and they take a while. Their answers show at once that the clock
// by which they gave a slot was set.
type redisClock struct {
	redis redis.UniversalClient
	queue string // whose Redis is asked, of several in a Cluster

	mu            sync.Mutex
	least, before time.Duration // of this window and the one before: boot clock less Redis's
	since         time.Duration // when this window began
	learned       time.Duration // when the least was last lowered, or began anew
	known         bool
}

const (
	clockWindow  = 10 * time.Second
	clockEvery   = time.Second
	firstSamples = 20 // before the first slot is placed
)

// newClocks makes the clocks of queues, and lists those that are to be kept right.
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

// start asks for the time until the answer is good enough to place slots by.
func (c *redisClock) start(ctx context.Context) error {
	for range firstSamples {
		if err := c.sample(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Run keeps the clock right until ctx is done.
func (c *redisClock) Run(ctx context.Context) {
	every(ctx, clockEvery, func() {
		_ = c.sample(ctx) // the next one will do; others report that Redis is away
	})
}

func (c *redisClock) sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	node := redis.Cmdable(c.redis)
	if cluster, ok := c.redis.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, store.Key(c.queue, "waiting"))
		if err != nil {
			return err
		}
		node = master
	}
	sent := boottime.Now()
	now, err := node.Time(ctx).Result()
	if err != nil {
		return err
	}
	c.observe(now.UnixMicro(), sent, boottime.Now())
	return nil
}

// observe notes Redis's time in µs, as an answer told it that came at one moment to
// a question that was sent at another.
func (c *redisClock) observe(redisMicros int64, sent, came time.Duration) {
	told := time.Duration(redisMicros) * time.Microsecond
	lowest, most := sent-told-time.Microsecond, came-told // it tells whole microseconds
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known && sent < c.learned:
		// Redis may have read its clock before it was set, and we know better by now.
	case !c.known || lowest > min(c.least, c.before):
		c.known, c.least, c.before, c.since, c.learned = true, most, most, came, came
	case came-c.since > clockWindow:
		c.before, c.least, c.since, c.learned = c.least, most, came, came
	case most < c.least:
		c.least, c.learned = most, came
	}
}

// boot is the moment of Redis's clock on this machine's boot clock; 0 stays what is
// not known.
func (c *redisClock) boot(redisMicros int64) time.Duration {
	if redisMicros == 0 {
		return 0
	}
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
	return time.UnixMicro((boottime.Now() - min(c.least, c.before)).Microseconds())
}
