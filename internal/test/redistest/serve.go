package redistest

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Serve records in Redis, like the heartbeat of a worker, that a worker serves a queue and has
// handlers for these kinds. It takes no jobs, so that tests and examples can inspect waiting jobs.
// The record lasts for an hour.
func Serve(client redis.UniversalClient, queue string, kinds ...string) {
	ctx := context.Background()
	id := "served-" + queue + "-" + strings.Join(kinds, "-")
	seen := time.Now().Add(time.Hour)
	text, err := json.Marshal(map[string]any{
		"id": id, "host": "test", "started": time.Now(), "seen": seen, "queues": []string{queue}, "kinds": kinds, "concurrency": 1,
	})
	if err == nil {
		err = client.Set(ctx, "headgate:worker:"+id, text, time.Hour).Err()
	}
	if err == nil {
		err = client.ZAdd(ctx, "headgate:workers", redis.Z{Score: float64(seen.UnixMilli()), Member: id}).Err()
	}
	if err != nil {
		panic(err)
	}
}
