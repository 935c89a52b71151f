package redisscript

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Anyway runs one command on one key: see [ExecAnyway].
var Anyway = New("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))").AllowOOM()

// ExecAnyway sends a pipeline and returns the first error that is not [redis.Nil]. Commands that
// Redis rejects because it has reached its maxmemory are sent again, and run nevertheless. Use it
// for writes that do not make Redis grow, because they replace what was written before.
func ExecAnyway(ctx context.Context, client redis.UniversalClient, pipe redis.Pipeliner) error {
	var first error
	commands, _ := pipe.Exec(ctx) // every command has its own error
	for _, command := range commands {
		err := command.Err()
		if redis.HasErrorPrefix(err, "OOM") {
			args := command.Args()
			_, err = Anyway.Run(ctx, client, []string{args[1].(string)}, slices.Delete(slices.Clone(args), 1, 2)...)
		}
		if first == nil && err != nil && !errors.Is(err, redis.Nil) {
			first = err
		}
	}
	return first
}
