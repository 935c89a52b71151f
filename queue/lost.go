package queue

import (
	"bytes"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// errLost ends a run whose job another run has by now. It never reaches Redis.
var errLost = errors.New("headgate: another run has this job")

// lost is the end of such a run. The error makes asynq give the task back, with a
// text by which lostHook knows that command.
func lost() verdict { return verdict{outcome: Lost, err: &retryError{err: errLost}} }

// lostHook keeps asynq from giving back, or archiving, a task that another run has
// by now: asynq's scripts know tasks by their id alone, and would end the other
// run's. It hooks the Redis client that only asynq uses.
//
// A command says of itself that it belongs to a lost run. Nothing is remembered, as
// asynq does not acknowledge every run: one whose lease ran out, or that an operator
// cancelled, it has given up before.
type lostHook struct{}

func (lostHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lostHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ack, ok := cmd.(*redis.Cmd); ok && endsLostRun(cmd.Args()) {
			ack.SetVal("OK")
			return nil
		}
		return next(ctx, cmd)
	}
}

func (lostHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// endsLostRun looks at the task's message, the second argument of asynq's scripts
// that give back and that archive: it carries the error of the run.
func endsLostRun(args []any) bool {
	if len(args) < 4 || (args[0] != "evalsha" && args[0] != "eval") {
		return false
	}
	keys, _ := args[2].(int)
	at := 3 + keys + 1
	if at >= len(args) {
		return false
	}
	encoded, ok := args[at].([]byte)
	if !ok || !bytes.Contains(encoded, []byte(errLost.Error())) {
		return false // most are: a payload may quote the text, so the rest is decoded
	}
	message, err := decodeMessage(encoded)
	return err == nil && message.failure == errLost.Error()
}
