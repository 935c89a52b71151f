package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// OnCommand is a hook on a client that is called with each command outside a pipeline. The client sets the error that it
// returns on the command.
type OnCommand func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (on OnCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (on OnCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return on(ctx, cmd, next) }
}

func (on OnCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// OnRequest is a hook on a client that is called with each command, or all those of a pipeline, and sends them with send.
// An error that it returns without a call of send becomes the error of all of them.
type OnRequest func(ctx context.Context, cmds []redis.Cmder, send func() error) error

func (on OnRequest) DialHook(next redis.DialHook) redis.DialHook { return next }

func (on OnRequest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return on(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (on OnRequest) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := false
		err := on(ctx, cmds, func() error {
			sent = true
			return next(ctx, cmds)
		})
		if err != nil && !sent {
			for _, cmd := range cmds { // go-redis does so for a single command only
				cmd.SetErr(err)
			}
		}
		return err
	}
}
