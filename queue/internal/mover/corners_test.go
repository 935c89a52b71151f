package mover_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestPublishedAgainAtTheEnd: when limits are published again while a change ends, a partition for which it has ended
// stays as it is.
func TestPublishedAgainAtTheEnd(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	limits := func(home string) map[string]string { return client.HGetAll(ctx, store.Key(home, "limits")).Val() }
	published(t, client, setOf(1))
	l := published(t, client, setOf(2))
	if l.From == nil {
		t.Fatalf("no tenants move: %+v", l)
	}
	begun := limits("q")
	move(ctx, l, "w", client)
	if l, err := store.ReadLayout(ctx, client, "q"); err != nil || l.From != nil {
		t.Fatal(l, err)
	}
	ended := limits("q@2")
	// The worker was stopped before the first partition, which is the last one, knew of it.
	client.Del(ctx, store.Key("q", "limits"))
	client.HSet(ctx, store.Key("q", "limits"), begun)
	published(t, client, setOf(2))
	if now := limits("q@2"); !maps.Equal(now, ended) {
		t.Errorf("the other partition has\n%q\nwant\n%q", now, ended)
	}
}

// TestKeysOfALateTenant: what a tenant used who came to its old partition just before that took no new ones any more moves
// with it, although it has no jobs.
func TestKeysOfALateTenant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	l := published(t, client, setOf(2))
	if l.From == nil {
		t.Fatalf("no tenants move: %+v", l)
	}
	who := tenant(0)
	for i := 1; l.Home(who) != "q@2"; i++ {
		who = tenant(i)
	}
	name := "adapt:tenant:" + rediskey.Escape(who)
	late := &before{name: "evalsha", word: store.WholeQueue, do: func() {
		client.Set(ctx, store.Key("q", name), "512 1024 1795000000000000 1024 0", time.Hour)
	}}
	move(ctx, l, "w", clientOf(t, server, late))
	if text := client.Get(ctx, store.Key("q@2", name)).Val(); text == "" {
		t.Error("what it used is not where it has arrived")
	}
}

// TestPublishedWhileAnOverrideMoves: an override is by the limits that are in force where its tenant arrives, also if they were
// published after it was read where the tenant leaves.
func TestPublishedWhileAnOverrideMoves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	who := tenant(0)
	for i := 1; (partition.Layout{Queue: "q", N: 2}).Home(who) != "q@2"; i++ {
		who = tenant(i)
	}
	change := limits.Change{Burst: new(int64(3))}
	if err := operate.SetOverride(ctx, client, "q", who, "tenant", operate.Override{Change: change, Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	late := &before{name: "evalsha", word: "overrides", do: func() {
		next := setOf(2)
		next.Queues["q"].Limits[0].Rate.Count = 20
		published(t, client, next)
	}}
	move(ctx, published(t, client, setOf(2)), "w", clientOf(t, server, late))
	all, err := inspect.LimitsInForce(ctx, client, "q", who)
	if err != nil || all[0].From != "override" || all[0].Rate != "20/h" || all[0].Burst != 3 {
		t.Errorf("in force: %+v, %v; want 20/h with a burst of 3", all, err)
	}
	if l, err := store.ReadLayout(ctx, client, "q"); err != nil || l.From != nil {
		t.Errorf("the change has not ended: %+v, %v", l, err)
	}
}

// TestMoveOutOfEveryPlace: a job of a tenant that leaves is taken from wherever asynq or Headgate keep it, and comes to
// the same place; one that a worker has, that is not where its state says, or that has gone already is left alone.
func TestMoveOutOfEveryPlace(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	published(t, client, setOf(1))
	published(t, client, setOf(2))
	const home = "q"
	key := func(name string) string { return asynqwire.Key(home, name) }
	place := func(id, state string) { client.HSet(ctx, key("t:"+id), "state", state, "group", "t;kind=call;model=") }
	plain := asynq.NewClientFromRedisClient(client)
	for _, id := range []string{"scheduled", "pending", "active", "archive", "lost", "gone-already"} {
		task := asynq.NewTaskWithHeaders("call", []byte(`"x"`), map[string]string{asynqwire.HeaderTenant: "t"})
		if _, err := plain.Enqueue(task, asynq.Queue(home), asynq.TaskID(id), asynq.ProcessIn(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if id != "scheduled" {
			client.ZRem(ctx, key("scheduled"), id)
		}
	}
	place("pending", "pending")
	client.LPush(ctx, key("pending"), "pending")
	place("active", "active")
	client.LPush(ctx, key("active"), "active")
	place("archive", "archived")
	client.ZAdd(ctx, store.Key(home, "archive"), redis.Z{Score: 7, Member: "archive"})
	place("lost", "retry")
	client.HSet(ctx, store.Key(home, "leaving"), "gone-already", "lane 1 0")
	client.HSet(ctx, store.MovesKey(home), "t", "left x")

	ids := []any{home, "", "scheduled", "pending", "active", "archive", "lost", "gone-already", "deleted"}
	if n, err := store.MoveOutScript.Run(ctx, client, store.ScriptKeys(home), ids...); err != nil || n != int64(3) {
		t.Errorf("%v, %v were taken out, want 3", n, err)
	}
	if faults := client.HGetAll(ctx, store.Key(home, "faults")).Val(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	leaving := client.HGetAll(ctx, store.Key(home, "leaving")).Val()
	if got := slices.Sorted(maps.Keys(leaving)); !slices.Equal(got, []string{"archive", "gone-already", "pending", "scheduled"}) || leaving["pending"] != "pending 0 0" || leaving["archive"] != "archive 7 0" || !strings.HasPrefix(leaving["scheduled"], "scheduled ") {
		t.Errorf("leaving: %q", leaving)
	}
	if group := client.HGet(ctx, key("t:scheduled"), "group").Val(); group == "" {
		t.Error("a job of asynq's own client got no lane")
	}
	if n := client.LLen(ctx, key("pending")).Val() + client.ZCard(ctx, store.Key(home, "archive")).Val() + client.ZCard(ctx, key("scheduled")).Val(); n != 0 {
		t.Errorf("%d jobs that are on their way are still where they were", n)
	}

	const to = "q@2"
	client.HSet(ctx, store.MovesKey(to), "t", "comes x")
	args := []any{to, "x"}
	for _, id := range []string{"pending", "archive", "scheduled"} {
		task := client.HGetAll(ctx, key("t:"+id)).Val()
		args = append(args, id, "t", leaving[id], 2*len(task))
		for field, value := range task {
			args = append(args, field, value)
		}
	}
	if here, err := store.MoveInScript.Run(ctx, client, store.ScriptKeys(to), args...); err != nil || len(here.([]any)) != 3 {
		t.Errorf("%v, %v have arrived", here, err)
	}
	if got := client.LRange(ctx, asynqwire.Key(to, "pending"), 0, -1).Val(); !slices.Equal(got, []string{"pending"}) {
		t.Errorf("pending: %q", got)
	}
	if score := client.ZScore(ctx, store.Key(to, "archive"), "archive").Val(); score != 7 {
		t.Errorf("archived at %v", score)
	}
	if info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo(to, "scheduled"); err != nil || info.State != asynq.TaskStateScheduled {
		t.Errorf("%+v, %v", info, err)
	}
}
