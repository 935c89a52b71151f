package mover_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
)

// givingUp notes when movers let a tenant go on whose calls did not end in time.
type givingUp struct {
	mu    sync.Mutex
	times []time.Time
}

func (g *givingUp) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *givingUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if n := len(args); n > 3 && args[n-3] == store.MoveStop && args[n-2] == "" {
			g.mu.Lock()
			g.times = append(g.times, time.Now())
			g.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func (g *givingUp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *givingUp) all() []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.times
}

// TestLongCalls: a tenant moves whose calls take longer than the role of mover lasts, and longer than those of the
// workers that move it. Another one that comes meanwhile does not wait for these calls.
func TestLongCalls(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	var moving []string
	for i := 0; len(moving) < 2; i++ {
		if (partition.Layout{Queue: "q", N: 2}).Home(tenant(i)) != "q" {
			moving = append(moving, tenant(i))
		}
	}
	moves, comes := moving[0], moving[1]
	enqueue := func(tenant string) {
		t.Helper()
		if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: "q", Tenant: tenant, Payload: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(moves)
	client.HSet(ctx, asynqwire.Key("q", "t:calls"), "state", "active", "group", rediskey.Escape(moves)+";kind=call;model=")
	client.LPush(ctx, asynqwire.Key("q", "active"), "calls")

	l, gaveUp := published(t, client, setOf(2)), &givingUp{}
	var movers sync.WaitGroup
	defer movers.Wait()
	for _, worker := range []string{"one", "two"} {
		m := mover.Mover{Of: l, Worker: worker, Longest: 3 * time.Second, Redis: clientOf(t, server, gaveUp), Logger: slog.New(slog.DiscardHandler)}
		movers.Go(func() { m.Run(ctx) })
	}
	for len(gaveUp.all()) < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	enqueue(comes)
	time.Sleep(time.Until(gaveUp.all()[1].Add(7500 * time.Millisecond))) // less than 8 s, more than 5 s + 2 s
	if n := len(gaveUp.all()); n > 2 {
		t.Errorf("the tenant was stopped for only %v", gaveUp.all()[2].Sub(gaveUp.all()[1]))
	}
	for began := time.Now(); client.HGet(ctx, store.MovesKey("q"), rediskey.Escape(comes)).Val() != store.MoveGone; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Error("a tenant without calls waits for those of another one, for which it is waited for 16 s")
			break
		}
	}
	client.LRem(ctx, asynqwire.Key("q", "active"), 0, "calls")
	movers.Wait()
	if l, err := store.ReadLayout(ctx, client, "q"); err != nil || l.From != nil {
		t.Errorf("the change has not ended: %+v, %v", l, err)
	}
}
