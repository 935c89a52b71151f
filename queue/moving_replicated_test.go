package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// beforeScript returns a hook on the clients of all nodes that does something once, before the first request of a script
// for a partition.
func beforeScript(script *redisscript.Script, home string, do func()) redis.Hook {
	var once sync.Once
	return redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			if slices.Contains(args, any(script.Hash())) && slices.Contains(args, any(store.ScriptKeys(home)[0])) {
				once.Do(do)
			}
		}
		return send()
	})
}

// TestReplicatedTenantsMove: while the replica of a partition does not answer, nothing of a replicated queue is deleted
// where it was before, so nothing is lost if that partition fails over. The tenants move when the replica answers again,
// and until they have begun to move their calls go on.
func TestReplicatedTenantsMove(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	first, second := cluster.Nodes()[0], cluster.Nodes()[1]
	cluster.StartReplica(first)
	replica := cluster.StartReplica(second)
	owner := func(home string) *redistest.Server { return cluster.Owner(cluster.Slot(store.Key(home, "waiting"))) }
	publish := func(queue string, n int) partition.Layout {
		t.Helper()
		err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{queue: {Durability: limits.Replicated, Partitions: n, Limits: []limits.Limit{perTenant(20)}}}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := store.ReadLayout(ctx, client, queue)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const tenants = 8
	jobsOf := func(home string) int { return len(redistest.Keys(t, client, asynqwire.Key(home, "t:*"))) }
	number := 0
	for _, test := range []struct {
		what   string
		script *redisscript.Script
		back   bool // from two partitions to one
		check  func(t *testing.T, l partition.Layout)
	}{
		{what: "before the tenants stop", script: store.MoveScript, check: func(t *testing.T, l partition.Layout) {
			if states := client.HGetAll(ctx, store.MovesKey(l.Name(1))).Val(); len(states) > 0 {
				t.Errorf("tenants stand still: %v", states)
			}
		}},
		{what: "before their jobs arrive", script: store.MoveInScript, check: func(t *testing.T, l partition.Layout) {
			if n := jobsOf(l.Name(1)); n != tenants {
				t.Errorf("the first partition has %d of %d jobs", n, tenants)
			}
		}},
		{what: "before the rest arrives", script: store.MoveWithScript, check: func(t *testing.T, l partition.Layout) {
			if n := client.HLen(ctx, store.Key(l.Name(1), "overrides")).Val(); n != tenants {
				t.Errorf("the first partition has %d of %d overrides", n, tenants)
			}
		}},
		{what: "before the partition is removed", script: store.UnregisterScript, back: true, check: func(*testing.T, partition.Layout) {}},
	} {
		queue := ""
		for queue == "" { // with its partitions on these nodes
			if name := fmt.Sprint("q", number); owner(name) == first && owner((partition.Layout{Queue: name}).Name(2)) == second {
				queue = name
			}
			number++
		}
		t.Run(test.what, func(t *testing.T) {
			l := publish(queue, 1)
			for i := range tenants {
				tenant := fmt.Sprint("t", i)
				job := Job{Kind: "call", Queue: queue, Tenant: tenant, Payload: json.RawMessage(`{}`)}
				if _, err := NewClient(client).Enqueue(within(t, 20*time.Second), job); err != nil {
					t.Fatal(err)
				}
				rate := limits.Change{Burst: new(int64(3))}
				if err := operate.SetOverride(ctx, client, queue, tenant, "tenant", operate.Override{Change: rate, Actor: "ann", Reason: "a test"}); err != nil {
					t.Fatal(err)
				}
			}
			l = publish(queue, 2)
			run := func(hook redis.Hook) (ended chan struct{}) {
				mine := cluster.NewClient(&redis.ClusterOptions{ReadTimeout: quick})
				if hook != nil {
					mine.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
				}
				t.Cleanup(func() { mine.Close() })
				m := mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: mine, Replicated: NewClient(mine).replicas.run, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
				ended = make(chan struct{})
				go func() {
					defer close(ended)
					m.Run(ctx)
				}()
				return ended
			}
			if test.back {
				<-run(nil)
				l = publish(queue, 1)
			}
			paused := make(chan int, 1)
			ended := run(beforeScript(test.script, l.Name(2), func() {
				until(t, "the replica has acknowledged all: that it did so before is no answer", func() bool { return acknowledged(t, second) })
				replica.Pause()
				paused <- redistest.Calls(t, second.Client(), "wait")
			}))
			over := func() bool {
				select {
				case <-ended:
					return true
				default:
					return false
				}
			}
			var before int
			select {
			case before = <-paused:
			case <-ended:
				t.Fatal("the change ends without the script")
			}
			until(t, "a move waits in vain", func() bool { return over() || redistest.Calls(t, second.Client(), "wait") >= before+3 })
			if over() {
				t.Error("the change ends without the replica")
			}
			test.check(t, l)
			replica.Resume()
			<-ended
			n := 0
			for i, home := range l.Names() {
				some := jobsOf(home)
				if n += some; some == 0 && i < l.N {
					t.Errorf("no tenant is in %s", home)
				}
			}
			if now, err := store.ReadLayout(ctx, client, queue); err != nil || now.From != nil || n != tenants {
				t.Errorf("with the replica: %d of %d jobs, %+v, %v", n, tenants, now, err)
			}
		})
	}
}

// acknowledged reports whether the replica of a server has acknowledged all that was written.
func acknowledged(t *testing.T, server *redistest.Server) bool {
	t.Helper()
	info, err := server.Client().InfoMap(t.Context(), "replication").Result()
	if err != nil {
		t.Fatal(err)
	}
	about := info["Replication"]
	return strings.Contains(about["slave0"], ",offset="+about["master_repl_offset"]+",")
}
