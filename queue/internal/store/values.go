package store

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// Texts reads the fields of HMGET; what is not there is "".
func Texts(fields []any) []string {
	out := make([]string, len(fields))
	for i, field := range fields {
		out[i], _ = field.(string)
	}
	return out
}

// ScanHash reads a hash in pieces, so that a large one does not hold Redis up.
func ScanHash(ctx context.Context, client redis.UniversalClient, name string) (map[string]string, error) {
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

// Unescape is the way back from [rediskey.Escape].
func Unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

const Timeout = 5 * time.Second

// MaxKeys is how many keys one command reads, and of how many lanes one pipeline
// reads the state. Most queues have no more lanes.
const MaxKeys = 500
