package mover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

const tenants = 24

func tenant(i int) string { return fmt.Sprintf("t%d/é", i) }

func setOf(n int) limits.Set {
	return limits.Set{
		Queues: map[string]limits.Queue{"q": {Partitions: n, Kinds: []string{"call"}, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 10, Period: time.Hour}, Burst: 50, Per: []string{"tenant"}},
			{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 50, Period: 10 * time.Hour}, Per: []string{"model", "tenant"}},
			{
				// Not a window, which could end during the test.
				Name: "new", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 10, Period: time.Hour}, Burst: 100, Per: []string{"tenant"},
				Ramp: &limits.Ramp{From: throttle.Rate{Count: 5, Period: time.Hour}, Over: 10 * time.Hour},
			},
			{Name: "calls", Algorithm: throttle.Concurrency, Concurrency: 4, Per: []string{"tenant"}},
		}}},
		Tenants: map[string]limits.Tenant{tenant(1): {Weight: 2}},
	}
}

// fill makes tenants with jobs in each state in which jobs can stay, and with all else that a tenant can have.
func fill(t *testing.T, server *redistest.Server, n int) {
	t.Helper()
	client, ctx := server.Client(), t.Context()
	by := operate.Operator{Actor: "ann", Reason: "a test"}
	published(t, client, setOf(n))
	enqueue := func(jobs ...queue.Job) {
		t.Helper()
		for _, result := range queue.NewClient(client).EnqueueMany(ctx, jobs) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	var early, late []queue.Job
	for i := range tenants {
		job := func(what string) queue.Job {
			return queue.Job{Kind: "call", Tenant: tenant(i), Payload: what, Key: what, Attributes: map[string]string{"model": "x:1"}}
		}
		done, failed, again, later, soon, high, once := job("done"), job("failed"), job("again"), job("later"), job("soon"), job("high"), job("once")
		done.Retention, failed.MaxAttempts = time.Hour, 1
		later.In, soon.Deadline, high.Priority, once.KeyWindow = time.Hour, time.Now().Add(time.Hour), queue.High, time.Hour
		early, late = append(early, done, failed, again, once), append(late, job("a"), job("b"), later, soon, high)
	}
	enqueue(early...)
	worker, err := queue.New(queue.Config{Redis: server.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "call", func(_ context.Context, what string) error {
		if what == "done" || what == "once" {
			return nil
		}
		return errors.New("answered 503")
	}, queue.Backoff(func(int) time.Duration { return time.Hour })) // so that all are in the retry set at once
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		g, err := inspect.New(client).Gauges(ctx, "q")
		_, slow := errors.AsType[*inspect.AwayError](err) // on a busy machine
		if err != nil && !slow || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", g, err)
		}
		if g.Archived == tenants && g.Retry == tenants && g.Completed == tenants && g.Active+g.Waiting == 0 {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	enqueue(late...)
	if _, err := operate.PauseJobs(ctx, client, "q", inspect.Scope{Tenant: tenant(2)}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.PauseJobs(ctx, client, "q", inspect.Scope{Kind: "call"}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	burst := int64(3)
	if err := operate.SetOverride(ctx, client, "q", tenant(3), "tenant", operate.Override{Change: limits.Change{Burst: &burst}, Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	every := queue.Periodic{ID: "daily", Spec: "@daily", Zone: "UTC", Job: queue.Job{Kind: "call", Tenant: tenant(4)}}
	if err := queue.NewClient(client).SetPeriodic(ctx, every); err != nil {
		t.Fatal(err)
	}
	home := partition.Layout{Queue: "q", N: n}.Home(tenant(4))
	client.ZAdd(ctx, store.Key(home, "periodic"), redis.Z{Score: 1_795_000_000, Member: "daily"})
	client.Set(ctx, store.Key(home, "tick:daily"), "- 1795000000 0 0", time.Hour)
	home = partition.Layout{Queue: "q", N: n}.Home(tenant(5))
	client.Set(ctx, store.Key(home, "adapt:tenant:"+rediskey.Escape(tenant(5))), "512 1024 1795000000000000 1024 0", time.Hour)
	home = partition.Layout{Queue: "q", N: n}.Home(tenant(6))
	calls, lapse := store.Key(home, "permits:calls:"+rediskey.Escape(tenant(6))), time.Now().Add(time.Hour).UnixMicro()
	client.ZAdd(ctx, calls, redis.Z{Score: float64(lapse), Member: "*a direct call"}, redis.Z{Score: float64(lapse + 1), Member: "*another one"})
	client.Expire(ctx, calls, time.Hour)
}

// published publishes limits, and returns the layout of the queue by them.
func published(t testing.TB, client redis.UniversalClient, set limits.Set) partition.Layout {
	t.Helper()
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	l, err := store.ReadLayout(t.Context(), client, "q")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// move carries out a change of partitions, as a worker of this name that logs nothing.
func move(ctx context.Context, l partition.Layout, worker string, client redis.UniversalClient) {
	m := mover.Mover{Of: l, Worker: worker, Longest: time.Minute, Redis: client, Logger: slog.New(slog.DiscardHandler)}
	m.Run(ctx)
}

// content returns what partitions have of tenants and their jobs, as text by the name that it would have in an
// undivided queue; and of the queue in each partition.
func content(t *testing.T, client redis.UniversalClient, l partition.Layout) map[string]string {
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	note := func(home, tenant, name string, value any) {
		t.Helper()
		if want := l.Home(store.Unescape(tenant)); want != home {
			t.Errorf("%s of %s is in %s; want %s", name, tenant, home, want)
		}
		if was, there := all[name]; there {
			t.Errorf("%s is there twice: %v and %v", name, was, value)
		}
		all[name] = fmt.Sprint(value)
	}
	for _, home := range l.Names() {
		places := map[string]string{} // of jobs
		place := func(key, what string) {
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				places[z.Member.(string)] += fmt.Sprintf(" %s %.0f", what, z.Score)
			}
		}
		prefix := "asynq:{" + home + "}:"
		for _, key := range redistest.Keys(t, client, prefix+"*") {
			what := strings.TrimPrefix(key, prefix)
			switch kind, rest, _ := strings.Cut(what, ":"); {
			case kind == "g":
				place(key, rest)
				if !client.SIsMember(ctx, prefix+"groups", rest).Val() {
					t.Errorf("lane %s is not listed", rest)
				}
			case slices.Contains([]string{"scheduled", "retry", "archived", "completed"}, kind):
				place(key, what)
			}
		}
		place(store.Key(home, "archive"), "archive")
		place(store.Key(home, "deadlines"), "deadline")
		prefix = "headgate:{" + home + "}:"
		for _, key := range redistest.Keys(t, client, prefix+"*") {
			what := strings.TrimPrefix(key, prefix)
			kind, rest, _ := strings.Cut(what, ":")
			switch kind {
			case "b", "ramp", "adapt":
				values := strings.Split(rest[strings.Index(rest, ":")+1:], ";")
				value := client.Get(ctx, key).Val()
				if value == "" {
					value = fmt.Sprint(client.LRange(ctx, key, 0, -1).Val())
				}
				note(home, values[len(values)-1], what, value)
			case "permits":
				_, of, _ := strings.Cut(rest, ":")
				note(home, of, what, client.ZRangeWithScores(ctx, key, 0, -1).Val())
			case "unique":
				of, _, _ := strings.Cut(rest, ":")
				note(home, of, what, client.Get(ctx, key).Val())
			case "tick":
				note(home, tenant(4), what, client.Get(ctx, key).Val())
				all["periodic"] = fmt.Sprint(client.ZScore(ctx, prefix+"periodic", "daily").Val())
			case "tenants", "overrides", "pauses":
				for field, text := range client.HGetAll(ctx, key).Val() {
					switch {
					case field == "*", kind == "tenants" && strings.HasPrefix(text, "0 0 0"):
					case field == "k:call":
						all[home+" "+field] = text
					default:
						note(home, field, kind+" "+field, text)
					}
				}
			case "moves", "leaving", "never":
				t.Errorf("%s is left", key)
			}
		}
		for _, key := range redistest.Keys(t, client, "asynq:{"+home+"}:t:*") {
			id := strings.TrimPrefix(key, "asynq:{"+home+"}:t:")
			task := client.HGetAll(ctx, key).Val()
			message, err := asynqwire.Decode([]byte(task["msg"]))
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
			if info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo(home, id); err != nil || info.Queue != home {
				t.Errorf("asynq finds %s in %+v, %v", id, info, err)
			}
			task["msg"] = fmt.Sprintf("%+v", message)
			text, _ := json.Marshal(task)
			note(home, store.ParseLane(task["group"]).Tenant, "job "+id, places[id]+" "+string(text))
		}
	}
	return all
}

func differences(was, is map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if was[name] != is[name] {
			fmt.Fprintf(&b, "%s\n  was %s\n  is  %s\n", name, was[name], is[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, known := was[name]; !known {
			fmt.Fprintf(&b, "%s\n  is new: %s\n", name, is[name])
		}
	}
	return b.String()
}

// cut ends a context after so many requests to Redis. The last one may have arrived or not.
type cut struct {
	mu      sync.Mutex
	left    int
	arrives bool
	end     context.CancelFunc
}

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) do(ctx context.Context, request func() error) error {
	c.mu.Lock()
	c.left--
	goesOn := c.left > 0
	c.mu.Unlock()
	if goesOn {
		return request()
	}
	if c.arrives {
		_ = request()
	}
	c.end()
	return ctx.Err()
}

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := c.do(ctx, func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.do(ctx, func() error { return next(ctx, cmds) })
	}
}

// held stops at a request until it may go on.
type held struct {
	mu      sync.Mutex
	left    int
	reached chan struct{}
	goOn    chan struct{}
}

func (h *held) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *held) stop() {
	h.mu.Lock()
	h.left--
	stops := h.left == 0
	h.mu.Unlock()
	if stops {
		close(h.reached)
		<-h.goOn
	}
}

func (h *held) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.stop()
		return next(ctx, cmd)
	}
}

func (h *held) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.stop()
		return next(ctx, cmds)
	}
}

// clientOf returns a client with a hook, if that is not nil.
func clientOf(t *testing.T, server *redistest.Server, hook redis.Hook) redis.UniversalClient {
	client := redisclient.New(server.Options())
	t.Cleanup(func() { client.Close() })
	if hook != nil {
		client.AddHook(hook)
	}
	return client
}
