package queue

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// texts reads the fields of HMGET; what is not there is "".
func texts(fields []any) []string {
	out := make([]string, len(fields))
	for i, field := range fields {
		out[i], _ = field.(string)
	}
	return out
}

// scanHash reads a hash in pieces, so that a large one does not hold Redis up.
func scanHash(ctx context.Context, client redis.UniversalClient, name string) (map[string]string, error) {
	all := map[string]string{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		fields, next, err := client.HScan(ctx, name, cursor, "", 1000).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(fields); i += 2 {
			all[fields[i]] = fields[i+1]
		}
		cursor = next
	}
	return all, nil
}

// unescape is the way back from [throttle.Escape].
func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

const redisTimeout = 5 * time.Second

// mostKeys is how many keys one command reads, and of how many lanes one pipeline
// reads the state. Most queues have no more lanes.
const mostKeys = 500
