package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/queue/workers"
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
	worker, err := New(Config{Redis: server.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
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
	stopped := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { stopped <- worker.Run(running) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("not all were called within 20 s")
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, tenant := range slices.Sorted(maps.Keys(calls)) {
		if slices.Sort(calls[tenant]); !slices.Equal(calls[tenant], []int{0, 1, 2}) {
			t.Errorf("%s: %v", tenant, calls[tenant])
		}
	}
}

// TestTimedPartitionAway: while a node of a cluster does not answer, the tenants whose partitions are on
// others are served as before, and their jobs are accepted.
func TestTimedPartitionAway(t *testing.T) {
	measured(t, func(t *testing.T, run *pacer.Run) {
		const rate, jobs, n = 20, 400, 8
		cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
		client, ctx := cluster.Client(), t.Context()
		// The first partition, in which clients look up the others, is on the node that goes away.
		away, layout := cluster.Nodes()[0], partition.Layout{N: n}
		for i := 0; layout.Queue == ""; i++ {
			if name := fmt.Sprint("q", i); cluster.Owner(cluster.Slot(store.Key(name, "waiting"))) == away {
				layout.Queue = name
			}
		}
		tenants := map[bool][]string{} // by whether they are on the node that goes away
		for i := 0; len(tenants[true]) < 2 || len(tenants[false]) < 4; i++ {
			tenant := fmt.Sprint("t", i)
			here := cluster.Owner(cluster.Slot(store.Key(layout.Home(tenant), "waiting"))) == away
			tenants[here] = append(tenants[here], tenant)
		}
		if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{layout.Queue: {Partitions: n, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Per: []string{"tenant"}},
		}}}}); err != nil {
			t.Fatal(err)
		}
		producer, all := NewClient(client), []string(nil)
		all = append(append(all, tenants[true][:2]...), tenants[false][:4]...)
		enqueue := func(tenants []string, n int) {
			var batch []Job
			for range n {
				for _, tenant := range tenants {
					batch = append(batch, Job{Kind: "call", Queue: layout.Queue, Tenant: tenant, Payload: 1})
				}
			}
			began := time.Now()
			for _, result := range producer.EnqueueMany(ctx, batch) {
				if result.Err != nil {
					t.Fatal(result.Err)
				}
			}
			if took := time.Since(began); took > 4*time.Second { // a request to the paused node takes longer
				t.Errorf("%d jobs of tenants of other nodes were accepted after %v", len(batch), took)
			}
		}
		enqueue(all, jobs)

		var mu sync.Mutex
		calls := map[string][]time.Time{}
		called := func(tenant string) []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls[tenant])
		}
		worker, err := New(Config{Redis: cluster.Options(), Queues: []string{layout.Queue}, ShutdownTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			mu.Lock()
			defer mu.Unlock()
			calls[job.Tenant] = append(calls[job.Tenant], time.Now())
			return nil
		})
		runWorker(t, worker)
		until(t, "all tenants are served", func() bool {
			return !slices.ContainsFunc(all, func(tenant string) bool { return len(called(tenant)) < 10 })
		})
		away.Pause()
		time.Sleep(routesAge) // the fault; what the client knows of the queue is old then
		enqueue(tenants[false][:4], 1)
		away.Resume()
		until(t, "its tenants are served again", func() bool {
			at := called(all[0])
			return time.Since(at[len(at)-1]) < time.Second
		})
		away.Kill()
		time.Sleep(3 * time.Second) // the fault
		enqueue(tenants[false][:4], 1)
		for _, tenant := range tenants[false][:4] {
			n := len(called(tenant))
			until(t, "a tenant of another node is served", func() bool { return len(called(tenant)) > n })
			run.Used("a tenant of another node", called(tenant), rate, 0.97)
			run.Law("a tenant of another node", called(tenant), rate, 1)
		}
	})
}

// TestPauseOfTheAccountReachesAllPartitions: an answer about the account that all tenants share pauses the
// whole queue, and not only the partition of the job that got it.
func TestPauseOfTheAccountReachesAllPartitions(t *testing.T) {
	t.Parallel()
	const n, length = 4, 2 * time.Second
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}}}); err != nil {
		t.Fatal(err)
	}
	layout, tenants := partition.Layout{Queue: "q", N: n}, map[string]string{} // by partition
	for i := 0; len(tenants) < n; i++ {
		tenants[layout.Home(fmt.Sprint("t", i))] = fmt.Sprint("t", i)
	}
	worker, err := New(Config{Redis: server.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
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
		case <-time.After(10 * time.Second):
			t.Fatal("not all were called")
		}
	}
}

// TestTimedCommandsOfPartitions: a job in one of eight partitions costs Redis as many commands as one in
// an undivided queue, within a tenth.
func TestTimedCommandsOfPartitions(t *testing.T) {
	redistest.Slow(t)
	const tenants, rate = 80, 25
	jobs := manyJobs()
	per := func(n int) usage {
		server := redistest.Start(t)
		client := server.Client()
		if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Limits: []limits.Limit{perTenant(rate)}}}}); err != nil {
			t.Fatal(err)
		}
		worker, err := New(Config{Redis: server.Options(), Queues: []string{"q"}})
		if err != nil {
			t.Fatal(err)
		}
		got := newReceiver(jobs)
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			got.take(ctx)
			return nil
		})
		before, producer := commandStats(t, client), NewClient(client)
		for i := range jobs {
			if _, err := producer.Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i%tenants), Payload: json.RawMessage(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
		runWorker(t, worker)
		got.wait(t, time.Minute)
		return commandStats(t, client).since(before, jobs)
	}
	one, eight := per(1), per(8)
	t.Logf("commands and scripts for each job: %.1f and %.2f in one partition, %.1f and %.2f in eight", one.commands, one.scripts, eight.commands, eight.scripts)
	if eight.commands > 1.1*one.commands {
		t.Errorf("%.1f commands; want at most a tenth more than %.1f", eight.commands, one.commands)
	}
}

// TestSoonIsAnnounced: a dispatcher that may look too late is told of a job that is due soon, and not of
// one that it sees in time.
func TestSoonIsAnnounced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	wakes := client.Subscribe(ctx, store.WakeChannel("q"))
	defer wakes.Close()
	if _, err := wakes.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	producer := NewClient(client)
	for _, in := range []time.Duration{time.Hour, 2 * time.Second} {
		if _, err := producer.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: "a", In: in}); err != nil {
			t.Fatal(err)
		}
		if err := client.Publish(ctx, store.WakeChannel("q"), in.String()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"1h0m0s", "", "2s"} {
		if message, err := wakes.ReceiveMessage(ctx); err != nil || message.Payload != want {
			t.Fatalf("announced: %v, %v; want %q", message, err, want)
		}
	}
}

// TestRetryWakesOneOfMany: the dispatcher of one of many partitions, which looks seldom, is told of a job
// that is tried again.
func TestRetryWakesOneOfMany(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, manyPartitions: 1} {
		r := startRig(t, -1, limitsOf(), nil)
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		woken := 0
		g := &gate{
			queue: r.queue, of: partition.Layout{Queue: r.queue, N: n}, redis: r.server.Client(),
			limits: &effective.Calendars{Queue: r.queue, Redis: r.server.Client()}, onWake: func() { woken++ },
		}
		settled, err := g.sendSettle([]settleQuestion{{id: id, owner: "w:1", tenant: "a", kind: "call", outcome: settleFree, to: "retry 1000000 1"}})
		if err != nil || !settled[0].mine || woken != want {
			t.Errorf("%d partitions: %v, %v, woken %d times; want %d", n, settled, err, woken, want)
		}
	}
}

// TestWorkerOfOtherPartitions: a worker whose queue was divided meanwhile is not ready, because it would
// not serve all of it.
func TestWorkerOfOtherPartitions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	set := func(n int) limits.Set { return limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}}} }
	if err := operate.Publish(ctx, client, set(2)); err != nil {
		t.Fatal(err)
	}
	worker, err := New(Config{Redis: server.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	worker.redis = client
	if err := worker.check(ctx, true); err != nil || len(worker.homes()) != 2 {
		t.Fatalf("%v, %v", worker.homes(), err)
	}
	ready := func(what, want string) {
		t.Helper()
		if err := worker.readiness(ctx); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	ready("as it was", "")
	client.Del(ctx, store.Key("q", "limits"))
	ready("its limits are gone", "")
	if err := operate.Publish(ctx, client, set(3)); err == nil || !strings.Contains(err.Error(), "queues.q.partitions: 3") {
		t.Errorf("a second partition that is there was given up: %v", err)
	}
	client.Del(ctx, store.Key("q@2", "limits"))
	if err := operate.Publish(ctx, client, set(3)); err != nil {
		t.Fatal(err)
	}
	ready("it has three partitions", "has 3 partitions")
}

// TestAwayIsSaid: what is said of a queue names the partitions whose node is away, and has the numbers and
// tenants of the others.
func TestAwayIsSaid(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const n = 8
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	client, ctx := cluster.Client(), t.Context()
	owner := func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
	layout := partition.Layout{Queue: "q", N: n}
	needed := []*redistest.Server{owner(asynqwire.Queues), owner(workers.ListKey), owner(store.Key("q", "waiting"))}
	at := slices.IndexFunc(cluster.Nodes(), func(node *redistest.Server) bool { return !slices.Contains(needed, node) })
	if at < 0 {
		t.Fatal("each node is needed: call the queue otherwise")
	}
	gone := cluster.Nodes()[at]
	var away []string
	for _, home := range layout.Names() {
		if owner(store.Key(home, "waiting")) == gone {
			away = append(away, home)
		}
	}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}}}); err != nil {
		t.Fatal(err)
	}
	var jobs []Job
	reached := 0
	for i := range 30 {
		tenant := fmt.Sprint("t", i)
		jobs = append(jobs, Job{Kind: "call", Queue: "q", Tenant: tenant})
		if !slices.Contains(away, layout.Home(tenant)) {
			reached++
		}
	}
	for _, result := range NewClient(client).EnqueueMany(ctx, jobs) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	worker, err := New(Config{Redis: cluster.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	worker.redis = client
	if err := worker.check(ctx, true); err != nil {
		t.Fatal(err)
	}
	gone.Pause() // so that it does not answer at all
	began := time.Now()
	if o, err := inspect.New(client).Overview(ctx, "q"); err != nil || o.Waiting != int64(reached) || time.Since(began) > 3*time.Second {
		t.Errorf("after %v: %d waiting, %v; want %d", time.Since(began), o.Waiting, err, reached)
	}
	gone.Resume()
	gone.Kill()

	in, says := inspect.New(client), fmt.Sprintf("%d of 8 partitions of queue q do not answer", len(away))
	o, err := in.Overview(ctx, "q")
	if err != nil || o.Waiting != int64(reached) || len(o.Unserved) != 2 || !strings.Contains(o.Unserved[1].String(), says) {
		t.Errorf("overview: %d waiting, %v, %v; want %d and %q", o.Waiting, o.Unserved, err, reached, says)
	}
	page, err := in.ListTenants(ctx, "q", inspect.TenantQuery{Limit: 100})
	if err != nil || len(page.Tenants) != reached || page.Total != int64(reached) {
		t.Errorf("tenants: %d, %v; want %d", len(page.Tenants), err, reached)
	}
	if _, err := in.Failures(ctx, "q", ""); err != nil {
		t.Error(err)
	}
	_, err = in.Gauges(ctx, "q")
	if of, ok := errors.AsType[*inspect.AwayError](err); !ok || of.Away != len(away) || of.Of != n {
		t.Errorf("gauges: %v; want %s", err, says)
	}
	if err := worker.readiness(ctx); err != nil || !slices.Equal(worker.Away(), away) {
		t.Errorf("ready: %v, without %v; want it without %v", err, worker.Away(), away)
	}
}

// TestEventsOfSlowClocks: partitions are on nodes whose clocks differ. Who reads events after the last one
// that he has read misses none, also if another node gets an event of an earlier time afterwards.
func TestEventsOfSlowClocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: 2}}}); err != nil {
		t.Fatal(err)
	}
	add := func(home, job string, at time.Time) {
		t.Helper()
		entry := &redis.XAddArgs{Stream: store.Key(home, "events"), ID: fmt.Sprint(at.UnixMilli(), "-0"), Values: []string{"1", job + "\tcall\ta\tdone success 1 0 0 0 0 "}}
		if err := client.XAdd(ctx, entry).Err(); err != nil {
			t.Fatal(err)
		}
	}
	last, read := "", []string(nil)
	look := func() {
		t.Helper()
		events, err := inspect.Events(ctx, client, "q", last, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			last, read = e.ID, append(read, e.Job)
		}
	}
	now := time.Now()
	add("q", "first", now.Add(-time.Second))
	add("q", "ahead", now.Add(time.Second)) // the clock of its node is ahead
	look()
	add("q@2", "later", now)
	until(t, "all are read", func() bool { look(); return len(read) == 3 })
	if !slices.Equal(read, []string{"first", "later", "ahead"}) {
		t.Errorf("read: %v", read)
	}
}

// TestProducersOfOtherPartitions: a producer that knows a queue as it was does not enqueue into partitions
// that the queue has no more, in which nobody would find the jobs.
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
		for _, result := range producer.EnqueueMany(ctx, jobs) {
			if result.Err != nil {
				t.Error(result.Err)
			}
		}
		enqueued += 60
	}
	waiting := func() (n int64) {
		t.Helper()
		all, err := inspect.ReadTotals(ctx, client, "q")
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Waiting
	}
	publish(8)
	enqueue()
	for _, n := range []int{2, 1} {
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
	}
}
