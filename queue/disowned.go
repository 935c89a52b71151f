package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// disowned keeps asynq from acknowledging a task that another worker has by
// now: asynq's scripts know tasks by their id alone, and would end the other's.
// It hooks the Redis client that only asynq uses.
type disowned struct {
	mu    sync.Mutex
	tasks map[string]int // task key -> acknowledgements to hold back
}

func (d *disowned) add(queue, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks[asynqKey(queue, "t:"+id)]++
}

// holdBack reports whether a command acknowledges a disowned task, once for each.
func (d *disowned) holdBack(args []any) bool {
	if len(args) < 6 || (args[0] != "evalsha" && args[0] != "eval") {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.tasks) == 0 {
		return false
	}
	// Every acknowledging script has the active list and the task among its keys.
	task, active := "", false
	for _, arg := range args[3:min(len(args), 8)] {
		text := fmt.Sprint(arg)
		active = active || strings.HasSuffix(text, "}:active")
		if d.tasks[text] > 0 {
			task = text
		}
	}
	if task == "" || !active {
		return false
	}
	if d.tasks[task]--; d.tasks[task] == 0 {
		delete(d.tasks, task)
	}
	return true
}

func (d *disowned) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *disowned) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ack, ok := cmd.(*redis.Cmd); ok && d.holdBack(cmd.Args()) {
			ack.SetVal("OK")
			return nil
		}
		return next(ctx, cmd)
	}
}

func (d *disowned) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
