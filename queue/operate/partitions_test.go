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
)

// TestPartitionsAreFixed: the partitions of a queue, and those of its tenants, change only when the queue
// was taken out of Redis, which is refused while a partition has jobs and can be repeated if it stops.
func TestPartitionsAreFixed(t *testing.T) {
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
	layoutIs := func(what string, n, pin int) {
		t.Helper()
		l, err := store.ReadLayout(ctx, client, "q")
		if err != nil || l.N != n || l.Pins["acme"] != pin {
			t.Errorf("%s: %+v, %v; want %d partitions and acme in %d", what, l, err, n, pin)
		}
		for i := range max(n, 9) {
			name := partition.Layout{Queue: "q", N: n}.Name(i + 1)
			if there := client.Exists(ctx, store.Key(name, "limits")).Val() == 1; there != (i < n) {
				t.Errorf("%s: %s has limits: %v", what, name, there)
			}
			if there := client.SIsMember(ctx, asynqwire.Queues, name).Val(); there != (i < n) {
				t.Errorf("%s: %s is listed: %v", what, name, there)
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
	publish("new", 4, 2, "")
	layoutIs("new", 4, 2)
	publish("the same", 4, 2, "")
	publish("more", 8, 2, "queues.q.partitions: 8: the queue is in Redis with 4: keep it, or stop")
	publish("one", 1, 0, "queues.q.partitions: 1: the queue is in Redis with 4")
	publish("another pin", 4, 3, "tenants.acme.partition: it differs from that of queue q in Redis: keep it")
	publish("no pin", 4, 0, "tenants.acme.partition: it differs")
	layoutIs("refused", 4, 2)

	if got, err := Compare(ctx, client, set(4, 2)); err != nil || !got[0].Equal() {
		t.Errorf("as published: %+v, %v", got, err)
	}
	if got, err := Compare(ctx, client, set(8, 3)); err != nil || fmt.Sprint(got[0].Before, got[0].After) != "map[acme: partition:2 partitions:4] map[acme: partition:3 partitions:8]" {
		t.Errorf("others: %+v, %v", got, err)
	}
	back, err := Published(ctx, client, "q")
	if err != nil || back.Queues["q"].Partitions != 4 || back.Tenants["acme"].Partition != 2 || back.Queues["q"].MaxBacklog != 7 {
		t.Errorf("published: %+v, %v", back, err)
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
		publish("without the limits of "+name+", others", 3, 2, "queues.q.partitions: 3")
		publish("without the limits of "+name, 4, 2, "")
		layoutIs("again", 4, 2)
	}

	// acme is in the second partition, so the first one is empty.
	if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: "q", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	if err := Unregister(ctx, client, "q", by); err == nil || !strings.Contains(err.Error(), `"q" has jobs, 1 of them`) {
		t.Errorf("a queue with a job was removed: %v", err)
	}
	layoutIs("not removed", 4, 2)
	for _, verb := range []Verb{Cancel, DeleteArchived} {
		if tally, err := Apply(ctx, client, "q", verb, Filter{}, by, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%s: %+v, %v", verb, tally, err)
		}
	}
	client.Del(ctx, store.Key("q", "limits")) // as after a removal that was interrupted at its end
	if err := Unregister(ctx, client, "q", by); err != nil {
		t.Fatal(err)
	}
	if left := client.SMembers(ctx, asynqwire.Queues).Val(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	publish("after the removal", 8, 3, "")
	layoutIs("after the removal", 8, 3)

	// A queue without limits, in which tenants have jobs already.
	if _, err := queue.NewClient(client).Enqueue(ctx, queue.Job{Kind: "call", Queue: "old", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	err = Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"old": {Partitions: 2}}})
	if err == nil || !strings.Contains(err.Error(), "queues.old.partitions: 2: the queue has jobs, and no limits that spread its tenants") {
		t.Errorf("a queue with jobs was divided: %v", err)
	}
}
