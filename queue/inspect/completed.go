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
	if at, err = store.Time(ctx, client, store.TenantsKey(queue)); err == nil {
		var all []map[string]string
		all, err = ofAll(ctx, client, queue, func(name string) (map[string]string, error) {
			return store.ScanHash(ctx, client, store.TenantsKey(name))
		})
		calls = map[string]int64{}
		for _, counts := range all {
			for tenant, text := range counts {
				if n := store.ReadCounts(text).Done; n > 0 && tenant != store.WholeQueue {
					calls[store.Unescape(tenant)] = n
				}
			}
		}
	}
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("completed calls of queue %q: %w", queue, err)
	}
	return at, calls, nil
}
