package queue

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// asynqScript recognizes one of asynq's scripts among the commands of the client
// that only asynq uses. asynq exports neither its scripts nor their hashes, so a
// script is known by all of its keys and by how many arguments follow them.
type asynqScript struct {
	keys   []string // without "asynq:{queue}:"; a '*' at the end stands for anything
	values int
}

var (
	forwardScheduled = asynqScript{[]string{"scheduled", "pending"}, 4}
	forwardRetry     = asynqScript{[]string{"retry", "pending"}, 4}
	listExpired      = asynqScript{[]string{"lease"}, 2}
	dequeue          = asynqScript{[]string{"pending", "paused", "active", "lease"}, 2}
	archiveTask      = asynqScript{[]string{"t:*", "active", "lease", "archived", "processed:*", "failed:*", "processed", "failed", "t:"}, 7}
)

func (s asynqScript) isCalled(args []any) bool {
	if len(args) != 3+len(s.keys)+s.values || (args[0] != "evalsha" && args[0] != "eval") || fmt.Sprint(args[2]) != fmt.Sprint(len(s.keys)) {
		return false
	}
	for i, want := range s.keys {
		_, name, ok := strings.Cut(fmt.Sprint(args[3+i]), "}:")
		prefix, open := strings.CutSuffix(want, "*")
		if !ok || !strings.HasPrefix(fmt.Sprint(args[3+i]), "asynq:{") || (name != want && !(open && strings.HasPrefix(name, prefix))) {
			return false
		}
	}
	return true
}

// replacedHook answers what asynq's background parts ask in place of Redis, where
// we have parts of our own. asynq finds nothing to do.
//
// Our recoverer compares no clocks and does not wait for a minute. Our dispatcher
// forwards into lanes, whose scores are not asynq's and which it must know.
type replacedHook struct{}

func (replacedHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (replacedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		call, ok := cmd.(*redis.Cmd)
		switch args := cmd.Args(); {
		case ok && listExpired.isCalled(args):
			call.SetVal([]any{}) // no lease has expired
		case ok && (forwardScheduled.isCalled(args) || forwardRetry.isCalled(args)):
			call.SetVal(int64(0)) // no task was moved
		default:
			return next(ctx, cmd)
		}
		return nil
	}
}

func (replacedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
