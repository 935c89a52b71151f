package store

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// Texts returns the fields of an HMGET; "" for those that do not exist.
func Texts(fields []any) []string {
	out := make([]string, len(fields))
	for i, field := range fields {
		out[i], _ = field.(string)
	}
	return out
}

// ScanHash reads a hash in pieces, so that a large one does not block Redis.
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

// Unescape reverses [rediskey.Escape]. It returns the text itself if it is not valid.
func Unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

const Timeout = 5 * time.Second

// MaxKeys is the maximum number of keys that one command reads, and of lanes whose state
// one pipeline reads. Most queues have fewer lanes.
const MaxKeys = 500
