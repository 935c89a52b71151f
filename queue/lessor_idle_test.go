package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// partitionAsks counts how often each partition is asked what it wants of leased limits.
type partitionAsks struct {
	mu sync.Mutex
	n  map[string]int
}

func (p *partitionAsks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *partitionAsks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *partitionAsks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); slices.Contains(args, any(store.AskScript.Hash())) {
			p.mu.Lock()
			p.n[fmt.Sprint(args[len(args)-4])]++
			p.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func (p *partitionAsks) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.n)
}

// TestPartitionsWithoutJobs: a partition without jobs is seldom asked what it wants of a shared limit, and at once when it
// has some, whichever way they come.
func TestPartitionsWithoutJobs(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Any(t), t.Context()
	queue := redistest.Queue(t)
	layout := partition.Layout{Queue: queue, N: 3}
	client := server.Client()
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{queue: {Partitions: layout.N, Limits: []limits.Limit{sharedLimit(throttle.LeakyBucket, 100, 0)}}}}); err != nil {
		t.Fatal(err)
	}
	asked := &partitionAsks{n: map[string]int{}}
	own := redis.NewUniversalClient(server.Options())
	t.Cleanup(func() { own.Close() })
	own.AddHook(asked)
	clocks, windows := map[string]*redisClock{}, map[string]*effective.Calendars{}
	dispatchers := map[string]*dispatcher{}
	r := &rig{server: server}
	for _, home := range layout.Names() {
		clocks[home], windows[home] = &redisClock{redis: own, queue: home}, &effective.Calendars{Queue: home, Redis: own}
		if err := clocks[home].start(ctx); err != nil {
			t.Fatal(err)
		}
		r.queue = home
		dispatchers[home] = r.dispatcher()
		dispatchers[home].of = layout
	}
	l := newLessor(layout, "w", own, clocks, windows, time.Minute, newRoles(own, "w"), slog.New(slog.DiscardHandler))
	l.slow = time.Hour // so that only what is announced is seen
	dispatchers[queue].lessor = l
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { l.Run(running) })
	all.Go(func() { listen(running, own, slices.Collect(maps.Values(dispatchers)), func() {}) })

	idle := func(home string) bool { return own.HExists(ctx, store.Key(home, "vtime"), "*idle").Val() }
	third := layout.Names()[2]
	tenant := ""
	for i := 0; layout.Home(tenant) != third; i++ {
		tenant = fmt.Sprint("t", i)
	}
	for _, in := range []time.Duration{0, 2 * time.Second} {
		until(t, "all partitions are known to have no jobs", func() bool {
			return !slices.ContainsFunc(layout.Names(), func(home string) bool { return !idle(home) })
		})
		until(t, "the third partition is asked no more", func() bool { // first, what was leased has to lapse
			before := asked.counts()
			until(t, "the first partition is asked", func() bool { return asked.counts()[queue] >= before[queue]+5 })
			return asked.counts()[third] == before[third]
		})
		job := Job{Kind: "call", Queue: queue, Tenant: tenant}
		if in > 0 {
			job.At = time.Now().Add(in)
		}
		if _, err := NewClient(client).Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
		active := func() int64 { return own.LLen(ctx, asynqwire.Key(third, "active")).Val() }
		begun := active()
		until(t, "the job goes", func() bool {
			if _, err := dispatchers[third].round(ctx, 100); err != nil {
				t.Fatal(err)
			}
			return active() > begun
		})
		seen := asked.counts()[third]
		until(t, "it is asked while the call is under way", func() bool { return asked.counts()[third] >= seen+2 })
		if idle(third) {
			t.Error("it counts as without jobs while the call is under way, which may give permits back")
		}
		own.Del(ctx, asynqwire.Key(third, "active")) // the call is over
	}
}

// TestNextAsk: a partition without jobs is asked again when a bucket has something to give back.
func TestNextAsk(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	windows := &effective.Calendars{Queue: "ai", Redis: s.client}
	next := func() time.Duration {
		t.Helper()
		_, shared, next, err := askBuckets(t.Context(), s.client, "ai", windows, 0)
		if err != nil || !shared {
			t.Fatal(shared, err)
		}
		return next
	}
	if got := next(); got < time.Minute {
		t.Errorf("without jobs it is asked again in %v", got)
	}
	now, err := store.Time(t.Context(), s.client, store.Key("ai", "limits"))
	if err != nil {
		t.Fatal(err)
	}
	s.client.ZAdd(t.Context(), store.Key("ai", "leases:spend"), redis.Z{Score: float64(now.Add(time.Minute).UnixMicro()), Member: "a"})
	if got := next(); got > time.Minute || got < 50*time.Second {
		t.Errorf("with a tenant that is asked again in a minute it is asked again in %v", got)
	}
}

// TestIdleThroughAnotherUnit: when jobs begin to count by another unit, the next one in a partition without jobs is still
// announced to who leases.
func TestIdleThroughAnotherUnit(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(tokens(1000)), nil)
	client, key := r.server.Client(), store.Key(r.queue, "vtime")
	if err := client.HSet(t.Context(), key, "*idle", 1, "*unit", "permits").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dispatcher().round(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := client.HMGet(t.Context(), key, "*idle", "*unit").Val(); got[0] != "1" || got[1] != "time" {
		t.Errorf("idle and unit: %v; want 1 and time", got)
	}
}
