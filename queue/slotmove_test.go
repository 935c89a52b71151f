package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestSlotMoves: while the slot of a queue moves from node to node of a cluster, key by key and with
// pauses, the queue stands still, and goes on after. Each job is called once, and no key is on two
// nodes.
func TestSlotMoves(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const moves, tenants = 10, 20
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call"}, Limits: []limits.Limit{perTenant(50), sharedBy(200), inFlight(5, "tenant")}}}}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Fatal(err)
	}
	calls := newLedger()
	worker, err := New(Config{Redis: cluster.Options(), Queues: []string{"q"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		calls.begin(job)
		return nil
	})
	running, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		if err := worker.Run(running); err != nil {
			t.Errorf("Run: %v", err)
		}
	})

	// Each job has a key, so that it can be enqueued until that is certain.
	var accepted []string
	producing, enough := context.WithCancel(context.Background())
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		producer := NewClient(client)
		for n := 0; producing.Err() == nil; n++ {
			job := Job{Kind: "call", Queue: "q", Tenant: fmt.Sprintf("t%d", n%tenants), Key: fmt.Sprint(n), Payload: 1}
			receipt, err := producer.Enqueue(context.Background(), job)
			for ; err != nil; receipt, err = producer.Enqueue(context.Background(), job) {
				if t.Failed() {
					return
				}
			}
			accepted = append(accepted, receipt.ID)
			time.Sleep(5 * time.Millisecond) // the load, of 200/s
		}
	}()
	defer func() { enough(); <-produced }()

	// An operator changes limits and pauses meanwhile. What is refused was not done.
	rates, changed := []int64{50, 60}, make(chan int64)
	go func() {
		var rate int64
		by := operate.Operator{Actor: "ann", Reason: "test"}
		for i := 0; producing.Err() == nil; i++ {
			next := limits.Set{Queues: map[string]limits.Queue{"q": set.Queues["q"]}}
			next.Queues["q"].Limits[0] = perTenant(rates[i%2])
			if err := operate.Publish(ctx, client, next); err == nil {
				rate = rates[i%2]
			} else if !moving(err) {
				t.Errorf("publish: %v", err)
			}
			for _, change := range []func() error{
				func() error {
					_, err := operate.PauseJobs(ctx, client, "q", inspect.Scope{Tenant: "t0"}, time.Time{}, by)
					return err
				},
				func() error {
					_, err := operate.ResumeJobs(ctx, client, "q", inspect.Scope{Tenant: "t0"}, by)
					return err
				},
			} {
				for err := change(); err != nil; err = change() {
					if !moving(err) {
						t.Errorf("pause and resume: %v", err)
						break
					}
				}
			}
		}
		changed <- rate
	}()

	slot := cluster.Slot(store.Key("q", "waiting"))
	for i := range moves {
		from, to := cluster.Owner(slot), cluster.Other(slot)
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
	}
	enough()
	<-produced
	rate := <-changed
	set.Queues["q"].Limits[0] = perTenant(rate)
	if all, err := operate.Compare(ctx, client, set); err != nil || !all[0].Equal() {
		t.Errorf("the limits that were published last are %d/s; in Redis are %+v, %v", rate, all, err)
	}
	until(t, "all jobs are called", func() bool { return calls.all() >= len(accepted) })
	for _, id := range accepted {
		if n := calls.of(id); n != 1 {
			t.Errorf("job %s was called %d times", id, n)
		}
	}
	t.Logf("%d jobs", len(accepted))
}

// moving reports whether a command was refused because its slot moves or has moved.
func moving(err error) bool {
	return strings.Contains(err.Error(), "TRYAGAIN ") || strings.Contains(err.Error(), "MOVED ") || strings.Contains(err.Error(), "ASK ")
}
