package mover_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
)

// onLeft is a hook that does something once, before the first request that lets tenants leave.
type onLeft struct {
	do   func()
	once sync.Once
}

func (o *onLeft) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *onLeft) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.ContainsFunc(cmd.Args(), func(word any) bool { return strings.HasPrefix(fmt.Sprint(word), store.MoveLeft) }) {
			o.once.Do(o.do)
		}
		return next(ctx, cmd)
	}
}

func (o *onLeft) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestMoveToAPartitionThatLostItsLimits: a partition loses its limits, as in a failover to a replica that lags, when
// tenants have begun to move there. Their jobs stay where they are until the limits are published again, and then move.
func TestMoveToAPartitionThatLostItsLimits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	two, moving := partition.Layout{Queue: "q", N: 2}, 0
	for i := range tenants {
		if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Tenant: tenant(i)}); err != nil {
			t.Fatal(err)
		}
		if two.Home(tenant(i)) == "q@2" {
			moving++
		}
	}
	jobs := func(home string) int { return len(redistest.Keys(t, client, asynqwire.Key(home, "t:*"))) }
	l := published(t, client, setOf(2))
	if l.From == nil {
		t.Fatalf("no tenants move: %+v", l)
	}
	lose := &onLeft{do: func() { client.Del(ctx, store.Key("q@2", "limits"), store.MovesKey("q@2")) }}
	logged := &logtest.Buffer{}
	m := mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: clientOf(t, server, lose), Logger: slog.New(slog.NewTextHandler(logged, nil))}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	for end := time.Now().Add(time.Minute); !strings.Contains(logged.String(), "partition q@2 knows nothing of tenants that move there"); time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("the change ends without the limits: %s", logged)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("it does not say that the partition lost its limits: %s", logged)
		}
	}
	states := client.HVals(ctx, store.MovesKey("q")).Val()
	if left := slices.IndexFunc(states, func(state string) bool { return strings.HasPrefix(state, store.MoveLeft) }); left < 0 || jobs("q") != tenants {
		t.Errorf("without the limits: %d of %d jobs, the states %q", jobs("q"), tenants, states)
	}
	published(t, client, setOf(2))
	<-ended
	if here, there := jobs("q"), jobs("q@2"); there != moving || here != tenants-moving {
		t.Errorf("with the limits: %d and %d jobs; want %d in the second partition", here, there, moving)
	}
}
