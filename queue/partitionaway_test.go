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
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// TestTimedPartitionAway: while a node of a cluster does not answer, the tenants whose partitions are on
// others are served as before, and their jobs are accepted. Its own tenants are served when it is back. No job is
// lost, none is called twice, and no limit is exceeded.
func TestTimedPartitionAway(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		const rate, jobs, n = 20, 400, 8
		// The node that is killed keeps its data: see docs/reliability.md.
		cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "no")
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
		producer, all, ids := NewClient(client), []string(nil), []string(nil)
		all = append(append(all, tenants[true][:2]...), tenants[false][:4]...)
		enqueue := func(tenants []string, n int) {
			var batch []Job
			for range n {
				for _, tenant := range tenants {
					batch = append(batch, Job{Kind: "call", Queue: layout.Queue, Tenant: tenant, Payload: 1})
				}
			}
			began := time.Now()
			ids = append(ids, enqueueAll(t, producer, batch...)...)
			// A request to the paused node takes longer.
			run.Took(fmt.Sprintf("to accept %d jobs of tenants of other nodes", len(batch)), began, time.Now(), 4*time.Second)
		}
		enqueue(all, jobs)

		var mu sync.Mutex
		calls := map[string][]time.Time{}
		called := func(tenant string) []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls[tenant])
		}
		seen, ledger := newCounter(), newLedger()
		worker := newWorker(t, Config{Redis: cluster.Options(), Queues: []string{layout.Queue}, ShutdownTimeout: time.Second, Observer: seen})
		Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
			at := time.Now()
			job, _ := Current(ctx)
			ledger.begin(job)
			mu.Lock()
			defer mu.Unlock()
			calls[job.Tenant] = append(calls[job.Tenant], at)
			return nil
		})
		stop := runWorker(t, worker)
		until(t, "all tenants are served", func() bool {
			return !slices.ContainsFunc(all, func(tenant string) bool { return len(called(tenant)) < 10 })
		})
		servedAgain := func() {
			t.Helper()
			back := time.Now()
			until(t, "its tenants are served again", func() bool {
				return !slices.ContainsFunc(tenants[true][:2], func(tenant string) bool { at := called(tenant); return !at[len(at)-1].After(back) })
			})
		}
		away.Pause()
		time.Sleep(routesAge) // the fault; what the client knows of the queue is old then
		enqueue(tenants[false][:4], 1)
		away.Resume()
		servedAgain()
		away.Kill()
		time.Sleep(3 * time.Second) // the fault
		enqueue(tenants[false][:4], 1)
		for _, tenant := range tenants[false][:4] {
			n := len(called(tenant))
			until(t, "a tenant of another node is served", func() bool { return len(called(tenant)) > n })
			run.Used("a tenant of another node", called(tenant), rate, 0.97)
		}
		away.Restart()
		servedAgain()
		until(t, "all jobs are done", func() bool { return seen.outcomes(lifecycle.Done) >= len(ids) })
		stop()
		ledger.once(t, ids)
		for _, tenant := range all {
			run.Law(tenant, called(tenant), rate, 1)
		}
	})
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
	needed, name := []*redistest.Server{owner(asynqwire.Queues), owner(workers.ListKey)}, "q"
	for slices.Contains(needed, owner(store.Key(name, "waiting"))) {
		name += "q"
	}
	gone, layout := owner(store.Key(name, "waiting")), partition.Layout{Queue: name, N: n} // with the first partition
	var away []string
	for _, home := range layout.Names() {
		if owner(store.Key(home, "waiting")) == gone {
			away = append(away, home)
		}
	}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{name: {Partitions: n}}}); err != nil {
		t.Fatal(err)
	}
	var jobs []Job
	reached := 0
	for i := range 30 {
		tenant := fmt.Sprint("t", i)
		jobs = append(jobs, Job{Kind: "call", Queue: name, Tenant: tenant})
		if !slices.Contains(away, layout.Home(tenant)) {
			reached++
		}
	}
	enqueueAll(t, NewClient(client), jobs...)
	for i, home := range layout.Names() { // one event each
		entry := &redis.XAddArgs{Stream: store.Key(home, "events"), ID: fmt.Sprint(1000+i, "-0"), Values: []string{"1", "j\tcall\ta\tdone success 1 0 0 0 0 "}}
		if err := client.XAdd(ctx, entry).Err(); err != nil {
			t.Fatal(err)
		}
	}
	session := checkedSession(t, client, name)
	gone.Pause() // so that it does not answer at all
	began := time.Now()
	if o, err := inspect.New(client).Overview(ctx, name); err != nil || o.Waiting != int64(reached) || time.Since(began) > 3*time.Second {
		t.Errorf("after %v: %d waiting, %v; want %d", time.Since(began), o.Waiting, err, reached)
	}
	events := func() {
		t.Helper()
		if some, err := inspect.Events(ctx, client, name, "", 100); err != nil || len(some) != n-len(away) {
			t.Errorf("events: %d, %v; want %d", len(some), err, n-len(away))
		}
	}
	events()
	gone.Resume()
	gone.Kill()
	events()

	in, says := inspect.New(client), fmt.Sprintf("%d of 8 partitions of queue %s do not answer", len(away), name)
	o, err := in.Overview(ctx, name)
	if err != nil || o.Waiting != int64(reached) || len(o.Unserved) != 2 || !strings.Contains(o.Unserved[1].String(), says) {
		t.Errorf("overview: %d waiting, %v, %v; want %d and %q", o.Waiting, o.Unserved, err, reached, says)
	}
	page, err := in.ListTenants(ctx, name, inspect.TenantQuery{Limit: 100})
	if err != nil || len(page.Tenants) != reached || page.Total != int64(reached) {
		t.Errorf("tenants: %d, %v; want %d", len(page.Tenants), err, reached)
	}
	if list, err := in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateWaiting}); err != nil || len(list.Jobs) != reached {
		t.Errorf("jobs: %d, %v; want %d", len(list.Jobs), err, reached)
	}
	_, err = in.ListJobs(ctx, name, inspect.JobQuery{State: lifecycle.StateActive, Cursor: " 0 " + away[0]})
	if of, ok := errors.AsType[*inspect.AwayError](err); !ok || of.Away != len(away) || of.Of != n {
		t.Errorf("the page behind one of a partition that is gone: %v; want %s", err, says)
	}
	if _, err := in.Failures(ctx, name, ""); err != nil {
		t.Error(err)
	}
	var named []string
	for _, job := range jobs {
		named = append(named, job.Tenant)
	}
	if gauges, err := in.TenantGauges(ctx, name, named); err != nil || len(gauges) != reached || gauges[0].Waiting != 1 {
		t.Errorf("gauges of tenants: %d, %v; want %d", len(gauges), err, reached)
	}
	_, err = in.Gauges(ctx, name)
	if of, ok := errors.AsType[*inspect.AwayError](err); !ok || of.Away != len(away) || of.Of != n {
		t.Errorf("gauges: %v; want %s", err, says)
	}
	if err := session.readiness(ctx); err != nil || !slices.Equal(session.Away(), away) {
		t.Errorf("ready: %v, without %v; want it without %v", err, session.Away(), away)
	}

	// What operators do on other tenants works, and on all as far as it goes.
	ann := operate.Operator{Actor: "ann", Reason: "test"}
	tenants := map[bool]string{} // one of a partition that is away, and one that is not
	for i := range 30 {
		tenants[slices.Contains(away, layout.Home(fmt.Sprint("t", i)))] = fmt.Sprint("t", i)
	}
	if _, err := operate.PauseJobs(ctx, client, name, inspect.Scope{Tenant: tenants[false]}, time.Time{}, ann); err != nil {
		t.Errorf("pause a tenant: %v", err)
	}
	if _, err := operate.PauseJobs(ctx, client, name, inspect.Scope{Tenant: tenants[true]}, time.Time{}, ann); err == nil {
		t.Error("a tenant is paused whose partition is away")
	}
	asBefore := fmt.Sprintf("%d of its 8 partitions may be as before, try again", len(away))
	if _, err := operate.PauseJobs(ctx, client, name, inspect.Scope{}, time.Time{}, ann); err == nil || !strings.Contains(err.Error(), asBefore) {
		t.Errorf("pause the queue: %v; want %q", err, asBefore)
	}
	for _, home := range layout.Names() {
		if slices.Contains(away, home) {
			continue
		}
		if scopes, err := client.HKeys(ctx, store.Key(home, "pauses")).Result(); err != nil || !slices.Contains(scopes, store.WholeQueue) {
			t.Errorf("%s is not paused: %v, %v", home, scopes, err)
		}
	}
	tally, err := operate.Apply(ctx, client, name, operate.Cancel, operate.Filter{}, ann, nil)
	if err == nil || tally.Jobs != int64(reached) {
		t.Errorf("%d jobs cancelled, %v; want %d, and an error", tally.Jobs, err, reached)
	}
	for gone, tenant := range tenants { // by a producer that starts now
		_, err := NewClient(client).Enqueue(within(t, 2*time.Second), Job{Kind: "call", Queue: name, Tenant: tenant})
		if (err != nil) != gone {
			t.Errorf("enqueue for a tenant, its partition is away %v: %v", gone, err)
		}
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

// TestRecoveryBesideASilentNode: the key of a dead worker is on a node that does not answer. The jobs that it held in
// queues on other nodes are recovered nevertheless. Nobody knows whether it has ended, so no crash is counted.
func TestRecoveryBesideASilentNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	r := startRigAt(t, cluster.Redis(), -1, limitsOf(), nil)
	client, silent, dead := cluster.Client(), cluster.Other(cluster.Slot(store.Key(r.queue, "waiting"))), "w"
	for cluster.Owner(cluster.Slot(workers.Key(dead))) != silent {
		dead += "w"
	}
	id := r.add(t, nil)
	r.hold(t, id, dead+":1")
	watcher := &recoverer{queue: r.queue, worker: "watcher", redis: client, live: newLiveRuns(), logger: r.worker.logger, chores: r.chores(), roles: newRoles(client, "watcher")}
	watcher.lastLook = boottime.Now()
	watcher.seen = map[string]sighting{id: {"10", boottime.Now() - silence - time.Second}}
	silent.Pause()
	defer silent.Resume()
	if _, err := watcher.look(t.Context()); err != nil {
		t.Error(err)
	}
	if state, crashes := r.field(t, id, "state"), r.field(t, id, "hg_crashes"); state != "aggregating" || crashes != "" {
		t.Errorf("the job is %s, with %q crashes; want it back in its lane, with none", state, crashes)
	}
}

// TestAnnouncedAtTheQueuesNode: announcements go to the node that has the queue, so that no other one delays them.
func TestAnnouncedAtTheQueuesNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	const n = 10
	for range n {
		store.Announce(t.Context(), cluster.Client(), "q")
		store.AnnounceToAll(t.Context(), cluster.Client(), "q")
	}
	node := cluster.Owner(cluster.Slot(store.Key("q", "waiting")))
	if got := redistest.Calls(t, node.Client(), "publish"); got != 2*n {
		t.Errorf("the queue's node got %d announcements; want %d", got, 2*n)
	}
}

// TestChangeBesideASilentNode: a worker learns of the other partitions of a queue while the node of another of its queues
// does not answer.
func TestChangeBesideASilentNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	silent, away := cluster.Other(cluster.Slot(store.Key("q", "limits"))), "r"
	for cluster.Owner(cluster.Slot(store.Key(away, "limits"))) != silent {
		away += "r"
	}
	publish := func(n int) {
		t.Helper()
		if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{away: {Partitions: 2}, "q": {Partitions: n}}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(2)
	s := checkedSession(t, client, away, "q")
	publish(3)
	silent.Pause()
	defer silent.Resume()
	want := map[string]partition.Layout{"q": {Queue: "q", N: 3, From: &partition.Layout{Queue: "q", N: 2}}}
	if got := s.changed(ctx); !maps.EqualFunc(got, want, partition.Layout.Equal) {
		t.Errorf("%v; want %v", got, want)
	}
}

// spare returns a node with nothing that all queues need, and a queue whose first partition is there.
func spare(cluster *redistest.Cluster) (owner func(key string) *redistest.Server, gone *redistest.Server, queue string) {
	owner = func(key string) *redistest.Server { return cluster.Owner(cluster.Slot(key)) }
	needed := []*redistest.Server{owner(asynqwire.Queues), owner(workers.ListKey)}
	gone = cluster.Nodes()[slices.IndexFunc(cluster.Nodes(), func(node *redistest.Server) bool { return !slices.Contains(needed, node) })]
	for queue = "q"; owner(store.Key(queue, "waiting")) != gone; {
		queue += "q"
	}
	return owner, gone, queue
}

// TestStartBesideANodeAway: limits are published and workers start while a node of a Cluster is away. They serve
// the rest, and what the node has when it is back.
func TestStartBesideANodeAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000", "--appendonly", "yes", "--appendfsync", "no")
	client, ctx := cluster.Client(), t.Context()
	owner, gone, name := spare(cluster)
	set := func(rate int64, more ...string) limits.Set {
		divided := limits.Queue{Partitions: 8, Kinds: []string{"call"}, Limits: []limits.Limit{perTenant(rate)}}
		s := limits.Set{Queues: map[string]limits.Queue{name: divided}}
		for _, queue := range more {
			s.Queues[queue] = limits.Queue{Partitions: 8, Kinds: []string{"other"}, Limits: []limits.Limit{perTenant(rate)}}
		}
		return s
	}
	if err := operate.Publish(ctx, client, set(100)); err != nil {
		t.Fatal(err)
	}
	layout := partition.Layout{Queue: name, N: 8}
	var away []string
	for _, home := range layout.Names() {
		if owner(store.Key(home, "waiting")) == gone {
			away = append(away, home)
		}
	}
	var jobs []Job
	reached := 0
	for i := range 30 {
		tenant := fmt.Sprint("t", i)
		jobs = append(jobs, Job{Kind: "call", Queue: name, Tenant: tenant, Payload: json.RawMessage(`{}`)})
		if !slices.Contains(away, layout.Home(tenant)) {
			reached++
		}
	}
	ids := enqueueAll(t, NewClient(client), jobs...)
	// A producer that starts now finds the tenants of the other nodes.
	start := func(fault string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 2*store.Timeout)
		defer cancel()
		for i, result := range NewClient(client).EnqueueMany(ctx, jobs) {
			reaches := !slices.Contains(away, layout.Home(jobs[i].Tenant))
			if reaches && result.Err != nil || !reaches && (!store.Unreachable(result.Err) || errors.Is(result.Err, ErrUnknown)) {
				t.Errorf("beside a node that is %s, a job of a tenant whose node answers (%v): %v", fault, reaches, result.Err)
			} else if reaches {
				ids = append(ids, result.ID)
			}
		}
	}
	gone.Pause()
	start("silent")
	gone.Resume()
	gone.Kill()
	start("gone")

	for range 10 { // it asks nodes at random
		if err := CheckRedis(ctx, client); err != nil {
			t.Errorf("check: %v", err)
		}
	}
	err := operate.Publish(ctx, client, set(200))
	if of, ok := errors.AsType[*inspect.AwayError](err); !ok || of.Away != len(away) || of.Of != 8 || !errors.Is(err, operate.ErrPartly) {
		t.Errorf("publish: %v; want %d of 8 partitions away", err, len(away))
	}
	for _, home := range layout.Names() {
		if slices.Contains(away, home) {
			continue
		}
		if text, err := client.HGet(ctx, store.Key(home, "limits"), "*").Result(); err != nil || !strings.Contains(text, "200") {
			t.Errorf("%s has the limits of before: %s, %v", home, text, err)
		}
	}
	// Of a queue that nobody has published, the first partition may answer or not.
	for _, first := range []bool{false, true} {
		unknown := name + "u"
		reaches := func() bool { return owner(store.Key(unknown, "waiting")) != gone }
		others := func() bool {
			return slices.ContainsFunc(partition.Layout{Queue: unknown, N: 8}.Names()[1:], func(home string) bool { return owner(store.Key(home, "waiting")) == gone })
		}
		for reaches() != first || !others() {
			unknown += "u"
		}
		err = operate.Publish(ctx, client, set(200, unknown))
		if err == nil || errors.Is(err, operate.ErrPartly) {
			t.Errorf("publish a queue that may have no limits yet, whose first partition answers: %v: %v; want an error that ends the worker", first, err)
		}
	}

	seen := newCounter()
	worker := newWorker(t, Config{Redis: cluster.Options(), Queues: []string{name}, Observer: seen, ShutdownTimeout: time.Second})
	calls := newLedger()
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		calls.begin(job)
		return nil
	})
	stop := runWorker(t, worker)
	seen.wait(t, string(lifecycle.Done), 3*reached)
	if err := worker.Ready(); err != nil || !slices.Equal(worker.Away(), away) {
		t.Errorf("ready: %v, without %v; want it without %v", err, worker.Away(), away)
	}
	gone.Restart()
	seen.wait(t, string(lifecycle.Done), len(ids))
	stop()
	calls.once(t, ids)
}

// TestFollowUpToANodeAway: jobs whose follow-ups belong to a queue on a node that does not answer hold up no others: they
// wait for that node without a place of their worker, and are not called again.
func TestFollowUpToANodeAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	owner, gone, away := spare(cluster)
	queue := "p"
	for owner(store.Key(queue, "waiting")) == gone {
		queue += "p"
	}
	client := cluster.Client()
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{queue: {}, away: {}}}); err != nil {
		t.Fatal(err)
	}
	seen, calls, answers := newCounter(), newLedger(), make(chan struct{})
	worker := newWorker(t, Config{Redis: cluster.Options(), Queues: []string{queue}, Concurrency: 1, Observer: seen, ShutdownTimeout: time.Second})
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		calls.begin(job)
		<-answers
		return nil
	})
	stop := runWorker(t, worker)
	producer := NewClient(client)
	call := Job{Kind: "call", Queue: queue, Tenant: "a", Payload: 1}
	first := call
	first.OnSuccess = &Job{Kind: "child", Queue: away, Payload: 1}
	const many = 60 // of which each could wait for the answer as long as a request may take
	ids := enqueueAll(t, producer, slices.Repeat([]Job{first}, many)...)
	gone.Pause()
	defer gone.Resume()
	close(answers)
	seen.wait(t, string(lifecycle.Parked), 1)
	// The follow-up may be there, and be forgotten some time after it is done.
	if text := client.HGet(t.Context(), asynqwire.Key(queue, "t:"+ids[0]), "hg_followed").Val(); !strings.HasSuffix(text, "?") {
		t.Errorf("of the follow-up it is known: %q; want that it is not", text)
	}
	ids = append(ids, enqueueAll(t, producer, call)...)
	seen.wait(t, string(lifecycle.Done), 1)
	gone.Resume()
	seen.wait(t, string(lifecycle.Done), many+1)
	stop()
	calls.once(t, ids)
	if n := client.ZCard(t.Context(), asynqwire.Key(away, "g:a;kind=child")).Val(); n != many {
		t.Errorf("%d follow-ups", n)
	}
}

// TestLeasesBesideTheFirstNodeAway: while the node of the first partition is away, by whose clock shared limits are leased,
// a worker that starts leases them to the other partitions.
func TestLeasesBesideTheFirstNodeAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	client, ctx := cluster.Client(), t.Context()
	owner, gone, name := spare(cluster)
	layout := partition.Layout{Queue: name, N: 8}
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10_000, Months: 1}, Location: noon(t)}
	shared := limits.Queue{Partitions: layout.N, Kinds: []string{"call"}, Limits: []limits.Limit{sharedBy(100), month}}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{name: shared}}); err != nil {
		t.Fatal(err)
	}
	var jobs []Job
	for i := range 30 {
		if tenant := fmt.Sprint("t", i); owner(store.Key(layout.Home(tenant), "waiting")) != gone {
			jobs = append(jobs, Job{Kind: "call", Queue: name, Tenant: tenant, Payload: 1})
		}
	}
	for _, begin := range []func(){func() {}, gone.Kill} {
		begin()
		enqueueAll(t, NewClient(client), jobs...)
		seen := newCounter()
		worker := newWorker(t, Config{Redis: cluster.Options(), Queues: []string{name}, Observer: seen, ShutdownTimeout: time.Second})
		Handle(worker, "call", func(context.Context, json.RawMessage) error { return nil })
		stop := runWorker(t, worker)
		seen.wait(t, string(lifecycle.Done), len(jobs))
		stop()
	}
}
