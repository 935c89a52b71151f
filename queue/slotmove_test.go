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

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/throttle"
)

// TestSlotMoves: while the slot of a queue moves from node to node of a cluster, key by key and with
// pauses, also to a node that was just added, the queue stands still, and goes on after. So does what
// operators, producers and dashboards do: it takes longer, and no error comes of it. Each job is called
// once, and no key is on two nodes.
func TestSlotMoves(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const tenants = 20
	moves := testlong.Of(5, 10)
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "mail"}, Limits: []limits.Limit{perTenant(50), sharedBy(200), inFlight(5, "tenant")}}}}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Fatal(err)
	}
	calls := newLedger()
	worker, err := New(Config{Redis: cluster.Options(), Queues: []string{"q"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind[json.RawMessage]{"call", "mail"} {
		Handle(worker, kind, func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			calls.begin(job)
			return nil
		})
	}
	runWorker(t, worker)

	producer := NewClient(client)
	if err := producer.SetPeriodic(ctx, Periodic{ID: "tick", Spec: "@every 1s", Overlap: OverlapQueue, Job: Job{Kind: "call", Queue: "q", Tenant: "periodic", Payload: 1}}); err != nil {
		t.Fatal(err)
	}
	// All of these go on until the slots have moved for the last time. A context that ends later shows
	// that none of them fails before.
	var accepted []string
	var beside sync.WaitGroup
	moving, moved := context.WithCancel(context.Background())
	defer beside.Wait()
	defer moved()
	patient := func(do func(ctx context.Context) error) bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := do(ctx); err != nil {
			t.Errorf("while slots move: %v", err)
			return false
		}
		return true
	}
	beside.Go(func() {
		for n := 0; moving.Err() == nil; n++ {
			job := Job{Kind: []string{"call", "mail"}[n%2], Queue: "q", Tenant: fmt.Sprintf("t%d", n%tenants), Payload: 1}
			switch n % 4 {
			case 0:
				job.Key = fmt.Sprint(n)
			case 1:
				job.In = time.Second
			case 2:
				job.Priority = High
			}
			if !patient(func(ctx context.Context) error {
				receipt, err := producer.Enqueue(ctx, job)
				accepted = append(accepted, receipt.ID)
				return err
			}) {
				return
			}
			time.Sleep(5 * time.Millisecond) // the load, of 200/s
		}
	})
	by, rate := operate.Operator{Actor: "ann", Reason: "test"}, int64(50)
	beside.Go(func() {
		for n := 0; moving.Err() == nil; n++ {
			rate = []int64{50, 60}[n%2]
			next := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "mail"}, Limits: []limits.Limit{perTenant(rate), sharedBy(200), inFlight(5, "tenant")}}}}
			own := limits.Change{Rate: new(throttle.PerSecond(20))}
			for _, do := range []func(ctx context.Context) error{
				func(ctx context.Context) error { return operate.Publish(ctx, client, next) },
				func(ctx context.Context) error {
					_, err := operate.PauseJobs(ctx, client, "q", inspect.Scope{Tenant: "t0"}, time.Time{}, by)
					return err
				},
				func(ctx context.Context) error {
					return operate.SetOverride(ctx, client, "q", "t1", "tenant", operate.Override{Change: own, Actor: by.Actor, Reason: by.Reason})
				},
				func(ctx context.Context) error {
					_, err := operate.ClearOverride(ctx, client, "q", "t1", "tenant", by)
					return err
				},
				func(ctx context.Context) error {
					_, err := operate.ResumeJobs(ctx, client, "q", inspect.Scope{Tenant: "t0"}, by)
					return err
				},
			} {
				if !patient(do) {
					return
				}
			}
		}
	})
	beside.Go(func() {
		for moving.Err() == nil {
			const jobs = 3
			if !patient(func(ctx context.Context) error {
				for range jobs {
					if _, err := producer.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: "never", In: time.Hour, Payload: 1}); err != nil {
						return err
					}
				}
				tally, err := operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{Tenant: "never"}, by, nil)
				if err == nil && tally.Jobs != jobs {
					err = fmt.Errorf("%d of %d jobs were cancelled", tally.Jobs, jobs)
				}
				return err
			}) {
				return
			}
		}
	})
	beside.Go(func() {
		inspector := inspect.New(client)
		for n := 0; moving.Err() == nil; n++ {
			for _, look := range []func(ctx context.Context) error{
				func(ctx context.Context) error { _, err := inspector.Overview(ctx, "q"); return err },
				func(ctx context.Context) error { _, err := inspector.Gauges(ctx, "q"); return err },
				func(ctx context.Context) error { _, err := inspector.Tenant(ctx, "q", "t0"); return err },
				func(ctx context.Context) error {
					_, err := inspector.ListJobs(ctx, "q", inspect.JobQuery{State: lifecycle.StateWaiting})
					return err
				},
				func(ctx context.Context) error { _, err := inspect.Overrides(ctx, client, "q"); return err },
				func(ctx context.Context) error { _, err := operate.Audit(ctx, client, "q", 10); return err },
				func(ctx context.Context) error { _, err := producer.ListPeriodic(ctx); return err },
				func(ctx context.Context) error { _, err := producer.PausePeriodic(ctx, "other", true); return err },
			} {
				if !patient(look) {
					return
				}
			}
		}
	})

	slot := cluster.Slot(store.Key("q", "waiting"))
	others := []string{periodicKey, periodicFiredKey, asynqwire.Queues, store.RoutesKey, workers.ListKey}
	for i := range moves {
		from, to := cluster.Owner(slot), cluster.Other(slot)
		if i == moves/2 {
			to = cluster.Add()
		}
		move := cluster.Move(slot, to)
		pause := time.Duration(i%3) * 300 * time.Millisecond
		time.Sleep(pause) // no key has moved
		for n := 0; move.Key(); n++ {
			if n%20 == 0 {
				time.Sleep(pause / 10)
			}
		}
		time.Sleep(pause) // all keys have moved, and the slot has not
		move.End()
		for _, node := range cluster.Nodes() {
			n, err := node.Client().ClusterCountKeysInSlot(ctx, slot).Result()
			if err != nil || (n > 0) != (node == to) {
				t.Fatalf("move %d from %s to %s: %s has %d keys, %v", i, from.Addr(), to.Addr(), node.Addr(), n, err)
			}
		}
		before := calls.all()
		until(t, "calls go on", func() bool { return calls.all() >= before+50 })
		key := cluster.Slot(others[i%len(others)])
		cluster.Move(key, cluster.Other(key)).End()
	}
	moved()
	beside.Wait()
	set.Queues["q"].Limits[0] = perTenant(rate)
	if all, err := operate.Compare(ctx, client, set); err != nil || !all[0].Equal() {
		t.Errorf("the limits that were published last are %d/s; in Redis are %+v, %v", rate, all, err)
	}
	until(t, "all jobs are called", func() bool {
		return !slices.ContainsFunc(accepted, func(id string) bool { return calls.of(id) == 0 })
	})
	calls.mu.Lock() // the periodic job is called on and on
	called := maps.Clone(calls.calls)
	calls.mu.Unlock()
	for id, n := range called {
		if n != 1 {
			t.Errorf("job %s was called %d times", id, n)
		}
	}
	ticks := len(called) - len(accepted)
	if states, err := producer.ListPeriodic(ctx); err != nil || len(states) != 1 || states[0].Skipped != 0 || ticks < moves {
		t.Errorf("%d ticks were called: %+v, %v", ticks, states, err)
	}
	t.Logf("%d jobs, and %d ticks of a periodic one", len(accepted), ticks)
}
