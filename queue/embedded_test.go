package queue

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/law"
	"github.com/headgate/headgate/internal/redistest"
)

// TestEmbeddedRedis: every script also works on the Redis that needs no install.
func TestEmbeddedRedis(t *testing.T) {
	client := redistest.Embedded(t)
	stalled, stop := law.WatchStalls()
	defer stop()
	const name, jobs = "embedded", 40
	// The tenants differ, each in its own way, so that all that is looked up is.
	always, err := ParseSendWindow("00:00-24:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{
		Queues:  map[string]QueueLimits{name: {Limits: []Limit{sharedBy(60), perTenant(40), tokens(10_000, "tenant")}}},
		Tenants: map[string]TenantLimits{"a": {Weight: 3}, "bad": {SendWindow: always}},
	}
	if err := Publish(t.Context(), client, limits); err != nil {
		t.Fatal(err)
	}
	seen, got := newCounter(), newReceiver(jobs+1)
	worker, err := New(Config{Redis: &redis.UniversalOptions{Addrs: []string{client.Options().Addr}}, Queues: []string{name}, Concurrency: 50, Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	Handle(worker, "call", func(ctx context.Context, _ struct{}) error {
		got.take(ctx)
		job, _ := Current(ctx)
		if job.Tenant == "bad" {
			return permanent{}
		}
		return nil
	})
	enqueue := NewClient(client)
	for i := range jobs {
		job := Job{Kind: "call", Queue: name, Tenant: []string{"a", "b"}[i%2], Payload: struct{}{}, Costs: map[string]int64{"tokens": 10}}
		job.Priority = []Priority{Low, Normal, High}[i/2%3]
		if i%10 == 0 {
			job.In = time.Second
		}
		if _, err := enqueue.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := enqueue.Enqueue(t.Context(), Job{Kind: "call", Queue: name, Tenant: "bad", Payload: struct{}{}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	seen.wait(t, string(Done), jobs)
	seen.wait(t, string(Archived), 1)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := law.Check(got.all(), 60, 1, 5*time.Millisecond+stalled()); err != nil {
		t.Error(err)
	}
}
