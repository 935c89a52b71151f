package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Completed returns how many calls of each tenant ever succeeded in a queue, and when that was
// read, by the clock of Redis. It reads all tenants, 1,000 with each command.
func Completed(ctx context.Context, client redis.UniversalClient, queue string) (at time.Time, calls map[string]int64, err error) {
	fail := func(err error) (time.Time, map[string]int64, error) {
		return time.Time{}, nil, fmt.Errorf("completed calls of queue %q: %w", queue, err)
	}
	if at, err = store.Time(ctx, client, store.TenantsKey(queue)); err != nil {
		return fail(err)
	}
	counts, err := store.ScanHash(ctx, client, store.TenantsKey(queue))
	if err != nil {
		return fail(err)
	}
	calls = make(map[string]int64, len(counts))
	for tenant, text := range counts {
		if n := store.ReadCounts(text).Done; n > 0 && tenant != store.WholeQueue {
			calls[store.Unescape(tenant)] = n
		}
	}
	return at, calls, nil
}
