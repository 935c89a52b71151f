package mover_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// killed is a hook of a mover that dies before a request, by its words. It calls look before the first one of others.
type killed struct {
	dies   func(words []any) bool
	end    context.CancelFunc
	at     func(words []any) bool // nil: before none
	look   func()
	looked bool
}

func (k *killed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *killed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		words := cmd.Args()
		if k.at != nil && !k.looked && k.at(words) {
			k.looked = true
			k.look()
		}
		if k.dies(words) {
			k.end()
			cmd.SetErr(context.Canceled)
			return context.Canceled
		}
		return next(ctx, cmd)
	}
}

func (k *killed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLanesWakeWithoutTheMover: dispatch has found the lanes of tenants held, and the worker that moves them dies when they
// may go on. They do within seconds.
func TestLanesWakeWithoutTheMover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		home    string // where the lanes are
		tenants int
		busy    bool // their calls do not end, so they do not move
		at      func(words []any) bool
	}{
		"they have arrived": {home: "q@2", tenants: tenants, at: func(words []any) bool { return slices.Contains(words, any(store.MoveHere)) }},
		"they stay": {home: "q", tenants: 1, busy: true, at: func(words []any) bool {
			n := len(words)
			return n > 3 && words[n-3] == store.MoveStop && words[n-2] == ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client, ctx := server.Client(), t.Context()
			publish := func(n int) partition.Layout { return published(t, client, setOf(n)) }
			publish(1)
			moving := 0
			for i := 0; moving < c.tenants; i++ {
				if (partition.Layout{Queue: "q", N: 2}).Home(tenant(i)) == "q" {
					continue
				}
				moving++
				if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Tenant: tenant(i)}); err != nil {
					t.Fatal(err)
				}
				if c.busy {
					client.HSet(ctx, asynqwire.Key("q", "t:calls"), "state", "active", "group", rediskey.Escape(tenant(i))+";kind=call;model=")
					client.LPush(ctx, asynqwire.Key("q", "active"), "calls")
				}
			}
			l := publish(2)
			asleep := func() (lanes []redis.Z) {
				for _, lane := range client.ZRangeWithScores(ctx, store.Key(c.home, "waiting"), 0, -1).Val() {
					if lane.Score > float64(time.Now().Add(10*time.Second).UnixMicro()) {
						lanes = append(lanes, lane)
					}
				}
				return lanes
			}
			dispatched := 0
			dispatch := func() {
				for range 3 { // each looks at 32 lanes
					reply, err := store.DispatchScript.Run(ctx, client, store.ScriptKeys(c.home), c.home, 100, 100, store.Horizon.Microseconds(), 10_000,
						"", ",call,", time.Minute.Microseconds(), "w", 1, 0, 16, 2500, 0)
					if err != nil {
						t.Error(err)
						return
					}
					dispatched += len(reply.([]any)[10].([]any))
				}
			}
			running, end := context.WithCancel(ctx)
			plans := func(words []any) bool { return slices.Contains(words, any(store.SweepScript.Hash())) }
			dies := &killed{dies: plans, end: end, at: c.at, look: dispatch}
			move(running, l, "w", clientOf(t, server, dies))
			if running.Err() == nil || !dies.looked || dispatched > 0 {
				t.Fatalf("the mover did not die (%v), or %d jobs were called while they were held", running.Err(), dispatched)
			}
			if !c.busy {
				move(ctx, l, "w", client)
			}
			if n := client.ZCard(ctx, store.Key(c.home, "waiting")).Val(); n != int64(c.tenants) {
				t.Fatalf("%d lanes wait; want %d", n, c.tenants)
			}
			if lanes := asleep(); len(lanes) > 0 {
				t.Errorf("%d of %d lanes sleep, the first one until %.0f", len(lanes), c.tenants, lanes[0].Score)
			}
		})
	}
}
