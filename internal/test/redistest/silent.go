package redistest

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Silent is a hook that leaves commands with a word without an answer until the end.
type Silent struct {
	Word string
	End  <-chan struct{}
}

func (s Silent) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s Silent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(s.Word)) {
			<-s.End
			return errors.New("no answer")
		}
		return next(ctx, cmd)
	}
}

func (s Silent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
