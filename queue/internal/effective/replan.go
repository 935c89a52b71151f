package effective

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/store"
)

// Replan computes again when each waiting lane of a tenant, or with "" each lane of the
// queue, may go: after a change of limits, the old times are wrong. It works in slices,
// and pauses after each one for as long as it took, so that Redis can serve others.
func Replan(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	return ReplanWith(ctx, client, queue, tenant, func() {})
}

// ReplanWith is [Replan] for a caller that has something to do in time, however long this takes: it calls each before
// each slice.
func ReplanWith(ctx context.Context, client redis.UniversalClient, queue, tenant string, each func()) error {
	fail := func(err error) error {
		return fmt.Errorf("replan the lanes of queue %q: %w", partition.QueueOf(queue), err)
	}
	cache := &Calendars{Queue: queue, Redis: client}
	escaped := rediskey.Escape(tenant)
	var announced time.Time
	for cursor := "0"; ; {
		each()
		began, next := time.Now(), ""
		err := cache.Run(ctx, func(calendars string) error {
			return store.Patient(ctx, func() (err error) {
				next, err = SweepSlice(ctx, client, queue, escaped, cursor, calendars, false)
				return err
			})
		})
		if err != nil {
			return fail(err)
		}
		if time.Since(announced) > announceEvery || next == "0" {
			announced = time.Now()
			store.Announce(ctx, client, queue)
		}
		if cursor = next; cursor == "0" {
			return nil
		}
		if err := wait.For(ctx, time.Since(began)); err != nil {
			return fail(err)
		}
	}
}

// announceEvery is how often a long Replan tells dispatchers about the lanes it has done.
const announceEvery = 50 * time.Millisecond

// SweepSlice runs sweep.lua over one slice, and returns the cursor of the next one.
func SweepSlice(ctx context.Context, client redis.UniversalClient, queue, tenant, cursor, windows string, mends bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	reply, err := store.SweepScript.Run(ctx, client, store.ScriptKeys(queue), queue, cursor, windows, tenant, mends)
	if err != nil {
		return cursor, err
	}
	read := store.Read(reply)
	next, _ := read.Text(), read.Int()
	return next, read.End()
}
