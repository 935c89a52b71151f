package effective

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/store"
)

// Replan asks the limits anew when each waiting lane of a tenant may go, or with ""
// each lane of the queue: what they said before a change does not hold any more. It
// goes in slices, and leaves Redis as much time for others as each slice took.
func Replan(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	fail := func(err error) error { return fmt.Errorf("ask the lanes of queue %q anew: %w", queue, err) }
	cache := &Calendars{Queue: queue, Redis: client}
	escaped := ""
	if tenant != "" {
		escaped = rediskey.Escape(tenant)
	}
	var announced time.Time
	for cursor := "0"; ; {
		began, next := time.Now(), ""
		err := cache.Run(ctx, func(calendars string) (err error) {
			next, err = SweepSlice(ctx, client, queue, escaped, cursor, calendars, false)
			return err
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
		select {
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(time.Since(began)):
		}
	}
}

// announceEvery is how often a long way over the lanes tells dispatchers about those it has
// asked.
const announceEvery = 50 * time.Millisecond

// SweepSlice runs sweep.lua over one slice, and returns the cursor of the next.
func SweepSlice(ctx context.Context, client redis.UniversalClient, queue, tenant, cursor, windows string, mends bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	flag := 0
	if mends {
		flag = 1
	}
	reply, err := store.SweepScript.Run(ctx, client, store.ScriptKeys(queue), queue, cursor, windows, tenant, flag)
	if err != nil {
		return cursor, err
	}
	read := store.Read(reply)
	next, _ := read.Text(), read.Int()
	return next, read.End()
}
