package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// backlog enqueues jobs of several tenants in a new queue with shared limits and limits per
// tenant.
func backlog(t testing.TB, server *redistest.Redis, queue string, jobs, tenants, payload int) {
	t.Helper()
	limits := limits.Set{Queues: map[string]limits.Queue{queue: {Limits: []limits.Limit{sharedBy(2000), perTenant(5)}}}}
	if err := operate.Publish(t.Context(), server.Client(), limits); err != nil {
		t.Fatal(err)
	}
	client := NewClient(server.Client())
	body := json.RawMessage(`"` + strings.Repeat("x", payload-2) + `"`)
	batch := make([]Job, 0, 1000)
	for i := range jobs {
		batch = append(batch, Job{Kind: "call", Queue: queue, Tenant: fmt.Sprintf("tenant-%04d", i%tenants), Payload: body})
		if len(batch) == cap(batch) || i == jobs-1 {
			enqueueAll(t, client, batch...)
			batch = batch[:0]
		}
	}
}

// TestMemoryOfAWaitingJob: a job that waits takes at most 850 bytes of Redis
// beside its payload.
func TestMemoryOfAWaitingJob(t *testing.T) {
	redistest.Slow(t)
	const jobs, tenants, payload, most = 20_000, 200, 400, 850
	server := redistest.Start(t)
	used := func() int64 {
		info, err := server.Client().InfoMap(t.Context(), "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		var total, clients int64
		if _, err := fmt.Sscan(info["Memory"]["used_memory"], &total); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(info["Memory"]["mem_clients_normal"], &clients); err != nil {
			t.Fatal(err)
		}
		return total - clients
	}
	before := used()
	backlog(t, server.Redis(), redistest.Queue(t), jobs, tenants, payload)
	each := float64(used()-before)/jobs - payload
	t.Logf("%.0f bytes for a waiting job, beside a payload of %d", each, payload)
	if each > most {
		t.Errorf("%.0f bytes for a waiting job; want at most %d", each, most)
	}
}

// TestMemoryOfAHeldJob: 5,000 held jobs take at most 100 MB of a worker's memory besides
// their payloads, even under the race detector, where stacks are larger.
func TestMemoryOfAHeldJob(t *testing.T) {
	const jobs, payload, most = 5000, 2, 100_000_000
	// What the first worker of a process takes for all later ones is not that of held jobs.
	first := startRig(t, 1, limits.Set{}, nil)
	first.run(t)
	first.enqueue(t, "acme", 1)
	first.wait(t)
	first.stop()
	r := startRig(t, jobs, limits.Set{}, func(c *Config) { c.Concurrency = jobs })
	over := make(chan struct{})
	r.answer = func(context.Context, Running) error {
		<-over
		return nil
	}
	backlog(t, r.server, r.queue, jobs, 1, payload)
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {}}}); err != nil {
		t.Fatal(err)
	}
	used := func() uint64 {
		runtime.GC()
		runtime.GC() // the first one leaves what is in pools
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := used()
	r.run(t)
	defer close(over)
	r.wait(t)
	all := used()
	for range 10 { // what is held is in every reading, unlike the buffers of what goes on beside
		time.Sleep(50 * time.Millisecond)
		all = min(all, used())
	}
	all -= before
	t.Logf("%d bytes for a held job", all/jobs)
	if all > most {
		t.Errorf("%d bytes for %d held jobs; want at most %d", all, jobs, most)
	}
}

// waitingJobs returns the number of waiting jobs in benchmarks.
func waitingJobs() int {
	if testing.Short() {
		return 1_000
	}
	return 100_000
}

// BenchmarkDispatch measures a round of dispatch with 100,000 waiting jobs (1,000 with
// -short) of 1,000 tenants. The released jobs are not run.
func BenchmarkDispatch(b *testing.B) {
	server := redistest.Start(b)
	queue := redistest.Queue(b)
	backlog(b, server.Redis(), queue, waitingJobs(), 1000, 100)
	client := server.Client()
	released := 0
	d := &dispatcher{
		queue: queue, redis: client, worker: "w", kinds: ",call,", runs: &atomic.Int64{}, hand: func(jobs []handed) { released += len(jobs) }, capacity: newCapacity(1000), observer: NoObserver{},
		limits: &effective.Calendars{Queue: queue, Redis: client}, clock: &redisClock{}, pauses: &pauses{}, starving: &starvation{}, sending: &atomic.Int64{}, live: newLiveRuns(), roles: newRoles(client, "w"), replans: newReplans(),
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		wait, err := d.round(b.Context(), 1000)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		b.StopTimer()
		time.Sleep(wait)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(released)/float64(b.N), "released/op")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}
