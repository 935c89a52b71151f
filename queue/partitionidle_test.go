package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestSoonIsAnnounced: a job is announced if its dispatcher might look too late for it by itself, and not
// otherwise.
func TestSoonIsAnnounced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	wakes := client.Subscribe(ctx, store.WakeChannel("q"))
	defer wakes.Close()
	if _, err := wakes.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	producer := NewClient(client)
	for _, in := range []time.Duration{time.Hour, 2 * time.Second} {
		if _, err := producer.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: "a", In: in}); err != nil {
			t.Fatal(err)
		}
		if err := client.Publish(ctx, store.WakeChannel("q"), in.String()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"1h0m0s", "", "2s"} {
		if message, err := wakes.ReceiveMessage(ctx); err != nil || message.Payload != want {
			t.Fatalf("announced: %v, %v; want %q", message, err, want)
		}
	}
}

// TestRetryWakesOneOfMany: the dispatcher of one of many partitions rarely looks by itself, so a job that
// is tried again wakes it.
func TestRetryWakesOneOfMany(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, manyPartitions: 1} {
		r := startRig(t, -1, limitsOf(), nil)
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		woken := 0
		g := &gate{
			queue: r.queue, of: partition.Layout{Queue: r.queue, N: n}, redis: r.server.Client(),
			limits: &effective.Calendars{Queue: r.queue, Redis: r.server.Client()}, onWake: func() { woken++ },
		}
		settled, err := g.sendSettle([]settleQuestion{{id: id, owner: "w:1", tenant: "a", kind: "call", outcome: settleFree, to: "retry 1000000 1"}})
		if err != nil || !settled[0].mine || woken != want {
			t.Errorf("%d partitions: %v, %v, woken %d times; want %d", n, settled, err, woken, want)
		}
	}
}
