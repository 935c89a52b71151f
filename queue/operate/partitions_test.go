package operate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestPartitionsChange: limits with other partitions are published with those from which tenants move, to all
// partitions of both. Until the tenants have moved, there is no other change.
func TestPartitionsChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	by := Operator{Actor: "ann", Reason: "a test"}
	set := func(n, pin int) limits.Set {
		s := limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, MaxBacklog: 7}}, Tenants: map[string]limits.Tenant{}}
		if pin > 0 {
			s.Tenants["acme"] = limits.Tenant{Partition: pin}
		}
		return s
	}
	layout := func(n, pin int, from *partition.Layout) partition.Layout {
		l := partition.Layout{Queue: "q", N: n, From: from}
		if pin > 0 {
			l.Pins = map[string]int{"acme": pin}
		}
		return l
	}
	layoutIs := func(what string, want partition.Layout) {
		t.Helper()
		names := want.Names()
		for i := range 9 {
			name := want.Name(i + 1)
			fields := store.Texts(client.HMGet(ctx, store.Key(name, "limits"), "*", store.PinsField).Val())
			l, err := store.LayoutOf("q", fields[0], fields[1])
			if i < len(names) && (err != nil || !l.Equal(want)) || i >= len(names) && fields[0] != "" {
				t.Errorf("%s: %s has %+v, %v; want %+v", what, name, l, err, want)
			}
			if there := client.SIsMember(ctx, asynqwire.Queues, name).Val(); there != (i < len(names)) {
				t.Errorf("%s: %s is listed: %v", what, name, there)
			}
			if sum := client.HGet(ctx, store.Key(name, "limits"), store.SumField).Val(); i < len(names) && sum != want.Sum() {
				t.Errorf("%s: %s has the sum %q; want %q", what, name, sum, want.Sum())
			}
		}
	}
	publish := func(what string, n, pin int, want string) {
		t.Helper()
		err := Publish(ctx, client, set(n, pin))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	four := layout(4, 2, nil)
	publish("new", 4, 2, "")
	layoutIs("new", four)
	publish("the same", 4, 2, "")
	layoutIs("the same", four)
	for _, to := range []struct{ n, pin int }{{8, 2}, {1, 0}, {4, 3}, {4, 0}} {
		if got, err := Compare(ctx, client, set(to.n, to.pin)); err != nil || got[0].Equal() {
			t.Errorf("%+v: %+v, %v", to, got, err)
		}
		publish(fmt.Sprint(to), to.n, to.pin, "")
		layoutIs(fmt.Sprint(to), layout(to.n, to.pin, &four))
		publish(fmt.Sprint(to, " again"), to.n, to.pin, "")
		layoutIs(fmt.Sprint(to, " again"), layout(to.n, to.pin, &four))
		publish("another change", 3, 2, fmt.Sprintf("queues.q.partitions: the tenants of the queue are on their way from 4 to %d partitions: wait", to.n))
		publish("back", 4, 2, "queues.q.partitions: the tenants of the queue are on their way")
		layoutIs(fmt.Sprint(to, " after others"), layout(to.n, to.pin, &four))
		if got, err := Compare(ctx, client, set(to.n, to.pin)); err != nil || !got[0].Equal() {
			t.Errorf("as published: %+v, %v", got, err)
		}
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		publish("new again", 4, 2, "")
	}
	back, err := Published(ctx, client, "q")
	if err != nil || back.Queues["q"].Partitions != 4 || back.Tenants["acme"].Partition != 2 || back.Queues["q"].MaxBacklog != 7 {
		t.Errorf("published: %+v, %v", back, err)
	}

	// While tenants come from several partitions to one, they share limits as before.
	account := limits.Limit{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 1}
	log := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.PerSecond(10)}
	for _, c := range []struct {
		n      int
		limits []limits.Limit
		leased bool
		want   string
	}{
		{1, []limits.Limit{account, log}, false, ""},
		{1, []limits.Limit{account}, false, ""},
		{2, []limits.Limit{account}, true, ""},
		{1, []limits.Limit{account}, true, "queues.shared.partitions: the tenants of the queue are on their way from 1 to 2"},
		{0, nil, true, ""}, // they have arrived
		{1, []limits.Limit{account, log}, true, "queues.shared.partitions: 1: its tenants come from 2 partitions, and until all have arrived its limits must be such as partitions can have (queues.shared.limits[1].per: "},
		{1, []limits.Limit{account}, true, ""},
		{1, []limits.Limit{account, log}, true, "queues.shared.partitions: 1: its tenants come from 2 partitions"},
	} {
		key := store.Key("shared", "limits")
		if c.n == 0 {
			for _, home := range []string{"shared", "shared@2"} {
				text := client.HGet(ctx, store.Key(home, "limits"), "*").Val()
				client.HSet(ctx, store.Key(home, "limits"), "*", strings.Replace(text, `,"from":{"partitions":1}`, "", 1))
			}
			continue
		}
		err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"shared": {Partitions: c.n, Limits: c.limits}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if text := client.HGet(ctx, key, "*").Val(); strings.Contains(text, `"leased":true`) != c.leased {
			t.Errorf("%+v: %s", c, text)
		}
	}

	// One partition loses its limits: that is noticed, and publishing puts them back.
	before, err := Changes(ctx, client, "q")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"q@3", "q"} {
		client.Del(ctx, store.Key(name, "limits"), store.Key(name, "totals"))
		if after, err := Changes(ctx, client, "q"); err != nil || after["q"] == before["q"] {
			t.Errorf("without the limits of %s: %v changes, %v; before %v", name, after, err, before)
		}
		if got, err := Compare(ctx, client, set(4, 2)); err != nil || !got[0].New {
			t.Errorf("without the limits of %s: %+v, %v", name, got, err)
		}
		publish("without the limits of "+name, 4, 2, "")
		layoutIs("again", four)
	}

	// acme is in the second partition, so the first one is empty.
	if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: "q", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	if err := Unregister(ctx, client, "q", by); err == nil || !strings.Contains(err.Error(), `"q" has jobs, 1 of them`) {
		t.Errorf("a queue with a job was removed: %v", err)
	}
	layoutIs("not removed", four)
	for _, verb := range []Verb{Cancel, DeleteArchived} {
		if tally, err := Apply(ctx, client, "q", verb, Filter{}, by, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%s: %+v, %v", verb, tally, err)
		}
	}
	client.Del(ctx, store.Key("q", "limits")) // as after a removal that was interrupted at its end
	if err := Unregister(ctx, client, "q", by); err != nil {
		t.Fatal(err)
	}
	if left := client.SMembers(ctx, asynqwire.Queues).Val(); len(left) > 2 { // those of "shared"
		t.Errorf("left: %v", left)
	}
	publish("after the removal", 8, 3, "")
	layoutIs("after the removal", layout(8, 3, nil))

	// A queue without limits, in which tenants have jobs already, is an undivided one.
	if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: "old", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	if err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"old": {Partitions: 2}}}); err != nil {
		t.Fatal(err)
	}
	if l, err := store.ReadLayout(ctx, client, "old"); err != nil || l.N != 2 || l.From == nil || l.From.N != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
