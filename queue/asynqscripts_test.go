package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asked counts asynq's scripts by their first key.
type asked struct {
	mu sync.Mutex
	n  map[string]int
}

func (a *asked) count(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n[name]
}

func (a *asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 3 {
			_, name, _ := strings.Cut(fmt.Sprint(args[3]), "}:")
			a.mu.Lock()
			a.n[name]++
			a.mu.Unlock()
		}
		return err
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestReplacedParts: asynq's forwarder would put due jobs into their lanes behind
// the dispatcher's back, and with scores in seconds; its recoverer would try
// again what our recoverer has to judge. Its janitor goes on.
func TestReplacedParts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100)), nil)
	ctx, client := t.Context(), r.server.Client()
	task := func(id string) string { return asynqKey(r.queue, "t:"+id) }
	past := float64(time.Now().Unix() - 100)
	scheduled := r.add(t, func(job *Job) { job.Tenant, job.In = "later", time.Hour })
	retried := r.add(t, func(job *Job) { job.Tenant = "again" })
	d := r.dispatcher()
	r.release(t, d, 1)
	client.ZAdd(ctx, asynqKey(r.queue, "scheduled"), zOf(scheduled, past))

	expired := r.add(t, func(job *Job) { job.Tenant, job.In = "lost", time.Hour })
	client.ZRem(ctx, asynqKey(r.queue, "scheduled"), expired)
	client.HSet(ctx, task(expired), "state", "active")
	client.LPush(ctx, asynqKey(r.queue, "active"), expired)
	client.ZAdd(ctx, asynqKey(r.queue, "lease"), zOf(expired, past))

	client.HSet(ctx, task("completed"), "state", "completed")
	client.ZAdd(ctx, asynqKey(r.queue, "completed"), zOf("completed", past))

	asked := &asked{n: map[string]int{}}
	own := redis.NewUniversalClient(universal(t, r.server))
	defer own.Close()
	own.AddHook(asked)
	r.worker.hookAsynq(own)
	config := asynqConfig([]string{r.queue}, 1, time.Second, slog.New(slog.DiscardHandler))
	config.DelayedTaskCheckInterval, config.JanitorInterval = 10*time.Millisecond, 10*time.Millisecond
	server := asynq.NewServerFromRedisClient(own, config)
	fail := func(context.Context, *asynq.Task) error { return errors.New("try again") }
	if err := server.Start(asynq.HandlerFunc(fail)); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	until(t, "retried", func() bool {
		return client.HGet(ctx, task(retried), "state").Val() != "pending" && client.LLen(ctx, asynqKey(r.queue, "active")).Val() < 2
	})
	before := asked.count("retry")
	until(t, "looked for what is due", func() bool { return asked.count("retry") > before+1 })
	until(t, "looked for expired leases", func() bool { return asked.count("lease") > 0 })
	until(t, "cleaned up", func() bool { return client.Exists(ctx, task("completed")).Val() == 0 })

	if states := r.states(t); states["scheduled"] != 1 || states["retry"] != 1 || states["active"] != 1 || states["aggregating"] != 0 {
		t.Errorf("asynq moved what is due: %v", states)
	}
	if _, err := d.round(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for tenant, id := range map[string]string{"later": scheduled, "again": retried} {
		lane := tenant + ";kind=call"
		score := client.ZScore(ctx, asynqKey(r.queue, "g:"+lane), id).Val()
		if score < 1<<51 || score >= 1<<52 {
			t.Errorf("job of tenant %s stands at %.0f in its lane; want µs within the band of its priority", tenant, score)
		}
		waits, ready := client.ZScore(ctx, key(r.queue, "waiting"), lane), client.ZScore(ctx, key(r.queue, "ready"), lane)
		if waits.Err() != nil && ready.Err() != nil {
			t.Errorf("the dispatcher does not know the lane of tenant %s", tenant)
		}
	}
}

// TestAsynqScripts: each is known by all of its keys, and no other is taken for it.
func TestAsynqScripts(t *testing.T) {
	scripts := map[string]asynqScript{
		"forward scheduled": forwardScheduled, "forward retry": forwardRetry, "list expired leases": listExpired, "archive a task": archiveTask,
	}
	is := func(args ...any) (names []string) {
		for name, script := range scripts {
			if script.isCalled(args) {
				names = append(names, name)
			}
		}
		return names
	}
	for want, args := range map[string][]any{
		"forward scheduled":   {"evalsha", "0123", 2, "asynq:{q}:scheduled", "asynq:{q}:pending", 17, "asynq:{q}:t:", 17000, "asynq:{q}:g:"},
		"forward retry":       {"eval", "local ids", 2, "asynq:{q}:retry", "asynq:{q}:pending", 17, "asynq:{q}:t:", 17000, "asynq:{q}:g:"},
		"list expired leases": {"evalsha", "0123", 1, "asynq:{q}:lease", 17, "asynq:{q}:t:"},
		"archive a task": {"evalsha", "0123", 9, "asynq:{q}:t:17", "asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:archived",
			"asynq:{q}:processed:2026-01-01", "asynq:{q}:failed:2026-01-01", "asynq:{q}:processed", "asynq:{q}:failed", "asynq:{q}:t:", "17", "msg", 1, 2, 3, 4, 5},
	} {
		if got := is(args...); len(got) != 1 || got[0] != want {
			t.Errorf("%s is taken for %v", want, got)
		}
	}
	for name, args := range map[string][]any{
		"run all scheduled":      {"evalsha", "0123", 2, "asynq:{q}:scheduled", "asynq:{q}:pending", "asynq:{q}:t:"},
		"dequeue":                {"evalsha", "0123", 4, "asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease", 17, "asynq:{q}:t:"},
		"schedule":               {"evalsha", "0123", 2, "asynq:{q}:t:17", "asynq:{q}:scheduled", "msg", 17, "17", "g"},
		"delete completed tasks": {"evalsha", "0123", 1, "asynq:{q}:completed", 17, "asynq:{q}:t:", 100},
		"extend a lease":         {"zadd", "asynq:{q}:lease", "xx", 17, "id", "0"},
		"a script of another":    {"evalsha", "0123", 1, "other:{q}:lease", 17, "asynq:{q}:t:"},
	} {
		if got := is(args...); len(got) != 0 {
			t.Errorf("%s is taken for %v", name, got)
		}
	}
}
