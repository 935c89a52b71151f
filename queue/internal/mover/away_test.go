package mover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// away is a hook that refuses all requests to a partition, as if its node did not answer: from the first one on that has
// a word with a prefix, until it is back.
type away struct {
	home, prefix string

	mu         sync.Mutex
	gone, back bool
	attempts   chan struct{} // of movers that began meanwhile, each of which first reads the limits
}

func (a *away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *away) refuse(cmds ...redis.Cmder) error {
	has := func(is func(word string) bool) bool {
		return slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool {
			return slices.ContainsFunc(cmd.Args(), func(word any) bool { return is(fmt.Sprint(word)) })
		})
	}
	if !has(func(word string) bool { return strings.Contains(word, "{"+a.home+"}") }) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = a.gone || has(func(word string) bool { return strings.HasPrefix(word, a.prefix) })
	if !a.gone || a.back {
		return nil
	}
	if has(func(word string) bool { return word == store.Key(a.home, "limits") }) {
		select {
		case a.attempts <- struct{}{}:
		default: // there were enough
		}
	}
	err := errors.New("no answer")
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

func (a *away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := a.refuse(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (a *away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := a.refuse(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// beside moves tenants while a partition is away, calls check once two attempts have ended that began meanwhile, and then
// moves the rest.
func (a *away) beside(t *testing.T, server *redistest.Server, l partition.Layout, check func()) {
	t.Helper()
	client := clientOf(t, server, a)
	a.attempts = make(chan struct{}, 3)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		move(t.Context(), l, "w", client)
	}()
	for range cap(a.attempts) {
		select {
		case <-ended:
			t.Fatal("the change has ended without a partition")
		case <-a.attempts:
		}
	}
	check()
	a.mu.Lock()
	a.back = true
	a.mu.Unlock()
	<-ended
}

// shrinking is how many tenants there are: so many that some move to each partition.
const shrinking = 60

// shrink gives the queue q partitions, and each tenant a job, and then publishes limits with one partition less. It
// returns the escaped tenants of the last partition by where they move.
func shrink(t *testing.T, client redis.UniversalClient, n int) (l partition.Layout, to map[string][]string) {
	t.Helper()
	published(t, client, setOf(n))
	for i := range shrinking {
		if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "call", Tenant: tenant(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if l = published(t, client, setOf(n-1)); l.From == nil {
		t.Fatalf("no tenants move: %+v", l)
	}
	to = map[string][]string{}
	for i := range shrinking {
		if homes := l.Homes(tenant(i)); len(homes) > 1 {
			to[homes[1]] = append(to[homes[1]], rediskey.Escape(tenant(i)))
		}
	}
	if len(to) != n-1 {
		t.Fatalf("tenants move to %d partitions; want %d", len(to), n-1)
	}
	return l, to
}

// shrunk checks that each tenant's job is where the tenant belongs.
func shrunk(t *testing.T, client redis.UniversalClient, l partition.Layout) {
	t.Helper()
	found := 0
	for _, home := range l.Names() {
		for _, key := range redistest.Keys(t, client, asynqwire.Key(home, "t:*")) {
			found++
			lane := client.HGet(t.Context(), key, "group").Val()
			if who := store.Unescape(store.ParseLane(lane).Tenant); l.Home(who) != home {
				t.Errorf("the job of %s is in %s", who, home)
			}
		}
	}
	if found != shrinking {
		t.Errorf("there are %d jobs; want %d", found, shrinking)
	}
}

// heldOf returns which of some escaped tenants a move holds in a partition.
func heldOf(t *testing.T, client redis.UniversalClient, home string, tenants []string) (held []string) {
	t.Helper()
	pauses := client.HGetAll(t.Context(), store.Key(home, "pauses")).Val()
	for _, tenant := range tenants {
		if pauses[store.MoveScope(tenant)] != "" {
			held = append(held, tenant)
		}
	}
	return held
}

// TestNodeAwayWhenTenantsMove: a partition does not answer any more when a round of tenants has stopped, of which some move
// there. All of them are called where they are, until it is back.
func TestNodeAwayWhenTenantsMove(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	l, to := shrink(t, client, 3)
	(&away{home: "q@2", prefix: store.MoveComes}).beside(t, server, l, func() {
		for home, tenants := range to {
			if held := heldOf(t, client, "q@3", tenants); len(held) > 0 {
				t.Errorf("%d of %d tenants that move to %s stand still", len(held), len(tenants), home)
			}
		}
	})
	shrunk(t, client, l)
}

// TestNextMoverBesideANodeAway: a mover was stopped in the middle of a round, and a partition does not answer when the next
// one begins. Tenants that are on their way to another partition arrive, and those that have only stopped go on.
func TestNextMoverBesideANodeAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	l, to := shrink(t, client, 4)
	set := func(from, next string, tenants []string) {
		t.Helper()
		args := []any{"q@4", l.Sum(), from, next}
		for _, tenant := range tenants {
			args = append(args, tenant)
		}
		if reply, err := store.MoveScript.Run(ctx, client, store.ScriptKeys("q@4"), args...); err != nil || len(reply.([]any)) != len(tenants) {
			t.Fatal(reply, err)
		}
	}
	set("", store.MoveStop, slices.Concat(to["q"], to["q@2"], to["q@3"]))
	set(store.MoveStop, store.MoveLeft+"x", slices.Concat(to["q@2"], to["q@3"]))
	(&away{home: "q@3"}).beside(t, server, l, func() {
		states := client.HGetAll(ctx, store.MovesKey("q@4")).Val()
		for home, want := range map[string]string{"q": "", "q@2": store.MoveGone, "q@3": store.MoveLeft + "x"} {
			for _, tenant := range to[home] {
				if states[tenant] != want {
					t.Errorf("%s, which moves to %s, has the state %q; want %q", tenant, home, states[tenant], want)
				}
			}
		}
		if held := heldOf(t, client, "q@4", to["q"]); len(held) > 0 {
			t.Errorf("%q have not left, and stand still", held)
		}
		if held := heldOf(t, client, "q@2", to["q@2"]); len(held) > 0 {
			t.Errorf("%q have arrived, and stand still", held)
		}
	})
	shrunk(t, client, l)
}
