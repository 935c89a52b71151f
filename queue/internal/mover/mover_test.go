package mover_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestMoveBesideAnotherMover: a worker is stopped in the middle of a change, another one ends it, and the first one
// goes on. It changes nothing any more, also if the queue has changed again meanwhile.
func TestMoveBesideAnotherMover(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	fill(t, server, 2)
	was := content(t, client, partition.Layout{Queue: "q", N: 2})
	run := func(hook redis.Hook, worker string) {
		l, err := store.ReadLayout(ctx, client, "q")
		if err != nil {
			t.Fatal(err)
		}
		if l.From == nil {
			return
		}
		move(ctx, l, worker, clientOf(t, server, hook))
	}
	publish := func(n int) { published(t, client, setOf(n)) }
	step := testlong.Of(13, 1) // odd, so that both cases below have their turn
	for at := 1; ; at += step {
		publish(3)
		first := &held{left: at, reached: make(chan struct{}), goOn: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run(first, "first")
		}()
		select {
		case <-first.reached:
		case <-ended:
			if at < 100 {
				t.Fatalf("a change is only %d requests", at)
			}
			return
		}
		client.Del(ctx, store.Key("q", "mover")) // its role expired
		run(nil, "second")
		if at%2 == 0 { // it goes on during the next change, whose end it does not wait for
			publish(2)
			second := &held{left: at / 2, reached: make(chan struct{}), goOn: make(chan struct{})}
			done := make(chan struct{})
			go func() {
				defer close(done)
				run(second, "third")
			}()
			select {
			case <-second.reached:
				close(first.goOn)
				<-ended
				close(second.goOn)
			case <-done:
				close(first.goOn)
				<-ended
			}
			client.Del(ctx, store.Key("q", "mover"))
			<-done
			run(nil, "fourth")
		} else {
			close(first.goOn)
			<-ended
			publish(2)
			run(nil, "third")
		}
		if text := differences(was, content(t, client, partition.Layout{Queue: "q", N: 2})); text != "" {
			t.Fatalf("stopped at request %d:\n%s", at, text)
		}
	}
}

// TestMove: after a change of the partitions, however often who moves the tenants is stopped in the middle, and
// publishes the same limits when it starts again, each tenant has all that it had, in one partition.
func TestMove(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	n := 2
	fill(t, server, n)
	was := content(t, client, partition.Layout{Queue: "q", N: n})
	if len(was) < 10*tenants {
		t.Fatalf("only %d things", len(was))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, next := range []int{5, 3, 1, 4, 2} {
		// Of a round that was interrupted at its beginning, and of whose tenant nothing is left.
		l := published(t, client, setOf(next))
		if _, err := store.MoveScript.Run(ctx, client, store.ScriptKeys("q"), "q", l.Sum(), "", store.MoveStop, "nobody"); err != nil {
			t.Fatal(err)
		}
		stops := 0
		for ; ; stops++ {
			if l = published(t, client, setOf(next)); l.From == nil {
				break
			}
			running, end := context.WithCancel(ctx)
			other := clientOf(t, server, &cut{left: 1 + random.IntN(20+stops), arrives: random.IntN(2) > 0, end: end})
			move(running, l, fmt.Sprint("w", stops), other)
			end()
			client.Del(ctx, store.Key("q", "mover")) // its role ends
		}
		l = partition.Layout{Queue: "q", N: next}
		is := content(t, client, l)
		for _, home := range l.Names() { // new partitions have the pause of the kind, too
			if is[home+" k:call"] == "" {
				t.Errorf("%s lacks the pause of the kind", home)
			}
			delete(is, home+" k:call")
		}
		maps.DeleteFunc(was, func(name, _ string) bool { return strings.HasSuffix(name, " k:call") })
		if text := differences(was, is); text != "" {
			t.Fatalf("from %d to %d, with %d stops:\n%s", n, next, stops, text)
		}
		t.Logf("from %d to %d, with %d stops", n, next, stops)
		for _, home := range l.Names() {
			if !client.SIsMember(ctx, asynqwire.Queues, home).Val() {
				t.Errorf("%s is not listed", home)
			}
		}
		if listed := client.SMembers(ctx, asynqwire.Queues).Val(); len(listed) != next {
			t.Errorf("listed: %v", listed)
		}
		n = next
	}
}

// TestLostLimits: partitions that lose their limits do not end a change, nor does the removal of a queue whose jobs
// are on their way. When they are published again, it goes on.
func TestLostLimits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	fill(t, server, 4)
	was := content(t, client, partition.Layout{Queue: "q", N: 4})
	l := published(t, client, setOf(2))
	client.Del(ctx, store.Key("q@4", "limits"))
	short, end := context.WithTimeout(ctx, 200*time.Millisecond)
	defer end()
	move(short, l, "w", client)
	if now, err := store.ReadLayout(ctx, client, "q"); err != nil || now.From == nil {
		t.Errorf("without the limits of q@4 the change has ended: %+v, %v", now, err)
	}
	published(t, client, setOf(2))
	move(ctx, l, "w", client)
	is := content(t, client, partition.Layout{Queue: "q", N: 2})
	for _, all := range []map[string]string{was, is} {
		maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasSuffix(name, " k:call") })
	}
	if text := differences(was, is); text != "" {
		t.Error(text)
	}

	client.HSet(ctx, store.Key("left", "leaving"), "id", "lane 1 0")
	client.SAdd(ctx, asynqwire.Queues, "left")
	if err := operate.Unregister(ctx, client, "left", operate.Operator{Actor: "ann", Reason: "a test"}); err == nil || !strings.Contains(err.Error(), "has jobs, 1 of them") {
		t.Errorf("a queue whose job is on its way was removed: %v", err)
	}
}

// TestWorkerMayMove: the user of workers in docs/redis.acl may do all that a change needs.
func TestWorkerMayMove(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	fill(t, server, 2)
	published(t, client, setOf(1))
	text, err := os.ReadFile("../../../docs/redis.acl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "user" || words[1] != "worker" {
			continue
		}
		rules := []any{"ACL", "SETUSER", "worker", ">secret"}
		for _, word := range words[2:] {
			rules = append(rules, word)
		}
		if err := client.Do(ctx, rules...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	options := server.Options()
	options.Username, options.Password = "worker", "secret"
	worker := redisclient.New(options)
	defer worker.Close()
	l, err := store.ReadLayout(ctx, worker, "q")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	limited, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	m := mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: worker, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	m.Run(limited)
	if now, err := store.ReadLayout(ctx, client, "q"); err != nil || now.From != nil {
		t.Errorf("%+v, %v: %s", now, err, log.String())
	}
	// Who knows the queue from before finds the tenant.
	if home, now, err := store.HomeOf(ctx, client, l, tenant(0)); err != nil || home != "q" || now.From != nil {
		t.Errorf("%s, %+v, %v", home, now, err)
	}
}

// BenchmarkMove moves 20,000 waiting jobs (1,000 with -short) of 100 tenants.
func BenchmarkMove(b *testing.B) {
	const tenants = 100
	jobs := 20_000
	if testing.Short() {
		jobs = 1000
	}
	server := redistest.Start(b)
	client, ctx := server.Client(), b.Context()
	publish := func(i int) partition.Layout {
		b.Helper()
		set := limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: 2}}, Tenants: map[string]limits.Tenant{}}
		for tenant := range tenants {
			set.Tenants[fmt.Sprint("t", tenant)] = limits.Tenant{Partition: 1 + i%2}
		}
		return published(b, client, set)
	}
	publish(0)
	var all []queue.Job
	for i := range jobs {
		all = append(all, queue.Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i%tenants), Payload: i})
	}
	for _, result := range queue.NewClient(client).EnqueueMany(ctx, all) {
		if result.Err != nil {
			b.Fatal(result.Err)
		}
	}
	i := 0
	for b.Loop() {
		i++
		move(ctx, publish(i), "w", client)
	}
	b.ReportMetric(float64(b.N*jobs)/b.Elapsed().Seconds(), "jobs/s")
}

// TestLateRequests: what a worker sends that was stopped in an attempt to move a tenant, or in an earlier change,
// changes nothing.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	published(t, client, setOf(1))
	published(t, client, setOf(2))
	sum := client.HGet(ctx, store.Key("q", "limits"), store.SumField).Val()
	message := string(asynqwire.Encode("q@2", "id", "call", nil, nil, 0))
	request := map[string]func() (any, error){
		"move": func() (any, error) {
			return store.MoveScript.Run(ctx, client, store.ScriptKeys("q"), "q", "~earlier", "", store.MoveStop, "other")
		},
		"move_in": func() (any, error) {
			return store.MoveInScript.Run(ctx, client, store.ScriptKeys("q"), "q", "token", "id", "t", "scheduled 1 0", 4, "msg", message, "group", "t")
		},
		"move_with": func() (any, error) {
			return store.MoveWithScript.Run(ctx, client, store.ScriptKeys("q"), "q", "t", "comes token", 3, "SET", "b:tenant:t", "used")
		},
		"move_done": func() (any, error) {
			return store.MoveDoneScript.Run(ctx, client, store.ScriptKeys("q"), "q", "token", "gone", "t")
		},
	}
	client.HSet(ctx, store.Key("q", "leaving"), "gone", "lane 1 0")
	client.HSet(ctx, asynqwire.Key("q", "t:gone"), "msg", message)
	dump := func() string {
		var all []string
		for _, key := range redistest.Keys(t, client, "*{q}*") {
			all = append(all, key+" "+client.Dump(ctx, key).Val())
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	for _, state := range []string{"", "stop", "left other", "gone", "comes other", "here"} {
		if client.HDel(ctx, store.MovesKey("q"), "t"); state != "" {
			client.HSet(ctx, store.MovesKey("q"), "t", state)
		}
		before := dump()
		for name, send := range request {
			if reply, err := send(); err != nil || dump() != before {
				t.Errorf("%s while the tenant is %q: %v, %v; it changed something", name, state, reply, err)
				return
			}
		}
	}
	for _, state := range []string{"left x", "gone"} {
		client.HSet(ctx, store.MovesKey("q"), "t", state)
		before := dump()
		reply, err := store.PauseScript.Run(ctx, client, store.ScriptKeys("q"), "q", "t", store.Endless, "ann: a test", "{}", "", "program")
		if err != nil || fmt.Sprint(reply) != "[  1]" || dump() != before {
			t.Errorf("a pause of a tenant that has %s: %v, %v", state, reply, err)
		}
	}
	for name, state := range map[string]string{"move_in": "comes token", "move_with": "comes token", "move_done": "left token"} {
		client.HSet(ctx, store.MovesKey("q"), "t", state)
		before := dump()
		if reply, err := request[name](); err != nil || dump() == before {
			t.Errorf("%s in time: %v, %v; it changed nothing", name, reply, err)
		}
	}
	if reply, err := store.MoveScript.Run(ctx, client, store.ScriptKeys("q"), "q", sum, "", store.MoveStop, "other"); err != nil || fmt.Sprint(reply) != "[other]" {
		t.Errorf("move in time: %v, %v", reply, err)
	}
	// Calls of the tenant last too long, so it goes on where it is.
	reply, err := store.MoveScript.Run(ctx, client, store.ScriptKeys("q"), "q", sum, store.MoveStop, "", "other")
	if n := client.HExists(ctx, store.Key("q", "pauses"), "m:other").Val(); err != nil || fmt.Sprint(reply) != "[other]" || n || client.HExists(ctx, store.MovesKey("q"), "other").Val() {
		t.Errorf("a tenant that does not move yet: %v, %v; paused: %v", reply, err, n)
	}
}
