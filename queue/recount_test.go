package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// TestSweepOfManyKinds: however many kinds of jobs wait, a sweep asks a bounded number of lanes for their length. It
// corrects the counts of all tenants within some sweeps, and of too many kinds when they are gone.
func TestSweepOfManyKinds(t *testing.T) {
	t.Parallel()
	const tenants, bound, maxKinds = 40, 6100, 1000
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), -1, limitsOf(), nil)
	client, ctx, c := server.Client(), t.Context(), r.chores()
	lanes := func(name string, n int, do func(pipe redis.Pipeliner, lane string)) {
		t.Helper()
		_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := range n {
				do(pipe, fmt.Sprintf(name, i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait := func(pipe redis.Pipeliner, lane string) { // without a count
		pipe.ZAdd(ctx, asynqwire.Key(r.queue, "g:"+lane), redis.Z{Score: 1, Member: lane})
		pipe.SAdd(ctx, asynqwire.Key(r.queue, "groups"), lane)
	}
	end := func(pipe redis.Pipeliner, lane string) {
		pipe.Del(ctx, asynqwire.Key(r.queue, "g:"+lane))
		pipe.SRem(ctx, asynqwire.Key(r.queue, "groups"), lane)
	}
	sweep := func(times int) {
		t.Helper()
		for range times {
			before := redistest.Calls(t, client, "zcard")
			if err := c.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			if n := redistest.Calls(t, client, "zcard") - before; n > bound {
				t.Fatalf("a sweep asked for %d lengths, at most %d are allowed", n, bound)
			}
		}
	}
	right := func() bool {
		counts := client.HGetAll(ctx, store.TenantsKey(r.queue)).Val()
		for i := range tenants {
			if store.ReadCounts(counts[fmt.Sprint("t", i)]).Waiting != 1 {
				return false
			}
		}
		return true
	}
	lanes("t%d;kind=call", tenants, wait)
	lanes("busy;kind=k%d", 800, wait)
	for n := 0; !right(); n++ {
		if n == 2000 {
			t.Fatal("with 800 kinds, counts are not corrected")
		}
		sweep(1)
	}

	lanes("busy;kind=more%d", 2000, wait)
	sweep(60) // twice the lanes
	client.Del(ctx, store.TenantsKey(r.queue))
	sweep(60)
	if n := client.SCard(ctx, store.Key(r.queue, "kinds")).Val(); n > maxKinds+200 {
		t.Errorf("%d kinds are kept", n)
	}
	lanes("busy;kind=k%d", 800, end)
	lanes("busy;kind=more%d", 2000, end)
	for n := 0; !right(); n++ {
		if n == 200 {
			t.Fatal("counts are not corrected after too many kinds")
		}
		sweep(1)
	}
}

// TestSweepKnowsListedKinds: the sweep counts the jobs of a kind that the limits list, although none of its lanes has been
// in a slice yet.
func TestSweepKnowsListedKinds(t *testing.T) {
	t.Parallel()
	set := limitsOf()
	set.Queues[""] = limits.Queue{Kinds: []string{"call", "new:kind"}}
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), -1, set, nil)
	client, ctx, c := server.Client(), t.Context(), r.chores()
	r.enqueue(t, "a", 1)
	if err := c.Sweep(ctx); err != nil { // then all kinds of the lanes are known
		t.Fatal(err)
	}
	lane := "a;kind=" + rediskey.Escape("new:kind")
	for i := range 3 { // in a later slice
		client.ZAdd(ctx, asynqwire.Key(r.queue, "g:"+lane), redis.Z{Score: 1, Member: i})
	}
	client.HSet(ctx, store.TenantsKey(r.queue), "a", "4 0 4 4", "*", "4 0 4 4")
	if err := c.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if n := store.ReadCounts(client.HGet(ctx, store.TenantsKey(r.queue), "a").Val()).Waiting; n != 4 {
		t.Errorf("%d jobs wait, want 4", n)
	}
}

// TestSweepOfManyEndpoints: the sweep of a tenant looks at some of its lanes in a call, and at all of them in the end.
func TestSweepOfManyEndpoints(t *testing.T) {
	t.Parallel()
	const most = 3000
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), -1, limitsOf(perTenant(100)), nil)
	client, ctx := server.Client(), t.Context()
	pipe := client.Pipeline()
	for i := range most {
		for _, tenant := range []string{"a", "b"} {
			lane := fmt.Sprintf("%s;kind=call;endpoint=e%d", tenant, i)
			pipe.SAdd(ctx, asynqwire.Key(r.queue, "groups"), lane)
			pipe.ZAdd(ctx, asynqwire.Key(r.queue, "g:"+lane), zOf(lane, 1))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	client.ZRange(ctx, store.Key(r.queue, "waiting"), 0, 0) // the count of commands begins with the first
	for cursor, slices := "0", 0; ; {
		before := redistest.Calls(t, client, "zrange")
		next, err := effective.SweepSlice(ctx, client, r.queue, "a", cursor, "", false)
		if err != nil {
			t.Fatal(err)
		}
		slices++
		if n := redistest.Calls(t, client, "zrange") - before; n > 400 {
			t.Errorf("slice %d looks at %d lanes", slices, n)
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	for tenant, want := range map[string]int{"a": most, "b": 0} {
		lanes, n := client.ZRange(ctx, store.Key(r.queue, "waiting"), 0, -1).Val(), 0
		for _, lane := range lanes {
			if strings.HasPrefix(lane, tenant+";") {
				n++
			}
		}
		if n != want {
			t.Errorf("%d lanes of tenant %s wait; want %d", n, tenant, want)
		}
	}
}

// TestSweepAfterLanesChange: a limit with an attribute names lanes otherwise. While lanes with the old names hold jobs after
// it was removed, no count is taken from the others alone, also if the sweep knew all kinds before. Afterwards counts are
// corrected again.
func TestSweepAfterLanesChange(t *testing.T) {
	for _, learned := range []bool{false, true} {
		t.Run(fmt.Sprintf("learned %v", learned), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			r := startRigAt(t, server.Redis(), -1, limitsOf(perTenant(100)), nil)
			client, ctx, c := server.Client(), t.Context(), r.chores()
			sweep := func() {
				t.Helper()
				for range 2 {
					if err := c.Sweep(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			wantWaiting := func(tenant string, want int64) {
				t.Helper()
				if n := store.ReadCounts(client.HGet(ctx, store.TenantsKey(r.queue), tenant).Val()).Waiting; n != want {
					t.Errorf("%d jobs of tenant %s wait, want %d", n, tenant, want)
				}
			}
			if learned {
				r.enqueue(t, "b", 1)
				sweep()
			}
			byDomain := perTenant(100)
			byDomain.Per = []string{"tenant", "domain"}
			r.republish(t, nil, byDomain)
			enqueueAll(t, r.client, slices.Repeat([]Job{{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`),
				Attributes: map[string]string{"domain": "example.com"}}}, 10)...)
			r.republish(t, nil, perTenant(100))
			r.enqueue(t, "a", 1)
			sweep()
			wantWaiting("a", 11)

			lane := "a;domain=example.com;kind=call"
			if n := client.ZCard(ctx, asynqwire.Key(r.queue, "g:"+lane)).Val(); n != 10 {
				t.Fatalf("%d jobs in lane %s of %v", n, lane, client.SMembers(ctx, asynqwire.Key(r.queue, "groups")).Val())
			}
			client.Del(ctx, asynqwire.Key(r.queue, "g:"+lane)) // without a count
			client.SRem(ctx, asynqwire.Key(r.queue, "groups"), lane)
			sweep()
			wantWaiting("a", 1)
		})
	}
}
