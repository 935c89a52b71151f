package queue

import (
	"context"
	"encoding/json"
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
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// slotMoves is a cluster whose slots move while queues are used.
type slotMoves struct {
	t        *testing.T
	cluster  *redistest.Cluster
	client   *redis.ClusterClient
	producer *Client
	calls    *ledger
	accepted []acceptedJob

	moving context.Context // until the slots have moved for the last time
	moved  func()
	others sync.WaitGroup // what goes on beside
}

type acceptedJob struct {
	Job
	id string
}

func newSlotMoves(t *testing.T) *slotMoves {
	cluster := redistest.StartCluster(t)
	m := &slotMoves{t: t, cluster: cluster, client: cluster.Client(), producer: NewClient(cluster.Client()), calls: newLedger()}
	m.moving, m.moved = context.WithCancel(context.Background())
	t.Cleanup(m.end)
	return m
}

// work runs a worker of queues whose calls of these kinds are counted.
func (m *slotMoves) work(queues []string, kinds ...Kind[json.RawMessage]) (stop func()) {
	m.t.Helper()
	worker := newWorker(m.t, Config{Redis: m.cluster.Options(), Queues: queues, Logger: slog.New(slog.NewTextHandler(m.t.Output(), nil))})
	for _, kind := range kinds {
		Handle(worker, kind, func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			m.calls.begin(job)
			return nil
		})
	}
	return runWorker(m.t, worker)
}

// patient does something for which a minute is enough. A context that ends after the moves shows that
// nothing fails before.
func (m *slotMoves) patient(do func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := do(ctx); err != nil {
		m.t.Errorf("while slots move: %v", err)
		return false
	}
	return true
}

// beside does something again and again until the slots have moved for the last time. n counts from 0.
func (m *slotMoves) beside(all func(n int) []func(ctx context.Context) error) {
	m.others.Go(func() {
		for n := 0; m.moving.Err() == nil; n++ {
			if slices.ContainsFunc(all(n), func(do func(ctx context.Context) error) bool { return !m.patient(do) }) {
				return
			}
		}
	})
}

// enqueue enqueues jobs one by one until the slots have moved for the last time.
func (m *slotMoves) enqueue(job func(n int) Job) {
	m.beside(func(n int) []func(ctx context.Context) error {
		return []func(ctx context.Context) error{func(ctx context.Context) error {
			next := job(n)
			receipt, err := m.producer.Enqueue(ctx, next)
			m.accepted = append(m.accepted, acceptedJob{next, receipt.ID})
			time.Sleep(5 * time.Millisecond) // the load, of 200/s
			return err
		}}
	})
}

// move moves slots to other nodes at the same time, key by key and with pauses, and checks that no key is left
// behind. toNew: all go to a node that was just added.
func (m *slotMoves) move(pause time.Duration, toNew bool, slots ...int) {
	t := m.t
	t.Helper()
	from, to, moves := map[int]*redistest.Server{}, map[int]*redistest.Server{}, map[int]*redistest.Move{}
	for _, slot := range slots {
		from[slot], to[slot] = m.cluster.Owner(slot), m.cluster.Other(slot)
	}
	if toNew {
		node := m.cluster.Add()
		for _, slot := range slots {
			to[slot] = node
		}
	}
	for _, slot := range slots {
		moves[slot] = m.cluster.Move(slot, to[slot])
	}
	time.Sleep(pause) // no key has moved
	for n, left := 0, true; left; n++ {
		left = false
		for _, slot := range slots {
			left = moves[slot].Key() || left
		}
		if n%20 == 0 {
			time.Sleep(pause / 10)
		}
	}
	time.Sleep(pause) // all keys have moved, and the slots have not
	for _, slot := range slots {
		moves[slot].End()
		for _, node := range m.cluster.Nodes() {
			n, err := node.Client().ClusterCountKeysInSlot(t.Context(), slot).Result()
			if err != nil || (n > 0) != (node == to[slot]) {
				t.Fatalf("slot %d moves from %s to %s: %s has %d keys, %v", slot, from[slot].Addr(), to[slot].Addr(), node.Addr(), n, err)
			}
		}
	}
}

// end waits until nothing goes on beside.
func (m *slotMoves) end() {
	m.moved()
	m.others.Wait()
}

// once checks that no job was called twice, and returns how many were called.
func (m *slotMoves) once() int {
	m.calls.mu.Lock() // a periodic job is called on and on
	called := maps.Clone(m.calls.calls)
	m.calls.mu.Unlock()
	for id, n := range called {
		if n != 1 {
			m.t.Errorf("job %s was called %d times", id, n)
		}
	}
	return len(called)
}

// TestSlotMoves: while the slot of a queue moves from node to node of a cluster, key by key and with
// pauses, also to a node that was just added, the queue stands still, and goes on after. So does what
// operators, producers and dashboards do: it takes longer, and no error comes of it. Each job is called
// once, and no key is on two nodes.
func TestSlotMoves(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const tenants = 20
	moves := testlong.Of(5, 10)
	m := newSlotMoves(t)
	ctx, calls := t.Context(), m.calls
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "mail"}, Limits: []limits.Limit{perTenant(50), sharedBy(200), inFlight(5, "tenant")}}}}
	if err := operate.Publish(ctx, m.client, set); err != nil {
		t.Fatal(err)
	}
	m.work([]string{"q"}, "call", "mail")
	if err := m.producer.SetPeriodic(ctx, Periodic{ID: "tick", Spec: "@every 1s", Overlap: OverlapQueue, Job: Job{Kind: "call", Queue: "q", Tenant: "periodic", Payload: 1}}); err != nil {
		t.Fatal(err)
	}
	m.enqueue(func(n int) Job {
		job := Job{Kind: []string{"call", "mail"}[n%2], Queue: "q", Tenant: fmt.Sprintf("t%d", n%tenants), Payload: 1}
		switch n % 4 {
		case 0:
			job.Key = fmt.Sprint(n)
		case 1:
			job.In = time.Second
		case 2:
			job.Priority = High
		}
		return job
	})
	by, rate := operate.Operator{Actor: "ann", Reason: "test"}, int64(50)
	m.beside(func(n int) []func(ctx context.Context) error {
		rate = []int64{50, 60}[n%2]
		next := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "mail"}, Limits: []limits.Limit{perTenant(rate), sharedBy(200), inFlight(5, "tenant")}}}}
		return append([]func(ctx context.Context) error{
			func(ctx context.Context) error { return operate.Publish(ctx, m.client, next) },
		}, m.operates("q", "t0", "t1", by)...)
	})
	m.beside(func(int) []func(ctx context.Context) error {
		const jobs = 3
		return []func(ctx context.Context) error{func(ctx context.Context) error {
			for range jobs {
				if _, err := m.producer.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: "never", In: time.Hour, Payload: 1}); err != nil {
					return err
				}
			}
			tally, err := operate.Apply(ctx, m.client, "q", operate.Cancel, operate.Filter{Tenant: "never"}, by, nil)
			if err == nil && tally.Jobs != jobs {
				err = fmt.Errorf("%d of %d jobs were cancelled", tally.Jobs, jobs)
			}
			return err
		}}
	})
	m.beside(func(int) []func(ctx context.Context) error {
		return append(m.looks("q", "t0"),
			func(ctx context.Context) error { _, err := m.producer.ListPeriodic(ctx); return err },
			func(ctx context.Context) error { _, err := m.producer.PausePeriodic(ctx, "other", true); return err },
		)
	})

	slot := m.cluster.Slot(store.Key("q", "waiting"))
	others := []string{periodicKey, periodicFiredKey, asynqwire.Queues, store.RoutesKey, workers.ListKey}
	for i := range moves {
		m.move(time.Duration(i%3)*300*time.Millisecond, i == moves/2, slot)
		before := calls.all()
		until(t, "calls go on", func() bool { return calls.all() >= before+50 })
		key := m.cluster.Slot(others[i%len(others)])
		m.cluster.Move(key, m.cluster.Other(key)).End()
	}
	m.end()
	set.Queues["q"].Limits[0] = perTenant(rate)
	if all, err := operate.Compare(ctx, m.client, set); err != nil || !all[0].Equal() {
		t.Errorf("the limits that were published last are %d/s; in Redis are %+v, %v", rate, all, err)
	}
	until(t, "all jobs are called", func() bool {
		return !slices.ContainsFunc(m.accepted, func(job acceptedJob) bool { return calls.of(job.id) == 0 })
	})
	m.nowhereTwice()
	ticks := m.once() - len(m.accepted)
	if states, err := m.producer.ListPeriodic(ctx); err != nil || len(states) != 1 || states[0].Skipped != 0 || ticks < moves {
		t.Errorf("%d ticks were called: %+v, %v", ticks, states, err)
	}
	t.Logf("%d jobs, and %d ticks of a periodic one", len(m.accepted), ticks)
}

// operates is what operators do to two tenants of a queue, which is as before at its end.
func (m *slotMoves) operates(queue, paused, changed string, by operate.Operator) []func(ctx context.Context) error {
	own := limits.Change{Rate: new(throttle.PerSecond(20))}
	return []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := operate.PauseJobs(ctx, m.client, queue, inspect.Scope{Tenant: paused}, time.Time{}, by)
			return err
		},
		func(ctx context.Context) error {
			return operate.SetOverride(ctx, m.client, queue, changed, "tenant", operate.Override{Change: own, Actor: by.Actor, Reason: by.Reason})
		},
		func(ctx context.Context) error {
			_, err := operate.ClearOverride(ctx, m.client, queue, changed, "tenant", by)
			return err
		},
		func(ctx context.Context) error {
			_, err := operate.ResumeJobs(ctx, m.client, queue, inspect.Scope{Tenant: paused}, by)
			return err
		},
	}
}

// looks is what dashboards read of a queue.
func (m *slotMoves) looks(queue, tenant string) []func(ctx context.Context) error {
	inspector := inspect.New(m.client)
	return []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := inspector.Overview(ctx, queue); return err },
		func(ctx context.Context) error { _, err := inspector.Gauges(ctx, queue); return err },
		func(ctx context.Context) error { _, err := inspector.Tenant(ctx, queue, tenant); return err },
		func(ctx context.Context) error {
			_, err := inspector.ListJobs(ctx, queue, inspect.JobQuery{State: lifecycle.StateWaiting})
			return err
		},
		func(ctx context.Context) error { _, err := inspect.Overrides(ctx, m.client, queue); return err },
		func(ctx context.Context) error { _, err := operate.Audit(ctx, m.client, queue, 10); return err },
	}
}

// TestSlotsOfPartitionsMove: while the slots of a queue's partitions move, and those of the ledgers of a quota that
// they share and of a budget of two queues, quota and budget are used up, and not exceeded by one call. Each job is
// called once, or waits in its lane because of them, and no key is on two nodes.
func TestSlotsOfPartitionsMove(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const rate, other = 40, 20 // calls a second: quota and budget are used up while slots move
	moves := testlong.Of(6, 18)
	quota, budget := int64(testlong.Of(250, 900)), int64(testlong.Of(150, 500))
	m, zone := newSlotMoves(t), noon(t)
	ctx, calls := t.Context(), m.calls
	layout := partition.Layout{Queue: "q", N: 3}
	var tenants, spending []string // of each partition two, and one whose calls cost a cent of the budget
	for _, home := range layout.Names() {
		l := leased{layout: layout}
		of := l.of(home, 3)
		tenants, spending = append(tenants, of[:2]...), append(spending, of[2])
	}
	spend := limits.Limit{Name: "spend", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: budget, Months: 1}, Location: zone, Unit: "cents", Queues: []string{"bill", "q"}}
	set := limits.Set{Queues: map[string]limits.Queue{
		"q": {Kinds: []string{"call", "mail"}, Partitions: layout.N, Limits: []limits.Limit{
			{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: zone},
			sharedLimit(throttle.TokenBucket, rate, 5), perTenant(50), spend,
		}},
		"bill": {Kinds: []string{"bill"}, Limits: []limits.Limit{sharedBy(other), spend}},
	}}
	if err := operate.Publish(ctx, m.client, set); err != nil {
		t.Fatal(err)
	}
	job := func(n int) Job {
		all := []Job{
			{Kind: "call", Queue: "q", Tenant: tenants[n%len(tenants)]},
			{Kind: "mail", Queue: "q", Tenant: spending[n%len(spending)], Costs: map[string]int64{"cents": 1}},
			{Kind: "bill", Queue: "bill", Tenant: spending[0], Costs: map[string]int64{"cents": 1}},
		}
		next := all[n/len(tenants)%len(all)]
		next.Payload = 1
		switch n % 4 {
		case 0:
			next.Key = fmt.Sprint(n)
		case 1:
			next.Priority = High
		}
		return next
	}
	// Alone, those without cost use up the quota, and those of the other queue the budget.
	var first []Job
	for n := range 3 * int(quota+budget) {
		first = append(first, job(n))
	}
	for i, id := range enqueueAll(t, m.producer, first...) {
		m.accepted = append(m.accepted, acceptedJob{first[i], id})
	}
	m.work([]string{"q", "bill"}, "call", "mail", "bill")
	m.work([]string{"q", "bill"}, "call", "mail", "bill")
	m.enqueue(func(n int) Job { return job(len(first) + n) })
	by := operate.Operator{Actor: "ann", Reason: "test"}
	m.beside(func(int) []func(ctx context.Context) error { return m.operates("q", tenants[0], tenants[2], by) })
	m.beside(func(int) []func(ctx context.Context) error { return m.looks("q", tenants[0]) })

	// sums returns how many calls were made under the quota, and the cents of the budget that were used.
	sums := func(of []acceptedJob) (n, cents int64) {
		for _, job := range of {
			if calls.of(job.id) > 0 {
				if job.Queue == "q" {
					n++
				}
				cents += job.Costs["cents"]
			}
		}
		return n, cents
	}
	ledgers, budgets := seats.Tags(m.client, "q"), seats.Tags(m.client, "*spend")
	var rounds [][]int
	for _, tags := range [][]string{
		{"q@2", ledgers[1]}, {"q", budgets[0]}, {"q@3", ledgers[2]}, {"bill", budgets[1]}, {ledgers[1], ledgers[2]}, {budgets[1], budgets[2]},
	} {
		rounds = append(rounds, []int{m.cluster.Slot(store.Key(tags[0], "waiting")), m.cluster.Slot(store.Key(tags[1], "waiting"))})
	}
	until(t, "calls begin", func() bool { return calls.all() >= 10 })
	for i := range moves {
		m.move(time.Duration(i%3)*200*time.Millisecond, i == moves/2, rounds[i%len(rounds)]...)
	}
	m.end()
	n, cents := sums(m.accepted)
	t.Logf("the slots have moved, %d calls were made of %d, and %d cents are used of %d", n, quota, cents, budget)
	until(t, "quota and budget are used up", func() bool {
		n, cents = sums(m.accepted)
		return n >= quota && cents >= budget
	})
	in := inspect.New(m.client)
	until(t, "no job is released any more", func() bool {
		for queue, limit := range map[string]string{"q": "month", "bill": "spend"} {
			g, err := in.Gauges(ctx, queue)
			if err != nil || g.Active+g.Pending > 0 {
				return false
			}
			all := tenants
			if queue == "bill" {
				all = spending[:1]
			}
			for _, tenant := range all {
				o, err := in.Outlook(ctx, queue, tenant)
				if err != nil {
					t.Fatal(err)
				}
				if o.HeldBy == nil || o.HeldBy.Limit != limit || o.HeldBy.Next.In(zone).Month() == time.Now().In(zone).Month() {
					return false
				}
			}
		}
		return true
	})
	m.once()
	if n, cents := sums(m.accepted); n != quota || cents != budget {
		t.Errorf("%d calls under a quota of %d, and %d cents of %d", n, quota, cents, budget)
	}
	for _, job := range m.accepted {
		home := job.Queue
		if home == "q" {
			home = layout.Home(job.Tenant)
		}
		state := m.client.HGet(ctx, asynqwire.Key(home, "t:"+job.id), "state").Val()
		switch n := calls.of(job.id); {
		case n == 0 && state != "aggregating":
			t.Errorf("job %s of %s was not called, and does not wait in its lane: its state is %q", job.id, home, state)
		case n > 0 && state != "" && (state != "completed" || job.Key == ""):
			t.Errorf("job %s of %s was called %d times, and is %q", job.id, home, n, state)
		}
	}
	m.nowhereTwice()
}

// nowhereTwice checks that no key is on two nodes.
func (m *slotMoves) nowhereTwice() {
	m.t.Helper()
	on := map[string]string{}
	for _, node := range m.cluster.Nodes() {
		keys, err := node.Client().Keys(m.t.Context(), "*").Result()
		if err != nil {
			m.t.Fatal(err)
		}
		for _, key := range keys {
			if other, twice := on[key]; twice {
				m.t.Errorf("%s is on %s and on %s", key, other, node.Addr())
			}
			on[key] = node.Addr()
		}
	}
}
