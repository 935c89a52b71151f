package store

import (
	"context"
	"fmt"
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
	return RestOfHash(ctx, client, name, client.HScan(ctx, name, 0, "", hashPiece))
}

const hashPiece = 1000 // fields

// RestOfHash is [ScanHash] for a hash of which the first piece was read already.
func RestOfHash(ctx context.Context, client redis.UniversalClient, name string, first *redis.ScanCmd) (map[string]string, error) {
	fields, cursor, err := first.Result()
	all := make(map[string]string, len(fields)/2)
	for err == nil {
		for i := 0; i+1 < len(fields); i += 2 {
			all[fields[i]] = fields[i+1]
		}
		if cursor == 0 {
			return all, nil
		}
		fields, cursor, err = client.HScan(ctx, name, cursor, "", hashPiece).Result()
	}
	return nil, fmt.Errorf("read %s: %w", name, err)
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
