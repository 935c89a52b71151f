package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// BenchmarkExplain explains jobs deep in a backlog of 100,000 jobs of 1,000 tenants (of 100
// with -short). Every tenth tenant has limits of its own.
func BenchmarkExplain(b *testing.B) {
	const each = 100
	tenants := waitingJobs() / each
	server := redistest.Start(b)
	client := server.Client()
	daily := windowOf("daily", 10_000, 24*time.Hour, "tenant")
	set := limits.Set{
		Queues:  map[string]limits.Queue{"q": {Limits: []limits.Limit{sharedBy(300), perTenant(10), daily}}},
		Tenants: map[string]limits.Tenant{},
	}
	for i := range tenants / 10 {
		rate := throttle.PerSecond(int64(20 + i))
		set.Tenants[fmt.Sprintf("tenant-%d", 10*i)] = limits.Tenant{Weight: float64(1 + i%3), Limits: map[string]map[string]limits.Change{"q": {"tenant": {Rate: &rate}}}}
	}
	if err := operate.Publish(b.Context(), client, set); err != nil {
		b.Fatal(err)
	}
	redistest.Serve(client, "q", "call")
	enqueue := NewClient(client)
	var ids []string
	for i := range tenants {
		job := Job{Kind: "call", Queue: "q", Tenant: fmt.Sprintf("tenant-%d", i), Payload: json.RawMessage(`{}`)}
		all := enqueueAll(b, enqueue, slices.Repeat([]Job{job}, each+i%50)...)
		ids = append(ids, all[len(all)/2])
	}
	// Every tenant has used a different part of its day and of its burst.
	now := time.Now().UnixMicro()
	day := (24 * time.Hour).Microseconds()
	for i := range tenants {
		start, tenant := now-now%day, fmt.Sprintf("tenant-%d", i)
		used, owed := i*7919%10_000, int64(i*104_729%1_000_000)
		bucket := func(name, text string) {
			if err := client.Set(b.Context(), store.Key("q", "b:"+name+":"+tenant), text, time.Hour).Err(); err != nil {
				b.Fatal(err)
			}
		}
		bucket("daily", fmt.Sprintf("f %d %d %d %d %d", start, start+day, used, now, now))
		bucket("tenant", fmt.Sprintf("r %d 0 100000 1 %d %d 0", now+owed, now, now))
	}
	inspector := inspect.New(client)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		e, err := inspector.Explain(b.Context(), "q", ids[len(took)*7%len(ids)])
		if err != nil || e.At.IsZero() {
			b.Fatalf("%+v, %v", e, err)
		}
		took = append(took, time.Since(began))
	}
	// A single question, as from the command line, reads everything.
	var cold []time.Duration
	for i := range min(len(took), 50) {
		began := time.Now()
		if _, err := inspect.New(client).Explain(b.Context(), "q", ids[i*7%len(ids)]); err != nil {
			b.Fatal(err)
		}
		cold = append(cold, time.Since(began))
	}
	slices.Sort(cold)
	b.ReportMetric(float64(cold[len(cold)/2].Microseconds())/1000, "cold-p50-ms")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
