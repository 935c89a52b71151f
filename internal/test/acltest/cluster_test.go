package acltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	queuelimits "github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestUsersOfACluster: the users of docs/redis.acl may find the nodes of a Cluster, and follow a slot
// that moves.
func TestUsersOfACluster(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, "--aclfile", users(t, t.TempDir()))
	as := func(user string) (*redis.UniversalOptions, redis.UniversalClient) {
		options := cluster.Options()
		options.Username, options.Password = user, user+"-password"
		client := redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = client.Close() })
		return options, client
	}
	options, admin := as("worker")
	_, producer := as("producer")
	_, reader := as("reader")
	ctx := t.Context()
	if err := operate.Publish(ctx, admin, queuelimits.Set{Queues: map[string]queuelimits.Queue{"q": {Kinds: []string{"call"}}}}); err != nil {
		t.Fatal(err)
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{})
	queue.Handle(worker, "call", func(context.Context, int) error { close(called); return nil })
	running, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		if err := worker.Run(running); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	if _, err := queue.NewClient(producer).Enqueue(ctx, queue.Job{Kind: "call", Queue: "q", Tenant: "a", Payload: 1}); err != nil {
		t.Error(err)
	}
	select {
	case <-called:
	case <-time.After(time.Minute):
		t.Error("no worker called")
	}
	if _, err := inspect.New(reader).Overview(ctx, "q"); err != nil {
		t.Error(err)
	}
	// A key that the slot does not have is at the new node.
	slot := cluster.Slot("{headgate:api}:x")
	move := cluster.Move(slot, cluster.Other(slot))
	for _, client := range []redis.UniversalClient{admin, reader} {
		if err := client.Get(ctx, "{headgate:api}:x").Err(); err != redis.Nil {
			t.Errorf("while its slot moves: %v", err)
		}
	}
	move.End()
	for _, node := range cluster.Nodes() {
		if texts := denied(t, node.Client()); len(texts) > 0 {
			t.Errorf("denied: %q", texts)
		}
	}
}
