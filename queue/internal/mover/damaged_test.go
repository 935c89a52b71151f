package mover_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestMoveBesideADamagedJob: jobs in the lists of those that workers have or are to get have lost their state, or more, so
// no worker will end them. Their tenant does not wait for that.
func TestMoveBesideADamagedJob(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	who := "t"
	for (partition.Layout{Queue: "q", N: 2}).Home(who) != "q@2" {
		who += "t"
	}
	receipt, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Tenant: who})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"active", "pending"} {
		client.HSet(ctx, asynqwire.Key("q", "t:"+list), "group", rediskey.Escape(who)+";kind=call;model=")
		client.LPush(ctx, asynqwire.Key("q", list), list)
	}
	client.Set(ctx, asynqwire.Key("q", "t:text"), "no task", 0)
	client.LPush(ctx, asynqwire.Key("q", "active"), "text")
	running, end := context.WithTimeout(ctx, 20*time.Second)
	defer end()
	move(running, published(t, client, setOf(2)), "w", client)
	if l, err := store.ReadLayout(ctx, client, "q"); err != nil || l.From != nil {
		t.Errorf("the change has not ended: %+v, %v", l, err)
	}
	if n := client.Exists(ctx, asynqwire.Key("q@2", "t:"+receipt.ID)).Val(); n != 1 {
		t.Error("the tenant's other job has not arrived")
	}
	for _, list := range []string{"active", "pending"} {
		if n := client.Exists(ctx, asynqwire.Key("q", "t:"+list)).Val(); n != 1 {
			t.Errorf("the damaged job in %s is gone", list)
		}
	}
}
