package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// Overlap says what a tick of a periodic job does while the last job that it enqueued has
// not ended: it waits, is scheduled or to be retried, or its call is in flight. Jobs that
// were archived have ended.
//
// Only jobs in the queue of the tick count. After a kind has moved to another queue, the
// first tick there is enqueued in any case.
type Overlap string

const (
	// OverlapSkip skips the tick. It is counted in [PeriodicState].
	OverlapSkip Overlap = "skip"

	// OverlapQueue enqueues a job for each tick, so jobs pile up while no worker serves
	// the queue.
	OverlapQueue Overlap = "queue"

	// OverlapReplace enqueues a job for each tick, and cancels the last job if it still
	// waits. A call in flight is not cancelled. The new job then waits, and can itself be
	// replaced, so at most one job waits.
	OverlapReplace Overlap = "replace"
)

var overlaps = []Overlap{OverlapSkip, OverlapQueue, OverlapReplace}

func tickKey(queue, id string) string { return store.Key(queue, "tick:"+rediskey.Escape(id)) }

// readTicks adds what periodic_fire.lua recorded about each periodic job.
func readTicks(ctx context.Context, client redis.UniversalClient, all []PeriodicState) error {
	routes, began := newRoutes(client), time.Now()
	for part := range slices.Chunk(all, periodicAtATime) {
		texts := make([]*redis.StringCmd, len(part))
		pipe := client.Pipeline()
		for i, state := range part {
			if state.Err != nil {
				continue
			}
			home, err := routes.homeOf(ctx, state.Job, began, 0)
			if validation.Is(err) {
				continue // no tick can be enqueued
			}
			if err != nil {
				return err
			}
			part[i].Queue = partition.QueueOf(home)
			texts[i] = pipe.Get(ctx, tickKey(home, state.ID))
		}
		_, _ = pipe.Exec(ctx) // each command has its error
		for i, text := range texts {
			if text == nil {
				continue
			}
			if err := text.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return err
			}
			part[i].readTicks(text.Val())
		}
	}
	return nil
}

// readTicks reads the text of record_write (formats.lua). A text that it cannot read counts
// as none.
func (s *PeriodicState) readTicks(text string) {
	var job string
	var fired, skipped, last int64
	if n, _ := fmt.Sscanf(text, "%s %d %d %d", &job, &fired, &skipped, &last); n < 4 {
		return
	}
	if s.Skipped = skipped; last > 0 {
		s.LastSkipped = time.Unix(last, 0)
	}
	// Until now LastFired is the last tick that was decided, in any queue.
	if s.LastFired.Unix() > max(fired, last) {
		return
	}
	if s.LastFired = time.Unix(fired, 0); fired == 0 {
		s.LastFired = time.Time{}
	}
}
