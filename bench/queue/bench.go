package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisproc"
)

// bench is the Redis and the receiver that all contenders share.
type bench struct {
	config   config
	out      io.Writer
	dir      string
	server   *redisproc.Process
	admin    *redis.Client
	receiver *receiver
}

func newBench(ctx context.Context, config config, out io.Writer) (*bench, error) {
	b := &bench{config: config, out: out}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) start(ctx context.Context) error {
	var err error
	if b.dir, err = os.MkdirTemp("", "queue-"); err != nil {
		return err
	}
	if b.server, err = redisproc.Start(redisproc.Config{Dir: b.dir}); err != nil {
		return err
	}
	// Flushing a million jobs takes a while.
	b.admin = redis.NewClient(&redis.Options{Addr: b.server.Addr(), ReadTimeout: time.Minute})
	if err := b.admin.Ping(ctx).Err(); err != nil {
		return err
	}
	b.receiver, err = startReceiver()
	return err
}

func (b *bench) close() {
	if b.receiver != nil {
		_ = b.receiver.server.Close()
	}
	if b.admin != nil {
		_ = b.admin.Close()
	}
	if b.server != nil {
		b.server.Stop()
	}
	_ = os.RemoveAll(b.dir)
}

// scaled is a number of jobs, lanes or idle workers at the scale of this run, at least ten of them
// where there are as many.
func (b *bench) scaled(n int) int { return max(min(n, 10), int(float64(n)*b.config.scale)) }

// lasting is a duration at the scale of this run.
func (b *bench) lasting(d time.Duration) time.Duration {
	return max(300*time.Millisecond, time.Duration(float64(d)*b.config.scale))
}

// pause waits, unless ctx is done before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
