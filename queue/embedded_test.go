package queue

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
)

// TestTimedEmbeddedRedis: every script also works on the embedded Redis.
func TestTimedEmbeddedRedis(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		client := redistest.Embedded(t)
		const name, jobs = "embedded", 40
		// Each tenant has different settings, so that all lookups are made.
		always, err := sendwindow.Parse("00:00-24:00 UTC")
		if err != nil {
			t.Fatal(err)
		}
		limits := limits.Set{
			Queues:  map[string]limits.Queue{name: {Limits: []limits.Limit{sharedBy(60), perTenant(40), tokens(10_000, "tenant")}}},
			Tenants: map[string]limits.Tenant{"a": {Weight: 3}, "bad": {SendWindow: always}},
		}
		if err := operate.Publish(t.Context(), client, limits); err != nil {
			t.Fatal(err)
		}
		seen, got := newCounter(), newReceiver(jobs+1)
		worker := newWorker(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{client.Options().Addr}}, Queues: []string{name}, Concurrency: 50, Observer: seen})
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
		stop := runWorker(t, worker)
		seen.wait(t, string(lifecycle.Done), jobs)
		seen.wait(t, string(lifecycle.Archived), 1)
		stop()
		run.Law("account", got.all(), 60, 1)
	})
}

// TestEmbeddedInspector: an Inspector gives the same answers on the embedded Redis as on a
// real one.
func TestEmbeddedInspector(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Embedded(t), t.Context()
	domain := perTenant(5)
	domain.Name, domain.Per = "domain", []string{"tenant", "domain"}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{sharedBy(60), perTenant(10), domain}}}}); err != nil {
		t.Fatal(err)
	}
	redistest.Serve(client, "q", "call")
	var id string
	for i := range 90 {
		job := Job{Kind: "call", Queue: "q", Tenant: "a", Payload: i, Attributes: map[string]string{"domain": []string{"x", "y"}[i%2]}}
		if i%3 == 2 {
			job.In = time.Hour
		}
		receipt, err := NewClient(client).Enqueue(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 != 2 {
			id = receipt.ID
		}
	}
	inspector := inspect.New(client)
	for range 2 {
		if e, err := inspector.Explain(ctx, "q", id); err != nil || e.State != lifecycle.StateWaiting || e.TenantPosition != 59 || e.At.IsZero() {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if o, err := inspector.Overview(ctx, "q"); err != nil || o.Waiting != 60 || o.Scheduled != 30 || o.Tenants != 1 || o.Allowed != 10 {
		t.Errorf("%+v, %v", o, err)
	}
	if page, err := inspector.ListTenants(ctx, "q", inspect.TenantQuery{Search: "A"}); err != nil || page.Total != 1 || page.Tenants[0].Waiting != 60 {
		t.Errorf("%+v, %v", page, err)
	}
	if d, err := inspector.Tenant(ctx, "q", "a"); err != nil || len(d.Slots) != inspect.MaxSlots || len(d.Limits) != 3 {
		t.Errorf("%+v, %v", d, err)
	}
	for state, want := range map[lifecycle.State]int{lifecycle.StateWaiting: 60, lifecycle.StateScheduled: 30, lifecycle.StateRetry: 0, lifecycle.StatePending: 0, lifecycle.StateActive: 0, lifecycle.StateArchived: 0} {
		if got := everyJob(t, inspector, "q", inspect.JobQuery{State: state, Tenant: "a", Limit: 7}, nil); len(got) != want {
			t.Errorf("%s: %d, want %d", state, len(got), want)
		}
	}
	if _, err := operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{State: lifecycle.StateScheduled}, operate.Operator{Actor: "ann", Reason: "a test"}, nil); err != nil {
		t.Fatal(err)
	}
	if groups, err := inspector.Failures(ctx, "q", ""); err != nil || len(groups) != 1 || groups[0].Jobs != 30 || groups[0].Outcome != lifecycle.Cancelled {
		t.Errorf("%+v, %v", groups, err)
	}
	if tally, err := operate.Apply(ctx, client, "q", operate.DeleteArchived, operate.Filter{Reason: "cancelled by ann"}, operate.Operator{Actor: "ann", Reason: "a test"}, nil); err != nil || tally.Jobs != 30 {
		t.Errorf("%+v, %v", tally, err)
	}
}
