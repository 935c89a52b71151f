package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// BenchmarkIdlePartitions compares what an idle worker costs Redis, in processor time, with a queue of 64
// partitions and with an undivided one: once with a limit for each tenant, and once with a shared one. It fails beyond
// three times, unless it runs only for a moment.
func BenchmarkIdlePartitions(b *testing.B) {
	length := 15 * time.Second
	if testing.Short() {
		length = time.Second
	}
	spent := func(b *testing.B, n int, limit limits.Limit) float64 {
		server := redistest.Start(b)
		client := server.Client()
		if err := operate.Publish(b.Context(), client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Limits: []limits.Limit{limit}}}}); err != nil {
			b.Fatal(err)
		}
		worker := newWorker(b, Config{Redis: server.Options(), Queues: []string{"q"}})
		Handle(worker, "call", func(context.Context, json.RawMessage) error { return nil })
		stop := runWorker(b, worker)
		time.Sleep(length / 5) // what it does at its start is over then
		before := processorTime(b, client)
		time.Sleep(length)
		spent := processorTime(b, client) - before
		stop()
		return spent / length.Seconds()
	}
	for name, limit := range map[string]limits.Limit{"own": perTenant(10), "shared": sharedBy(10)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				one, many := spent(b, 1, limit), spent(b, 64, limit)
				b.ReportMetric(1000*one, "ms/s-of-1")
				b.ReportMetric(1000*many, "ms/s-of-64")
				b.ReportMetric(many/one, "times")
				if many > 3*one && !testing.Short() {
					b.Errorf("%.1f ms a second with 64 partitions, and %.1f ms with one; want at most three times as much", 1000*many, 1000*one)
				}
			}
		})
	}
}

// processorTime returns the seconds of processor time that the main thread of a Redis has used.
func processorTime(b *testing.B, client redis.UniversalClient) (sum float64) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasSuffix(name, "_main_thread") {
			var seconds float64
			if _, err := fmt.Sscan(value, &seconds); err != nil {
				b.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}
