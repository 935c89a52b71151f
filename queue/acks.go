package queue

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// acks sends what asynq says of tasks that are through: those of one moment
// share a round trip. It hooks the Redis client that only asynq uses, behind the
// hooks that hold acknowledgements back.
type acks struct {
	batcher batcher[ack, struct{}]
}

type ack struct {
	ctx context.Context
	cmd redis.Cmder
}

func newAcks(client redis.UniversalClient) *acks {
	a := &acks{}
	a.batcher.gap = shareWithin
	a.batcher.run = func(list []ack) ([]struct{}, error) {
		ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
		defer cancel()
		pipe := client.Pipeline()
		for _, ack := range list {
			// Its lease may have ended while it waited: the task is another's by now.
			if err := ack.ctx.Err(); err != nil {
				ack.cmd.SetErr(err)
				continue
			}
			_ = pipe.Process(ctx, ack.cmd) // fails never: nothing is sent yet
		}
		_, _ = pipe.Exec(ctx) // every command has its own error
		return make([]struct{}, len(list)), nil
	}
	return a
}

// acknowledges tells asynq's scripts that end a task well, or give it back, by
// their first key.
func acknowledges(args []any) bool {
	if len(args) < 4 || (args[0] != "evalsha" && args[0] != "eval") {
		return false
	}
	key, ok := args[3].(string)
	return ok && strings.HasPrefix(key, "asynq:{") && strings.HasSuffix(key, ":active")
}

func (a *acks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *acks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !acknowledges(cmd.Args()) {
			return next(ctx, cmd)
		}
		_, _ = a.batcher.do(ack{ctx, cmd})
		return cmd.Err()
	}
}

func (a *acks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
