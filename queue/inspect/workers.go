package inspect

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

// CountWorkers returns how many workers [workers.List] would return, without reading
// them.
func (in *Inspector) CountWorkers(ctx context.Context) (int64, error) {
	now, err := store.Time(ctx, in.redis, workers.ListKey)
	if err != nil {
		return 0, fmt.Errorf("count the workers: %w", err)
	}
	n, err := in.redis.ZCount(ctx, workers.ListKey, "("+strconv.FormatInt(now.Add(-workers.BeatLasts).UnixMilli(), 10), "+inf").Result()
	if err != nil {
		return 0, fmt.Errorf("count the workers: %w", err)
	}
	return n, nil
}
