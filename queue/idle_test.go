package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
)

// TestDispatcherRests: a worker that leads one of many partitions only asks whether there is something to dispatch, until
// there is, and goes on to lead.
func TestDispatcherRests(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client, ctx := r.server.Client(), t.Context()
	d, seen := r.named("w")
	d.idles, d.poll = true, time.Second
	in := func(key string, member string) func() {
		return func() { client.ZAdd(ctx, asynqwire.Key(r.queue, key), redis.Z{Score: 1e10, Member: member}) }
	}
	active := asynqwire.Key(r.queue, "active")
	for _, c := range []struct {
		what  string
		do    func()
		rests bool
	}{
		{"nothing to do", func() {}, true},
		{"its lead ends soon", func() { client.PExpire(ctx, d.role(), leadLasts/2) }, true},
		{"a scheduled job", in("scheduled", "id"), false},
		{"a job that is tried again", in("retry", "id"), false},
		{"a call under way", func() { client.LPush(ctx, active, "id") }, false},
		{"the lead is damaged", func() {
			client.Del(ctx, d.role())
			client.LPush(ctx, d.role(), "w")
		}, false},
		{"it has rested for long", func() { d.restsSince -= longestRest + time.Second }, false},
		{"a job", func() { r.enqueue(t, "a", 1) }, false},
	} {
		for _, set := range []string{"scheduled", "retry", "active"} {
			client.Del(ctx, asynqwire.Key(r.queue, set))
		}
		d.restsSince = 0
		before := r.looks(t, d, seen)
		if r.looks(t, d, seen) != before {
			t.Fatalf("before %s: it does not rest", c.what)
		}
		c.do()
		if rests := r.looks(t, d, seen) == before; rests != c.rests {
			t.Errorf("%s: it rests: %t", c.what, rests)
		}
		if left := client.PTTL(ctx, d.role()).Val(); c.rests && left < leadLasts*3/4 {
			t.Errorf("%s: it leads for another %v", c.what, left)
		}
	}
	if n := client.LLen(ctx, active).Val(); n != 1 {
		t.Errorf("%d calls; want that of the job", n)
	}
	client.Set(ctx, d.role(), "another", leadLasts)
	client.Del(ctx, active)
	d.restsSince = boottime.Now()
	if before := seen.outcomes("round"); r.looks(t, d, seen) != before+1 || !d.stands.Load() || d.restsSince != 0 {
		t.Error("it rests though another one leads")
	}
}

// TestWatchOfAnIdleQueue: the worker that watches a queue learns whether any call is under way, which a dead worker may
// have left behind.
func TestWatchOfAnIdleQueue(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client, ctx := r.server.Client(), t.Context()
	watcher := recoverer{queue: r.queue, of: partition.Layout{Queue: r.queue, N: 1}, worker: "w", redis: client}
	for _, c := range []struct {
		what string
		do   func()
		idle bool
	}{
		{"no calls", func() {}, true},
		{"a call without a lease", func() { client.LPush(ctx, asynqwire.Key(r.queue, "active"), "id") }, false},
		{"its end", func() { client.Del(ctx, asynqwire.Key(r.queue, "active")) }, true},
		{"a lease", func() { client.ZAdd(ctx, asynqwire.Key(r.queue, "lease"), redis.Z{Score: 1, Member: "id"}) }, false},
	} {
		c.do()
		if left, idle, err := watcher.watch(ctx); left != 0 || idle != c.idle || err != nil {
			t.Errorf("with %s: %v, idle %t, %v", c.what, left, idle, err)
		}
	}
	watcher.worker = "another"
	client.Del(ctx, asynqwire.Key(r.queue, "lease"))
	if left, idle, err := watcher.watch(ctx); left <= 0 || idle || err != nil {
		t.Errorf("of another worker: %v, idle %t, %v", left, idle, err)
	}
}
