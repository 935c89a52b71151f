package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// full returns a job that the queue call does not accept, because it has one, its maximum.
func (tm *timer) full(t *testing.T) Job {
	t.Helper()
	if err := operate.Publish(t.Context(), tm.client, limits.Set{Queues: map[string]limits.Queue{"call": {Kinds: []string{"call"}, MaxBacklog: 1}}}); err != nil {
		t.Fatal(err)
	}
	job := Job{Kind: "call", Tenant: "a", Payload: struct{}{}}
	if _, err := tm.ticks.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestPeriodicRefused: a tick whose job is rejected is tried again until it is accepted, or
// until the next tick.
func TestPeriodicRefused(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	ctx, full := t.Context(), tm.full(t)
	tm.set(Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
	tm.set(Periodic{ID: "other", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "b", Payload: struct{}{}}})
	tm.aged("x", 48*time.Hour)
	tm.aged("other", 48*time.Hour)
	today := tm.now() / 86400 * 86400
	for range 3 {
		if wait := tm.mustRound(tm.ticks); wait < 100*time.Millisecond {
			t.Errorf("it is tried again after %v", wait)
		}
		if got := tm.fired("call"); len(got) != 2 || got[fmt.Sprint("other ", today)] != 1 {
			t.Errorf("fired %v, want the other one and the job that was there", got)
		}
	}
	tm.drop("call")
	tm.client.Del(ctx, store.TenantsKey("call"))
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x", today)
}

// TestPeriodicRefusedAndLoadedAgain: a tick that was rejected is not lost when the entries are loaded again, because
// one of them changed or because Redis did not answer, or by another worker after the only one was restarted.
func TestPeriodicRefusedAndLoadedAgain(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) { refusedAndLoadedAgain(t, restarted) })
	}
}

func refusedAndLoadedAgain(t *testing.T, restarted bool) {
	t.Parallel()
	tm := newTimer(t)
	ctx, full := t.Context(), tm.full(t)
	for _, id := range []string{"x", "changed"} {
		tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
		tm.aged(id, 48*time.Hour)
	}
	today := tm.now() / 86400 * 86400
	tm.mustRound(tm.ticks)
	tm.set(Periodic{ID: "changed", Spec: "@every 12h", MaxLate: 24 * time.Hour, Job: full}) // its ticks of before were not missed
	tm.mustRound(tm.ticks)
	tm.loaded = false
	tm.mustRound(tm.ticks)
	tm.drop("call")
	tm.client.Del(ctx, store.TenantsKey("call"))
	if restarted {
		tm.ticks = newTicks(t, tm.client)
	}
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x", today)
}

// TestPeriodicBesideAQueueAway: while the Redis of one queue does not answer, or answers with errors, the ticks of
// others are fired in time. The queue's own go on afterwards.
func TestPeriodicBesideAQueueAway(t *testing.T) {
	for _, name := range []string{"waiting", "limits"} { // the key of which nothing is known
		for _, silent := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, silent %v", name, silent), func(t *testing.T) {
				t.Parallel()
				tm := newTimer(t)
				word, end := store.Key("away", name), make(chan struct{})
				client := redis.NewClient(&redis.Options{Addr: tm.server.Addr()})
				defer client.Close()
				var away atomic.Bool
				away.Store(true)
				client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if away.Load() {
						next = redistest.Silent{Word: word, End: end}.ProcessHook(next)
					}
					return next(ctx, cmd)
				}))
				for _, queue := range []string{"away", "other"} {
					for i := range 3 {
						tm.set(Periodic{ID: fmt.Sprint(queue, i), Spec: "* * * * * *", Zone: "UTC", Overlap: OverlapQueue,
							Job: Job{Kind: queue, Tenant: fmt.Sprint("t", i), Payload: struct{}{}}})
					}
				}
				if !silent {
					close(end)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { newTicks(t, client).Run(ctx) })
				from, began := tm.now()+1, time.Now()
				const seconds = 5
				got := map[string]int{}
				until(t, "fired in the other queue", func() bool {
					got = tm.fired("other")
					for i := range 3 {
						if got[fmt.Sprint("other", i, " ", from+seconds-1)] == 0 {
							return false
						}
					}
					return true
				})
				if took := time.Since(began); took > (seconds+2)*time.Second {
					t.Errorf("%d ticks in a row were fired after %v", seconds, took)
				}
				for i := range 3 {
					for tick := from; tick < from+seconds; tick++ {
						if got[fmt.Sprint("other", i, " ", tick)] != 1 {
							t.Errorf("tick %d of entry %d: not fired once; all: %v", tick, i, got)
						}
					}
				}
				if got := tm.fired("away"); len(got) > 0 {
					t.Errorf("fired into the queue that is away: %v", got)
				}
				away.Store(false)
				if silent {
					close(end)
				}
				back := tm.now()
				until(t, "fired in the queue that is back", func() bool { return tm.fired("away")[fmt.Sprint("away0 ", back+2)] == 1 })
				cancel()
				running.Wait()
				for tick, n := range tm.fired("away") {
					if n != 1 {
						t.Errorf("%d jobs of %s", n, tick)
					}
				}
			})
		}
	}
}

// TestPeriodicRefusedAndChanged: a tick whose job was rejected is dropped when its periodic job gets a job of another kind,
// for another queue or of another tenant: it may have been enqueued before, and no worker of the first queue may take
// the new kind. Ticks that were not tried before are fired, as the new job.
func TestPeriodicRefusedAndChanged(t *testing.T) {
	for name, changed := range map[string]Job{
		"queue":  {Kind: "call", Queue: "qb", Tenant: "a", Payload: struct{}{}},
		"kind":   {Kind: "other", Queue: "qb", Tenant: "a", Payload: struct{}{}},
		"tenant": {Kind: "call", Queue: "qb", Tenant: "b", Payload: struct{}{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := newTimer(t)
			ctx, full := t.Context(), tm.full(t)
			for _, id := range []string{"x", "same"} {
				tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
				tm.aged(id, 48*time.Hour)
			}
			today := tm.now() / 86400 * 86400
			tm.mustRound(tm.ticks)
			tm.set(Periodic{ID: "new", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: full})
			tm.aged("new", 48*time.Hour)
			for _, id := range []string{"x", "new"} {
				tm.set(Periodic{ID: id, Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: changed})
			}
			tm.mustRound(tm.ticks)
			tm.drop("call")
			tm.client.Del(ctx, store.TenantsKey("call"))
			for range 2 {
				tm.mustRound(tm.ticks)
			}
			wantFired(t, tm.fired("call"), "same", today)
			wantFired(t, tm.fired(changed.Queue), "new", today)
		})
	}
}

// TestPeriodicChangedMeanwhile: a periodic job that gets a job for another queue while its tick is being enqueued is not
// enqueued in the first.
func TestPeriodicChangedMeanwhile(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	p := Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "a", Payload: struct{}{}}}
	tm.set(p)
	tm.aged("x", 48*time.Hour)
	client := tm.server.Client()
	var change sync.Once
	client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "hmget" && cmd.Args()[1] == periodicKey {
			change.Do(func() {
				p.Job.Kind, p.Job.Queue = "other", "qb"
				tm.set(p)
			})
		}
		return next(ctx, cmd)
	}))
	ticks := newTicks(t, client)
	for range 2 {
		tm.mustRound(ticks)
	}
	if p.Job.Queue == "" {
		t.Fatal("it was not changed")
	}
	if got := tm.fired("call"); len(got) > 0 {
		t.Errorf("fired %v in the first queue", got)
	}
}
