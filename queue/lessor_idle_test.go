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

// partitionAsks counts how often each partition is asked what it wants of leased limits, and whether it still has no jobs.
type partitionAsks struct {
	mu   sync.Mutex
	n    map[string]int
	idle map[string]int
}

func (p *partitionAsks) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	p.mu.Lock()
	if slices.Contains(args, any(store.AskScript.Hash())) {
		p.n[fmt.Sprint(args[len(args)-4])]++
	} else if slices.Contains(args, any(store.AskIdleScript.Hash())) {
		p.idle[fmt.Sprint(args[len(args)-1])]++
	}
	p.mu.Unlock()
	return next(ctx, cmd)
}

// counts returns how often each partition was asked what it wants, and whether it still has no jobs.
func (p *partitionAsks) counts() (wants, idle map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.n), maps.Clone(p.idle)
}

// idleQueue is a queue in three partitions without jobs that share a limit. Its lessor and its dispatchers run, and hear
// what is announced.
type idleQueue struct {
	client redis.UniversalClient
	layout partition.Layout
	asked  *partitionAsks
}

// newIdleQueue starts the lessor. It asks partitions without jobs so seldom.
func newIdleQueue(t *testing.T, slow time.Duration) *idleQueue {
	t.Helper()
	server, ctx := redistest.Any(t), t.Context()
	w := &idleQueue{
		layout: partition.Layout{Queue: redistest.Queue(t), N: 3},
		asked:  &partitionAsks{n: map[string]int{}, idle: map[string]int{}},
	}
	set := limits.Queue{Partitions: w.layout.N, Limits: []limits.Limit{sharedLimit(throttle.LeakyBucket, 100, 0)}}
	if err := operate.Publish(ctx, server.Client(), limits.Set{Queues: map[string]limits.Queue{w.layout.Queue: set}}); err != nil {
		t.Fatal(err)
	}
	w.client = redis.NewUniversalClient(server.Options())
	t.Cleanup(func() { w.client.Close() })
	w.client.AddHook(redistest.OnCommand(w.asked.on))
	clocks, windows := map[string]*redisClock{}, map[string]*effective.Calendars{}
	dispatchers := map[string]*dispatcher{}
	r := &rig{server: server}
	for _, home := range w.layout.Names() {
		clocks[home], windows[home] = &redisClock{redis: w.client, queue: home}, &effective.Calendars{Queue: home, Redis: w.client}
		if err := clocks[home].start(ctx); err != nil {
			t.Fatal(err)
		}
		r.queue = home
		dispatchers[home] = r.dispatcher()
		dispatchers[home].of = w.layout
	}
	l := newLessor(w.layout, "w", w.client, clocks, windows, time.Minute, newRoles(w.client, "w"), slog.New(slog.DiscardHandler))
	l.slow = slow
	dispatchers[w.layout.Queue].lessor = l
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { l.Run(running) })
	all.Go(func() { listen(running, w.client, slices.Collect(maps.Values(dispatchers)), func() {}) })
	for _, d := range dispatchers {
		all.Go(func() { d.Run(running) })
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return w
}

func (w *idleQueue) idle(t *testing.T, home string) bool {
	return w.client.HExists(t.Context(), store.Key(home, "vtime"), "*idle").Val()
}

// settled waits until a partition is asked no more what it wants. First, what was leased to it has to lapse.
func (w *idleQueue) settled(t *testing.T, home string) {
	t.Helper()
	until(t, "all partitions are known to have no jobs", func() bool {
		return !slices.ContainsFunc(w.layout.Names(), func(home string) bool { return !w.idle(t, home) })
	})
	last, since := 0, time.Now()
	until(t, "a partition without jobs is asked no more", func() bool {
		if now, _ := w.asked.counts(); now[home] != last {
			last, since = now[home], time.Now()
		}
		return time.Since(since) > 4*idleAsks
	})
}

// TestPartitionsWithoutJobs: a partition without jobs is seldom asked what it wants of a shared limit, and at once when it
// has some, whichever way they come.
func TestPartitionsWithoutJobs(t *testing.T) {
	t.Parallel()
	w, ctx := newIdleQueue(t, time.Hour), t.Context() // so that only what is announced is seen
	third := w.layout.Names()[2]
	tenant := ""
	for i := 0; w.layout.Home(tenant) != third; i++ {
		tenant = fmt.Sprint("t", i)
	}
	for _, in := range []time.Duration{0, 2 * time.Second} {
		w.settled(t, third)
		job := Job{Kind: "call", Queue: w.layout.Queue, Tenant: tenant}
		if in > 0 {
			job.At = time.Now().Add(in)
		}
		if _, err := NewClient(w.client).Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
		active := func() int64 { return w.client.LLen(ctx, asynqwire.Key(third, "active")).Val() }
		until(t, "the job goes", func() bool { return active() > 0 })
		before, _ := w.asked.counts()
		until(t, "it is asked while the call is under way", func() bool {
			now, _ := w.asked.counts()
			return now[third] >= before[third]+2
		})
		if w.idle(t, third) {
			t.Error("it counts as without jobs while the call is under way, which may give permits back")
		}
		w.client.Del(ctx, asynqwire.Key(third, "active")) // the call is over
	}
	if _, idle := w.asked.counts(); idle[third] > 6 {
		t.Errorf("it was asked %d times whether it has jobs; want not before something is announced", idle[third])
	}
}

// TestPartitionsRest: a partition without jobs is only asked whether it still has none, which costs Redis little.
func TestPartitionsRest(t *testing.T) {
	t.Parallel()
	w := newIdleQueue(t, 300*time.Millisecond)
	third := w.layout.Names()[2]
	w.settled(t, third)
	before, idle := w.asked.counts()
	until(t, "it is asked whether it has jobs", func() bool {
		_, now := w.asked.counts()
		return now[third] >= idle[third]+3
	})
	if now, _ := w.asked.counts(); now[third] != before[third] || now[w.layout.Queue] == before[w.layout.Queue] {
		t.Errorf("asked what they want: %v, and before %v; want that the first partition is, and the third is not", now, before)
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
	if err := client.HSet(t.Context(), key, "*idle", 5, "*unit", "permits").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.dispatcher().round(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := client.HMGet(t.Context(), key, "*idle", "*unit").Val(); got[0] != "5" || got[1] != "time" {
		t.Errorf("idle and unit: %v; want 5 and time", got)
	}
}

// TestRest: a partition rests until it has jobs, or until a bucket has something to ask. What is damaged is left to
// lease_ask.lua.
func TestRest(t *testing.T) {
	t.Parallel()
	server, ctx, home := redistest.Any(t), t.Context(), redistest.Queue(t)
	client := server.Client()
	now, err := store.Time(ctx, client, store.Key(home, "limits"))
	if err != nil {
		t.Fatal(err)
	}
	vtime, tenants := store.Key(home, "vtime"), store.Key(home, "tenants")
	idle := func(at any) func() { return func() { client.HSet(ctx, vtime, "*idle", at) } }
	for _, c := range []struct {
		what  string
		do    func()
		rests bool
	}{
		{"it never had a mark", func() {}, false},
		{"without jobs", idle(now.Add(time.Hour).UnixMicro()), true},
		{"none waits any more", func() { client.HSet(ctx, tenants, "*", "0 5 0 0 0") }, true},
		{"some wait", func() { client.HSet(ctx, tenants, "*", "10 5 10 0 1") }, false},
		{"the counts are damaged", func() { client.HSet(ctx, tenants, "*", "none") }, false},
		{"they begin with a 0", func() { client.HSet(ctx, tenants, "*", "01 5 10 0 1") }, false},
		{"they are another type", func() { client.Set(ctx, tenants, "0 5 0 0 0", 0) }, false},
		{"they are gone", func() { client.Del(ctx, tenants) }, true},
		{"a call is under way", func() { client.LPush(ctx, asynqwire.Key(home, "active"), "id") }, false},
		{"it has ended", func() { client.Del(ctx, asynqwire.Key(home, "active")) }, true},
		{"a call begins", func() { client.LPush(ctx, asynqwire.Key(home, "pending"), "id") }, false},
		{"they are damaged", func() {
			client.Del(ctx, asynqwire.Key(home, "pending"))
			client.Set(ctx, asynqwire.Key(home, "pending"), "id", 0)
		}, false},
		{"there are none", func() { client.Del(ctx, asynqwire.Key(home, "pending")) }, true},
		{"a bucket has something to ask", idle(now.UnixMicro()), false},
		{"the mark is damaged", idle("soon"), false},
	} {
		c.do()
		next, err := rest(ctx, client, home)
		if err != nil || (next > 0) != c.rests || next > time.Hour {
			t.Errorf("%s: %v, %v; want that it rests: %t", c.what, next, err, c.rests)
		}
	}
}
