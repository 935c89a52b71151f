package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// usage is the cost of a run in Redis, from INFO commandstats.
type usage struct {
	commands, scripts, micros float64 // per job
}

// since returns the cost per job since an earlier usage.
func (u usage) since(before usage, jobs int) usage {
	n := float64(jobs)
	return usage{(u.commands - before.commands) / n, (u.scripts - before.scripts) / n, (u.micros - before.micros) / n}
}

// manyJobs returns the number of jobs in tests with many jobs.
func manyJobs() int {
	if testlong.On() {
		return 10_000
	}
	return 2000
}

// commandStats sums the calls of all commands, those inside of scripts
// included, the calls of scripts alone, and the time of what clients sent.
func commandStats(t *testing.T, client redis.UniversalClient) (all usage) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "cmdstat_")), ":")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		var calls, micros float64
		if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f", &calls, &micros); err != nil {
			continue
		}
		all.commands += calls
		if name == "evalsha" || name == "eval" {
			all.scripts += calls
			all.micros += micros
		}
	}
	return all
}

// TestTimedCommandsPerJob measures the cost of a job in Redis: with asynq alone, without a limit,
// and far over a limit. Waiting must cost almost nothing.
// With -v it prints the table of docs/cost.md.
func TestTimedCommandsPerJob(t *testing.T) {
	redistest.Slow(t)
	jobs := manyJobs()
	plain := asynqCost(t, jobs)
	unlimited := queueCost(t, jobs, 1, limits.Queue{})
	limited := queueCost(t, jobs, 1, limits.Queue{Limits: []limits.Limit{perTenant(500)}})

	table := fmt.Sprintf(`| %d jobs, one enqueue call each | commands per job | scripts per job | Redis time per job |
|---|---|---|---|
| asynq alone | %.1f | %.2f | %.0f µs |
| Headgate, no limit | %.1f | %.2f | %.0f µs |
| Headgate, all waiting at 500/s | %.1f | %.2f | %.0f µs |
`, jobs, plain.commands, plain.scripts, plain.micros, unlimited.commands, unlimited.scripts, unlimited.micros,
		limited.commands, limited.scripts, limited.micros)
	t.Log("\n" + table)
	// 11 of them are the enqueue call's.
	if unlimited.commands > 17 || limited.commands > 20 {
		t.Errorf("%.1f commands per job without a limit, and %.1f over one; want 17 and 20 at most", unlimited.commands, limited.commands)
	}
}

// TestTimedCommandsOfPartitions: a job in one of eight partitions costs Redis as many commands as one in
// an undivided queue, within a tenth under limits per tenant, and within two fifths under one that all share.
func TestTimedCommandsOfPartitions(t *testing.T) {
	redistest.Slow(t)
	for of, test := range map[string]struct {
		limit limits.Limit
		most  float64
	}{"each tenant": {perTenant(25), 1.1}, "all": {sharedBy(2000), 1.4}} {
		per := func(n int) usage {
			return queueCost(t, manyJobs(), 80, limits.Queue{Partitions: n, Limits: []limits.Limit{test.limit}})
		}
		one, eight := per(1), per(8)
		t.Logf("under a limit of %s, commands and scripts for each job: %.1f and %.2f in one partition, %.1f and %.2f in eight", of, one.commands, one.scripts, eight.commands, eight.scripts)
		if eight.commands > test.most*one.commands {
			t.Errorf("under a limit of %s: %.1f commands; want at most %.1f times %.1f", of, eight.commands, test.most, one.commands)
		}
	}
}

// asynqCost is what jobs cost with asynq alone.
func asynqCost(t *testing.T, jobs int) usage {
	server := redistest.Start(t)
	before, client := commandStats(t, server.Client()), asynq.NewClientFromRedisClient(server.Client())
	for range jobs {
		if _, err := client.Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue("q")); err != nil {
			t.Fatal(err)
		}
	}
	got := newReceiver(jobs)
	asynqServer := asynq.NewServerFromRedisClient(server.Client(), asynq.Config{Concurrency: 100, Queues: map[string]int{"q": 1}, LogLevel: asynq.FatalLevel})
	err := asynqServer.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		got.take(ctx)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	got.wait(t)
	asynqServer.Shutdown()
	return commandStats(t, server.Client()).since(before, jobs)
}

// queueCost is what the jobs of some tenants cost in a queue with these limits.
func queueCost(t *testing.T, jobs, tenants int, of limits.Queue) usage {
	server := redistest.Start(t)
	before := commandStats(t, server.Client())
	if err := operate.Publish(t.Context(), server.Client(), limits.Set{Queues: map[string]limits.Queue{"q": of}}); err != nil {
		t.Fatal(err)
	}
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	got, producer := newReceiver(jobs), NewClient(server.Client())
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		got.take(ctx)
		return nil
	})
	for i := range jobs {
		if _, err := producer.Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("t", i%tenants), Payload: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	stop := runWorker(t, worker)
	got.wait(t)
	stop()
	return commandStats(t, server.Client()).since(before, jobs)
}
