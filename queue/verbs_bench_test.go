package queue

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// BenchmarkVerbs applies each verb to 100,000 jobs (1,000 with -short), in one lane and in
// 10,000 lanes, and reports the longest time that a script blocked Redis.
func BenchmarkVerbs(b *testing.B) {
	jobs := waitingJobs()
	for _, lanes := range []int{1, 10_000} {
		server := redistest.Start(b)
		client, ctx := server.Client(), b.Context()
		limits := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call"}, Limits: []limits.Limit{
			perTenant(10), sharedBy(300),
			{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 5, Per: []string{"tenant"}},
		}}}}
		if err := operate.Publish(ctx, client, limits); err != nil {
			b.Fatal(err)
		}
		enqueuer := NewClient(client)
		for first := 0; first < jobs; first += 1000 {
			batch := make([]Job, 1000)
			for i := range batch {
				batch[i] = Job{Kind: "call", Tenant: fmt.Sprint("tenant-", (first+i)%lanes), Payload: json.RawMessage(`{"to":"someone@example.com","subject":"a subject","text":"and some text"}`)}
			}
			enqueueAll(b, enqueuer, batch...)
		}
		for _, step := range []struct {
			name string
			do   func() (operate.Tally, error)
		}{
			{"count", func() (operate.Tally, error) {
				return operate.Count(ctx, client, "q", operate.Cancel, operate.Filter{})
			}},
			{"count one kind", func() (operate.Tally, error) {
				return operate.Count(ctx, client, "q", operate.Cancel, operate.Filter{Kind: "call"})
			}},
			{"cancel", func() (operate.Tally, error) {
				return operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{}, ann, nil)
			}},
			{"retry", func() (operate.Tally, error) {
				return operate.Apply(ctx, client, "q", operate.RetryArchived, operate.Filter{}, ann, nil)
			}},
			{"run", func() (operate.Tally, error) {
				return operate.Apply(ctx, client, "q", operate.RunNow, operate.Filter{}, ann, nil)
			}},
			{"cancel what is pending", func() (operate.Tally, error) {
				return operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{}, ann, nil)
			}},
			{"delete", func() (operate.Tally, error) {
				return operate.Apply(ctx, client, "q", operate.DeleteArchived, operate.Filter{}, ann, nil)
			}},
		} {
			client.ConfigSet(ctx, "slowlog-log-slower-than", "5000")
			client.ConfigSet(ctx, "slowlog-max-len", "100000")
			client.Do(ctx, "SLOWLOG", "RESET")
			// A verb cannot be applied to the same jobs again: it is measured once, however often
			// the benchmark runs.
			before, began := processorTime(b, client), time.Now()
			tally, err := step.do()
			took, work := time.Since(began), processorTime(b, client)-before
			if err != nil || tally.Jobs != int64(jobs) {
				b.Fatalf("%s: %+v, %v", step.name, tally, err)
			}
			entries, err := client.SlowLogGet(ctx, -1).Result()
			if err != nil {
				b.Fatal(err)
			}
			longest, over := time.Duration(0), 0
			for _, entry := range entries {
				if entry.Args[0] == "evalsha" || entry.Args[0] == "eval" {
					longest = max(longest, entry.Duration)
					if entry.Duration > 20*time.Millisecond {
						over++
					}
				}
			}
			b.Run(fmt.Sprintf("%d lanes/%s", lanes, step.name), func(b *testing.B) {
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
				b.ReportMetric(float64(over), "over-20ms")
				b.ReportMetric(work*1e6/float64(jobs), "µs-cpu/job") // of Redis, whatever else the machine does
				b.ReportMetric(float64(took.Milliseconds()), "ms/verb")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
