package queue

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

//go:embed dequeue.lua
var dequeueLua string

var dequeueScript = throttle.NewPlainScript(dequeueLua)

// dequeueHook lets asynq take those tasks alone for which the worker has handlers:
// asynq's own script hands a task to any worker of its queue, and one without a
// handler would spend the slot of the job. It hooks the Redis client that only asynq
// uses.
type dequeueHook struct {
	redis redis.UniversalClient
	kinds string // ",KIND,KIND,"
}

func (dequeueHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h dequeueHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		call, ok := cmd.(*redis.Cmd)
		args := cmd.Args()
		if !ok || !dequeue.isCalled(args) {
			return next(ctx, cmd)
		}
		keys := make([]string, 4)
		for i := range keys {
			keys[i] = fmt.Sprint(args[3+i])
		}
		task, err := dequeueScript.Run(ctx, h.redis, keys, args[7], args[8], h.kinds)
		if err != nil {
			call.SetErr(err)
			return err
		}
		call.SetVal(task)
		return nil
	}
}

func (dequeueHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
