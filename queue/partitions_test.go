package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// TestPartitions: the jobs of a queue's tenants are spread over its partitions, and one worker
// calls all of them. Callers see one queue.
func TestPartitions(t *testing.T) {
	t.Parallel()
	const tenants, each, n = 20, 3, 4
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	set := limits.Set{
		Queues: map[string]limits.Queue{"q": {Partitions: n, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(100), Per: []string{"tenant"}},
		}}},
		Tenants: map[string]limits.Tenant{"pinned": {Partition: 2}},
	}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Fatal(err)
	}
	var all []Job
	for i := range each {
		for tenant := range tenants {
			all = append(all, Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", tenant), Payload: i})
		}
		all = append(all, Job{Kind: "call", Queue: "q", Tenant: "pinned", Payload: i})
	}
	for i, r := range NewClient(client).EnqueueMany(ctx, all) {
		if r.Err != nil || r.Queue != "q" {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	for _, name := range []string{"q@2", "q@4", "q@5", "q@1"} {
		var invalid *validation.Error
		if _, err := NewClient(client).Enqueue(ctx, Job{Kind: "call", Queue: name, Tenant: "t0"}); !errors.As(err, &invalid) || invalid.Field != "queue" {
			t.Errorf("a job for %s: %v", name, err)
		}
		in := inspect.New(client)
		for what, ask := range map[string]func() error{
			"explain":  func() error { _, err := in.Explain(ctx, name, "t0:k"); return err },
			"overview": func() error { _, err := in.Overview(ctx, name); return err },
			"gauges":   func() error { _, err := in.Gauges(ctx, name); return err },
			"cancel": func() error {
				_, err := operate.Apply(ctx, client, name, operate.Cancel, operate.Filter{}, operate.Operator{Actor: "ann", Reason: "a test"}, nil)
				return err
			},
		} {
			if err := ask(); name != "q@1" && !errors.As(err, &invalid) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
		}
	}

	layout := partition.Layout{Queue: "q", N: n, Pins: map[string]int{"pinned": 2}}
	used := map[string]bool{}
	for tenant := range tenants {
		used[layout.Home(fmt.Sprint("t", tenant))] = true
	}
	if len(used) != n {
		t.Fatalf("only %d of %d partitions have a tenant", len(used), n)
	}
	for _, tenant := range []string{"t0", "t7", "pinned"} {
		if got := store.ReadCounts(client.HGet(ctx, store.TenantsKey(layout.Home(tenant)), tenant).Val()).Waiting; got != each {
			t.Errorf("%d jobs of %s are in its partition %s; want %d", got, tenant, layout.Home(tenant), each)
		}
	}

	var mu sync.Mutex
	calls, done := map[string][]int{}, make(chan struct{})
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	Handle(worker, "call", func(ctx context.Context, i int) error {
		job, _ := Current(ctx)
		if job.Queue != "q" {
			t.Errorf("a job of queue %q", job.Queue)
		}
		mu.Lock()
		defer mu.Unlock()
		calls[job.Tenant] = append(calls[job.Tenant], i)
		n := 0
		for _, one := range calls {
			n += len(one)
		}
		if n == len(all) {
			close(done)
		}
		return nil
	})
	stop := runWorker(t, worker)
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("not all were called within 20 s")
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	for _, tenant := range slices.Sorted(maps.Keys(calls)) {
		if slices.Sort(calls[tenant]); !slices.Equal(calls[tenant], []int{0, 1, 2}) {
			t.Errorf("%s: %v", tenant, calls[tenant])
		}
	}
}

// TestPauseOfTheAccountReachesAllPartitions: an answer about the account that all tenants share pauses the
// whole queue, and not only the partition of the job that got it.
func TestPauseOfTheAccountReachesAllPartitions(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const n, length = 4, 2 * time.Second
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	// With a send window, so that the scripts need its openings.
	q := limits.Queue{Partitions: n, SendWindows: map[string]sendwindow.Window{limits.AllKinds: always(t)}}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": q}}); err != nil {
		t.Fatal(err)
	}
	layout, tenants := partition.Layout{Queue: "q", N: n}, map[string]string{} // by partition
	for i := 0; len(tenants) < n; i++ {
		tenants[layout.Home(fmt.Sprint("t", i))] = fmt.Sprint("t", i)
	}
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	called := make(chan time.Time, 2*n)
	Handle(worker, "call", func(ctx context.Context, first bool) error {
		if first {
			return PauseAccount(ctx, length, "slow down")
		}
		called <- time.Now()
		return nil
	})
	runWorker(t, worker)
	producer := NewClient(client)
	enqueue := func(tenant string, first bool) {
		t.Helper()
		if _, err := producer.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: tenant, Payload: first}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(tenants["q"], true)
	ends := map[string]int64{}
	until(t, "all partitions are paused", func() bool {
		for home := range tenants {
			ends[home] = store.PausedUntil(client.HGet(ctx, store.Key(home, "pauses"), store.WholeQueue).Val())
			if ends[home] == 0 {
				return false
			}
		}
		return true
	})
	first := slices.Min(slices.Collect(maps.Values(ends)))
	if last := slices.Max(slices.Collect(maps.Values(ends))); time.Duration(last-first)*time.Microsecond > length/10 {
		t.Errorf("the pauses end within %v: %v", time.Duration(last-first)*time.Microsecond, ends)
	}
	for _, tenant := range tenants {
		enqueue(tenant, false)
	}
	for range n {
		select {
		case at := <-called:
			if at.UnixMicro() < first {
				t.Errorf("a call left %v before the pause ended", time.UnixMicro(first).Sub(at))
			}
		case <-time.After(time.Minute):
			t.Fatal("not all were called")
		}
	}
}

// TestPauseOfTheAccountReachesNewPartitions: so does the answer to a call that began when the queue had one partition.
func TestPauseOfTheAccountReachesNewPartitions(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	var second string
	r.answer = func(ctx context.Context, _ Running) error {
		second = r.repartition(t, 2).Names()[1]
		return PauseAccount(ctx, time.Hour, "slow down")
	}
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	until(t, "the new partition is paused", func() bool {
		return store.PausedUntil(r.server.Client().HGet(t.Context(), store.Key(second, "pauses"), store.WholeQueue).Val()) > 0
	})
}

// TestChangedPartitions: a session knows which of its queues have other partitions, and does not take lost limits
// for that.
func TestChangedPartitions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	set := func(n int) limits.Set {
		return limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}, "other": {Partitions: 4}}}
	}
	if err := operate.Publish(ctx, client, set(2)); err != nil {
		t.Fatal(err)
	}
	s := checkedSession(t, client, "other", "q")
	if homes := s.homes(); len(homes) != 6 {
		t.Fatalf("%v", homes)
	}
	changed := func(what string, want map[string]partition.Layout) {
		t.Helper()
		if got := s.changed(ctx); !maps.EqualFunc(got, want, partition.Layout.Equal) {
			t.Errorf("%s: %v; want %v", what, got, want)
		}
	}
	changed("as it was", nil)
	client.Del(ctx, store.Key("q", "limits"))
	changed("its limits are gone", nil)
	if err := operate.Publish(ctx, client, set(3)); err != nil {
		t.Fatal(err)
	}
	changed("it gets three partitions", map[string]partition.Layout{"q": {Queue: "q", N: 3, From: &partition.Layout{Queue: "q", N: 2}}})
}

// checkedSession returns the first session of a worker, which has not started.
func checkedSession(t *testing.T, client redis.UniversalClient, queues ...string) *session {
	t.Helper()
	worker := newWorker(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{"of the client"}}, Queues: queues})
	worker.redis = client
	s, err := worker.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProducersOfOtherPartitions: a producer that knows a queue as it was does not enqueue into partitions
// that the queue has no more, in which nobody would find the jobs, nor into those that are not the tenant's any more.
func TestProducersOfOtherPartitions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	by := operate.Operator{Actor: "ann", Reason: "a test"}
	publish := func(n int) {
		t.Helper()
		if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}}}); err != nil {
			t.Fatal(err)
		}
	}
	producer, enqueued := NewClient(client), 0
	enqueue := func() {
		t.Helper()
		var jobs []Job
		for i := range 20 {
			job := Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i)}
			jobs = append(jobs, job, job)
			if _, err := producer.Enqueue(ctx, job); err != nil {
				t.Error(err)
			}
		}
		enqueueAll(t, producer, jobs...)
		enqueued += 60
	}
	waiting := func() (n int64) {
		t.Helper()
		all, err := inspect.New(client).Totals(ctx, "q")
		if err != nil {
			t.Fatal(err)
		}
		return all.Waiting
	}
	publish(8)
	enqueue()
	for _, n := range []int{2, 1, 4} {
		for _, verb := range []operate.Verb{operate.Cancel, operate.DeleteArchived} {
			if _, err := operate.Apply(ctx, client, "q", verb, operate.Filter{}, by, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := operate.Unregister(ctx, client, "q", by); err != nil {
			t.Fatal(err)
		}
		publish(n)
		enqueued = 0
		enqueue()
		if waits := waiting(); waits != int64(enqueued) {
			t.Errorf("%d partitions: %d jobs wait; want %d", n, waits, enqueued)
		}
		layout := partition.Layout{Queue: "q", N: n}
		for i := range 20 {
			tenant := fmt.Sprint("t", i)
			text := client.HGet(ctx, store.TenantsKey(layout.Home(tenant)), tenant).Val()
			if jobs := store.ReadCounts(text).Jobs; jobs != 3 {
				t.Errorf("%d partitions: %d of 3 jobs of tenant %s are in its partition", n, jobs, tenant)
			}
		}
	}
}
