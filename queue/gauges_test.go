package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// busy makes a queue with jobs in every state, and with limits of every algorithm for which
// some of them wait.
func busy(t *testing.T) *rig {
	t.Helper()
	daily := windowOf("daily", 100, 24*time.Hour)
	daily.Location = time.UTC
	tokens := sharedBy(50)
	tokens.Name, tokens.Unit, tokens.Adaptive = "tokens", "tokens", true
	r := startRig(t, 6, limitsOf(perTenant(1), daily, tokens, limits.Limit{
		Name: "at-once", Algorithm: throttle.Concurrency, Concurrency: 8,
	}), nil)
	release := make(chan struct{})
	r.answer = func(_ context.Context, job Running) error {
		switch job.Tenant {
		case "never":
			return permanent{}
		case "later":
			return notToday{time.Now().Add(time.Hour)}
		case "hangs":
			<-release
		}
		return nil
	}
	for _, tenant := range []string{"never", "later", "hangs", "a", "b"} {
		r.enqueue(t, tenant, 1)
	}
	r.add(t, func(job *Job) { job.Tenant, job.Retention = "c", time.Hour })
	r.run(t)
	t.Cleanup(func() { close(release) })
	r.receiver.wait(t)
	r.seen.wait(t, string(lifecycle.Done), 3)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.seen.wait(t, string(lifecycle.Postponed), 1)
	r.add(t, func(job *Job) { job.At = time.Now().Add(time.Hour) })
	r.enqueue(t, "a", 20)
	r.enqueue(t, "b", 30)
	return r
}

// TestGaugesAreAsynqs: gauges that asynq's tools have too show the same numbers.
func TestGaugesAreAsynqs(t *testing.T) {
	t.Parallel()
	r := busy(t)
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	if err := inspector.PauseQueue(r.queue); err != nil {
		t.Fatal(err)
	}
	// Jobs held when the pause began go back to their lanes.
	var info *asynq.QueueInfo
	var g inspect.Gauges
	same := func() bool {
		var err error
		if info, err = inspector.GetQueueInfo(r.queue); err != nil {
			t.Fatal(err)
		}
		if g, err = inspect.New(r.server.Client()).Gauges(t.Context(), r.queue); err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]int64{
			{int64(info.Aggregating), g.Waiting}, {int64(info.Scheduled), g.Scheduled}, {int64(info.Retry), g.Retry},
			{int64(info.Pending), g.Pending}, {int64(info.Active), g.Active}, {int64(info.Archived), g.Asynq.Archived},
			{int64(info.Completed), g.Completed}, {int64(info.ProcessedTotal), g.Asynq.Processed}, {int64(info.FailedTotal), g.Asynq.Failed},
		} {
			if pair[0] != pair[1] {
				return false
			}
		}
		// asynq sees the end of a job later than the observer.
		return g.Asynq.Paused == info.Paused && g.Completed == 1
	}
	for end := time.Now().Add(time.Minute); !same(); {
		if time.Now().After(end) {
			t.Fatalf("asynq: %+v\nours: %+v", info, g)
		}
	}
	if !g.Asynq.Paused || g.Archived != 1 || g.Active < 1 || g.Scheduled != 1 || g.Retry < 1 || g.Waiting < 45 || g.Completed != 1 {
		t.Errorf("%+v", g)
	}
	if ratio := float64(g.Asynq.Bytes) / float64(info.MemoryUsage); ratio < 0.5 || ratio > 2 {
		t.Errorf("%d bytes, and asynq says %d", g.Asynq.Bytes, info.MemoryUsage)
	}
}

func TestGauges(t *testing.T) {
	t.Parallel()
	r := busy(t)
	var g inspect.Gauges
	byName := map[string]inspect.LimitGauge{}
	until(t, "held back by the slots of a and of b", func() bool {
		var err error
		if g, err = inspect.New(r.server.Client()).Gauges(t.Context(), r.queue); err != nil {
			t.Fatal(err)
		}
		for _, limit := range g.Limits {
			byName[limit.Name] = limit
		}
		return byName["tenant"].Used == 1
	})
	if g.Tenants != 2 || g.Enqueued != 57 || len(g.Pauses) != 0 {
		t.Errorf("%+v", g)
	}
	day := 24 * time.Hour.Seconds()
	for _, want := range []inspect.LimitGauge{
		{Name: "tenant", Scope: "tenant", Unit: "jobs", PerSecond: 1, Capacity: 1, Used: 1, Buckets: 2, Adapted: 1},
		{Name: "daily", Scope: "queue", Unit: "jobs", PerSecond: 100 / day, Capacity: 100, Used: byName["daily"].Used, Buckets: 1, Adapted: 1},
		{Name: "tokens", Scope: "queue", Unit: "tokens", PerSecond: 50, Capacity: 1, Buckets: 1, Adapted: 1},
		{Name: "at-once", Scope: "queue", Unit: "jobs", Capacity: 8, Used: byName["at-once"].Used, Buckets: 1, Adapted: 1},
	} {
		if got := byName[want.Name]; got != want {
			t.Errorf("%+v; want %+v", got, want)
		}
	}
	if used := byName["daily"].Used; used < 0.06 || used > 0.2 {
		t.Errorf("%v of the day's 100 are used after 6 calls", used)
	}
	if used := byName["at-once"].Used; used < 1.0/8 || used > 5.0/8 {
		t.Errorf("%v of 8 calls at once, while one hangs", used)
	}
}

// TestGaugesOfPauses also has an adaptive limit that a provider lowered.
func TestGaugesOfPauses(t *testing.T) {
	t.Parallel()
	shared := sharedBy(50)
	shared.Adaptive = true
	r := startRig(t, 1, limitsOf(shared), nil)
	var calls atomic.Int64
	r.answer = func(context.Context, Running) error {
		if calls.Add(1) > 1 {
			return nil // it may be called while this test looks, and after the pause has ended
		}
		return tooMany{time.Minute, true}
	}
	r.enqueue(t, "a", 2)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	g, err := inspect.New(r.server.Client()).Gauges(t.Context(), r.queue)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Pauses) != 1 || g.Pauses[0].Tenant != "" || g.Pauses[0].By != "provider" || time.Until(g.Pauses[0].Until) < 50*time.Second {
		t.Errorf("pauses: %+v", g.Pauses)
	}
	if got := g.Limits[0]; got.Adapted < 0.5 || got.Adapted > 0.6 || got.Used != 1 {
		t.Errorf("%+v; want it lowered to half, and nothing left of it", got)
	}
	if _, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{}, ann); err != nil {
		t.Fatal(err)
	}
	if g, err = inspect.New(r.server.Client()).Gauges(t.Context(), r.queue); err != nil || len(g.Pauses) != 0 {
		t.Errorf("resumed: %+v, %v", g.Pauses, err)
	}
}

// TestGaugesAreBounded counts what a look costs Redis beside 20 times as many lanes.
func TestGaugesAreBounded(t *testing.T) {
	t.Parallel()
	cost := func(tenants int) float64 {
		server := redistest.Start(t)
		client := server.Client()
		limits := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(10), sharedBy(100)}}}}
		if err := operate.Publish(t.Context(), client, limits); err != nil {
			t.Fatal(err)
		}
		jobs := make([]Job, tenants)
		for i := range jobs {
			jobs[i] = Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("tenant-", i), Payload: json.RawMessage(`{}`)}
		}
		enqueueAll(t, NewClient(client), jobs...)
		before := commandStats(t, client)
		if _, err := inspect.New(client).Gauges(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		return commandStats(t, client).commands - before.commands
	}
	few, many := cost(100), cost(2000)
	t.Logf("commands: %.0f of 100 lanes, %.0f of 2,000", few, many)
	if many > few+5 || many > 400 {
		t.Errorf("%.0f commands for 2,000 lanes, %.0f for 100", many, few)
	}
}

func TestGaugesOfTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Embedded(t)
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(10)}}}}); err != nil {
		t.Fatal(err)
	}
	enqueueAll(t, NewClient(client), Job{Kind: "call", Queue: "q", Tenant: "a"}, Job{Kind: "call", Queue: "q", Tenant: "b;*"})
	g, err := inspect.New(client).Gauges(t.Context(), "q")
	if err != nil || g.Waiting != 2 || g.Tenants != 2 || g.Limits[0].Buckets != 2 {
		t.Errorf("%+v, %v", g, err)
	}
	tenants, err := inspect.New(client).TenantGauges(t.Context(), "q", []string{"b;*", "*", "nobody"})
	if want := []inspect.TenantGauges{{Tenant: "b;*", Waiting: 1, Stored: 1, StoredBytes: 640}, {Tenant: "*"}, {Tenant: "nobody"}}; err != nil || fmt.Sprint(tenants) != fmt.Sprint(want) {
		t.Errorf("%+v, %v; want %+v", tenants, err, want)
	}
	// A queue that nobody knows has nothing.
	if g, err := inspect.New(client).Gauges(t.Context(), "none"); err != nil || g.Waiting != 0 || len(g.Limits) != 0 {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestCountWorkers(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	now := float64(time.Now().UnixMilli())
	client.ZAdd(t.Context(), workers.ListKey, redis.Z{Member: "dead", Score: now - 20_000}, redis.Z{Member: "a", Score: now - 6_000}, redis.Z{Member: "b", Score: now})
	if n, err := inspect.New(client).CountWorkers(t.Context()); err != nil || n != 2 {
		t.Errorf("%d workers, %v; want 2", n, err)
	}
}

// TestLookingWritesNothing: a bucket that has to be converted, as its rate was changed,
// is converted by whoever takes of it.
func TestLookingWritesNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	r.enqueue(t, "a", 20)
	r.release(t, r.dispatcher(), 15)
	bucket := store.Key(r.queue, "b:tenant:a")
	before := client.Get(t.Context(), bucket).Val()
	limits := client.HGet(t.Context(), store.Key(r.queue, "limits"), "*").Val()
	client.HSet(t.Context(), store.Key(r.queue, "limits"), "*", strings.Replace(limits, `"p":100000`, `"p":200000`, 1))
	for name, run := range map[string]func() (any, error){
		"gauges": func() (any, error) {
			return store.GaugesScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, "", 32, "*")
		},
		"explain": func() (any, error) {
			return store.ExplainScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, "", r.lane("a"), "", 0, 0)
		},
	} {
		if _, err := run(); err != nil {
			t.Fatal(err)
		}
		if after := client.Get(t.Context(), bucket).Val(); after != before || before == "" {
			t.Errorf("%s: the bucket was %q and is %q", name, before, after)
		}
	}
}
