package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Execute sends a pipeline and returns the first error that is not [redis.Nil]. The
// pipeline's own Exec returns the first error of any kind: that of a field that does not
// exist would hide the error of a later command.
func Execute(ctx context.Context, pipe redis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	if !errors.Is(err, redis.Nil) {
		return err
	}
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// Transaction runs commands in a transaction. If Redis rejects one of them, the error says why:
// that of TxPipelined says only that the transaction was discarded.
func Transaction(ctx context.Context, client redis.Cmdable, fn func(redis.Pipeliner) error) error {
	commands, err := client.TxPipelined(ctx, fn)
	if !redis.HasErrorPrefix(err, "EXECABORT") {
		return err
	}
	for _, command := range commands {
		if rejected := command.Err(); rejected != nil && !redis.HasErrorPrefix(rejected, "EXECABORT") {
			return rejected
		}
	}
	return err
}
