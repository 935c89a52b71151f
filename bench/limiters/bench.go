package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisproc"
	"github.com/headgate/headgate/throttle"
)

// bench is the contenders at a Redis of their own.
type bench struct {
	config     config
	dir        string
	server     *redisproc.Process
	admin      *redis.Client // asks Redis what it did, and is not counted
	contenders []*contender
	weighed    []*contender // not raced
}

func newBench(ctx context.Context, config config) (*bench, error) {
	b := &bench{config: config}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	var err error
	if b.dir, err = os.MkdirTemp("", "limiters-"); err != nil {
		return err
	}
	if b.server, err = redisproc.Start(redisproc.Config{Dir: b.dir}); err != nil {
		return err
	}
	b.admin = redis.NewClient(&redis.Options{Addr: b.server.Addr(), PoolSize: 1})
	if err := b.admin.Ping(ctx).Err(); err != nil {
		return err
	}
	if err := b.enter(); err != nil {
		return err
	}
	if len(b.contenders) == 0 {
		return fmt.Errorf("-only %v: no contender has such a name", b.config.only)
	}
	return nil
}

// enter lists the contenders.
func (b *bench) enter() error {
	headgate := func(name, prefix string, layers int, form form) maker {
		return func(c *contender) error { return headgate(c, name, prefix, layers, form, take) }
	}
	return errors.Join(
		b.join(&b.contenders, headgate(tokenBucket, "tb", 1, bucketForm)),
		b.join(&b.contenders, bare),
		b.join(&b.contenders, headgate(threeLayers, "tb3", 3, bucketForm)),
		b.join(&b.contenders, headgate("headgate token bucket, 30/s", "tb30", 1, everySecond(30))),
		b.join(&b.contenders, headgate("headgate token bucket, 300/s", "tb300", 1, everySecond(300))),
		b.join(&b.contenders, headgate("headgate leaky bucket", "lb", 1, meterForm)),
		b.join(&b.contenders, shaping),
		b.join(&b.contenders, headgate("headgate fixed window", "fw", 1, windowForm(throttle.FixedWindow))),
		b.join(&b.contenders, headgate("headgate sliding counter", "sc", 1, windowForm(throttle.SlidingWindowCounter))),
		b.join(&b.contenders, headgate("headgate sliding log", "sl", 1, logForm)),
		b.join(&b.contenders, concurrency),
		b.join(&b.contenders, goRedisRate),
		b.join(&b.contenders, throttledV2),
		b.join(&b.contenders, ululeV3),
		b.join(&b.contenders, state),
		b.join(&b.contenders, empty),
		b.join(&b.contenders, incr),
		b.join(&b.weighed, headgate("headgate token bucket, 7 in 200 s", "tb7", 1, sevenths)),
	)
}

// maker makes something out of a contender that has only its client.
type maker func(c *contender) error

func (b *bench) join(list *[]*contender, make maker) error {
	c := newContender(b.server.Addr(), b.config.pool)
	err := make(c)
	if err != nil || b.config.only != nil && !b.config.only.MatchString(c.name) {
		return errors.Join(err, c.client.Close())
	}
	*list = append(*list, c)
	return nil
}

func (b *bench) close() {
	for _, c := range append(b.contenders, b.weighed...) {
		_ = c.client.Close()
	}
	if b.admin != nil {
		_ = b.admin.Close()
	}
	if b.server != nil {
		b.server.Stop()
	}
	_ = os.RemoveAll(b.dir)
}
