package mover_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// before calls do once, before the first command of a name that has a word, and refused once, when a node has refused an
// EXISTS because its slot moves.
type before struct {
	name, word    string
	do, refused   func()
	once, andOnce sync.Once
}

func (b *before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == b.name && slices.Contains(cmd.Args(), any(b.word)) {
			b.once.Do(b.do)
		}
		err := next(ctx, cmd)
		if b.refused != nil && cmd.Name() == "exists" && store.Moving(err) {
			b.andOnce.Do(b.refused)
		}
		return err
	}
}

func (b *before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestMoveBesideASlotMove: a tenant without jobs takes what is used of its limits along, also if the slot of the
// partition that it leaves moves to another node just then.
func TestMoveBesideASlotMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	who := ""
	for i := range tenants {
		if (partition.Layout{Queue: "q", N: 2}).Home(tenant(i)) == "q@2" {
			who = rediskey.Escape(tenant(i))
		}
	}
	for what, hook := range map[string]*before{
		"before its keys are looked for": {name: "smembers", word: "asynq:{q@2}:groups"},
		"while its keys are looked for":  {name: "scan", word: "headgate:{q@2}:*"},
	} {
		if l := published(t, client, setOf(2)); l.From != nil { // not the first time
			move(ctx, l, "w", client)
		}
		l := published(t, client, setOf(1))
		const name = "adapt:tenant:"
		client.Del(ctx, store.Key("q", name+who))
		client.Set(ctx, store.Key("q@2", name+who), "512 1024 1795000000000000 1024 0", time.Hour)
		client.HSet(ctx, store.MovesKey("q@2"), who, store.MoveLeft+"x") // a mover was stopped in the middle

		other := cluster.NewClient(&redis.ClusterOptions{})
		defer other.Close()
		reached, goOn, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
		hook.do = func() {
			close(reached)
			<-goOn
		}
		hook.refused = func() { close(refused) }
		other.OnNewNode(func(node *redis.Client) { node.AddHook(hook) }) // a scan is of one node
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			move(ctx, l, "w", other)
		}()
		<-reached
		slot := cluster.Slot(store.Key("q@2", ""))
		move := cluster.Move(slot, cluster.Other(slot))
		move.Keys()
		close(goOn)
		select { // it asks the old node, which has no keys any more, whether it has all
		case <-refused:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the old node refuses nothing", what)
		}
		move.End()
		<-ended
		if now, err := store.ReadLayout(ctx, client, "q"); err != nil || now.From != nil {
			t.Fatalf("%s: %+v, %v", what, now, err)
		}
		if text := client.Get(ctx, store.Key("q", name+who)).Val(); text == "" {
			t.Errorf("the slot moves %s: what the tenant had is not where it has arrived", what)
		}
	}
}

// TestMoveOfALockedTask: a task that asynq's own client locked ends in the partition where its tenant arrives, although
// its lock is in the slot of the other one.
func TestMoveOfALockedTask(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	const partitions = 8 // some are on another node than the first
	set := func(n int) limits.Set {
		return limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Kinds: []string{"call"}}}}
	}
	published(t, client, set(1))
	nodeOf := func(home string) *redistest.Server { return cluster.Owner(cluster.Slot(store.Key(home, ""))) }
	who, home := "", "q"
	for i := 0; nodeOf(home) == nodeOf("q"); i++ {
		who = tenant(i)
		home = partition.Layout{Queue: "q", N: partitions}.Home(who)
	}
	if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Tenant: who, Payload: "x"}); err != nil { // else nobody knows the tenant
		t.Fatal(err)
	}
	task := asynq.NewTaskWithHeaders("call", []byte(`"x"`), map[string]string{asynqwire.HeaderTenant: who})
	options := []asynq.Option{asynq.Queue("q"), asynq.TaskID("one"), asynq.ProcessIn(time.Second), asynq.Unique(time.Hour)}
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(task, options...); err != nil {
		t.Fatal(err)
	}
	lock := client.HGet(ctx, asynqwire.Key("q", "t:one"), "unique_key").Val()
	move(ctx, published(t, client, set(partitions)), "w", client)
	if n := client.Exists(ctx, asynqwire.Key(home, "t:one")).Val(); n != 1 {
		t.Fatal("the task has not arrived")
	}
	if client.TTL(ctx, lock).Val() <= 0 {
		t.Error("another task like it could come while it waits")
	}
	worker, err := queue.New(queue.Config{Redis: cluster.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "call", func(context.Context, string) error { return nil })
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	until.Done(t, "the task has ended", func() bool { return client.Exists(ctx, asynqwire.Key(home, "t:one")).Val() == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
