// Package chores does the periodic work of a queue, which one worker does for all of
// them.
package chores

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// Every is the interval between the chores of a queue.
const Every = 3 * time.Second

// forgets is after how long without being asked the calls that were counted are dropped from memory.
const forgets = 10 * time.Minute

// Chores is the periodic work that the worker that watches a queue does: it sweeps a
// slice of the lanes, deletes jobs whose retention is over, moves archived jobs before
// asynq deletes them, logs new faults of the scripts, and counts the calls of a queue that
// says so.
type Chores struct {
	queue   string
	redis   redis.UniversalClient
	logger  *slog.Logger
	limits  *effective.Calendars
	faults  map[store.Fault]bool // that were logged
	warned  bool                 // that archived jobs are moved
	auditor *conformance.Auditor // of the whole queue, in its first partition; else nil
	due     chan struct{}        // has a value when the chores are due
	cursor  string               // of the sweep
	lost    atomic.Bool          // another worker has had the role since the last sweep
}

// New returns the chores of a partition of a queue. Its recoverer calls [Chores.Ask] when they are due.
func New(home string, of partition.Layout, client redis.UniversalClient, limits *effective.Calendars, logger *slog.Logger) *Chores {
	c := &Chores{queue: home, redis: client, logger: logger, limits: limits, due: make(chan struct{}, 1), cursor: "0"}
	if home == of.Queue {
		c.auditor = conformance.NewAuditor(of, client)
	}
	return c
}

// Run does the chores each time they are due, until ctx is done.
func (c *Chores) Run(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(forgets):
			c.forget() // another worker watches the queue
			continue
		case <-c.due:
		}
		err := c.do(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			c.logger.Warn("the chores of the queue failed; they will be retried", logkey.Queue, c.queue, logkey.Error, err)
		}
		failing = err != nil
	}
}

// Ask makes Run do the chores once more; calls while they are already due change nothing.
func (c *Chores) Ask() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

func (c *Chores) do(ctx context.Context) error {
	// Faults come first: when scripts fail, they explain why.
	err := c.LogFaults(ctx)
	if err == nil {
		err = c.Sweep(ctx)
	}
	if err == nil {
		err = cmp.Or(c.MoveArchived(ctx), c.Forget(ctx))
	}
	if counts, _ := c.limits.Counts(); counts && c.auditor != nil {
		err = cmp.Or(err, c.auditor.Count(ctx))
	} else {
		c.forget()
	}
	return err
}

// forget frees the memory of the calls that are not counted any more.
func (c *Chores) forget() {
	if c.auditor != nil {
		c.auditor.Forget()
	}
}

// Lost says that another worker has the role. Its sweep may have begun anew.
func (c *Chores) Lost() { c.lost.Store(true) }

// Sweep runs the sweep over the next slice of the lanes.
func (c *Chores) Sweep(ctx context.Context) error {
	if c.lost.Swap(false) {
		c.cursor = "0"
	}
	return c.limits.Run(ctx, func(calendars string) (err error) {
		c.cursor, err = effective.SweepSlice(ctx, c.redis, c.queue, "", c.cursor, calendars, true)
		return err
	})
}

// Forget deletes completed jobs whose retention is over.
func (c *Chores) Forget(ctx context.Context) error {
	const most = 200
	_, err := c.repeat(ctx, store.JanitorScript, most)
	return err
}

// repeat runs a script with the queue, args and most until it has done less than most, and returns how much it did.
func (c *Chores) repeat(ctx context.Context, script *redisscript.Script, most int64, args ...any) (done int64, err error) {
	args = slices.Concat([]any{c.queue}, args, []any{most})
	for range 50 { // the rest is done the next time
		callCtx, cancel := context.WithTimeout(ctx, store.Timeout)
		reply, err := script.Run(callCtx, c.redis, store.ScriptKeys(c.queue), args...)
		cancel()
		n, _ := reply.(int64)
		if done += n; err != nil || n < most {
			return done, err
		}
	}
	return done, nil
}
