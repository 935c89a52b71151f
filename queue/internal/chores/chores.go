// Package chores does what one worker of a queue does for all of them every few seconds.
package chores

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// Every is how often the chores of a queue are done.
const Every = 3 * time.Second

// Chores is what one worker of a queue does from time to time, the one that watches it:
// a slice of the sweep, what was kept for long enough is forgotten, the archive is moved
// before asynq's tools cut it, and new faults of the scripts are logged.
type Chores struct {
	queue   string
	redis   redis.UniversalClient
	logger  *slog.Logger
	limits  *effective.Calendars
	archive Archiver
	faults  FaultLog
	due     chan struct{} // has a value when they are to be done
	cursor  string        // of the sweep
}

// New returns the chores of a queue, which its recoverer asks for.
func New(queue string, client redis.UniversalClient, limits *effective.Calendars, logger *slog.Logger) *Chores {
	return &Chores{queue: queue, redis: client, logger: logger, limits: limits, due: make(chan struct{}, 1), cursor: "0"}
}

// Run does the chores each time that they are due, until ctx is done.
func (c *Chores) Run(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.due:
		}
		err := c.do(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			c.logger.Warn("the sweep fails; it goes on trying", logkey.Queue, c.queue, logkey.Error, err)
		}
		failing = err != nil
	}
}

// Ask has the chores done, unless they are under way.
func (c *Chores) Ask() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *Chores) do(ctx context.Context) error {
	// Scripts that fail are when the faults say why.
	err := c.faults.Look(ctx, c.redis, c.queue, c.logger)
	if err == nil {
		err = c.Sweep(ctx)
	}
	if err == nil {
		err = cmp.Or(c.archive.Sweep(ctx, c.redis, c.queue, c.logger), c.Forget(ctx))
	}
	return err
}

// Sweep looks at the next slice of the lanes.
func (c *Chores) Sweep(ctx context.Context) error {
	return c.limits.Run(ctx, func(calendars string) (err error) {
		c.cursor, err = effective.SweepSlice(ctx, c.redis, c.queue, "", c.cursor, calendars, true)
		return err
	})
}

// Forget deletes jobs that were kept for long enough after they were done.
func (c *Chores) Forget(ctx context.Context) error {
	const most = 200
	for range 50 { // what is left goes the next time
		callCtx, cancel := context.WithTimeout(ctx, store.Timeout)
		reply, err := store.JanitorScript.Run(callCtx, c.redis, store.ScriptKeys(c.queue), c.queue, most)
		cancel()
		if n, _ := reply.(int64); err != nil || n < most {
			return err
		}
	}
	return nil
}
