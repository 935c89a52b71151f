//go:build !race

// The race detector slows the worker down so much that jobs miss their slots, which costs commands
// (in make test-cluster).

package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// atDepth measures the cost of a call in Redis at a rate, with a given number of waiting
// jobs and lanes. Each call enqueues another job of its tenant, so that the backlog stays
// the same. Commands are those of all calls. Redis's time is the least of four stretches:
// what scripts do is in each of them, unlike the pauses of a process that waits for a core.
func atDepth(t *testing.T, rate, calls int64, jobs, lanes int) usage {
	t.Helper()
	// At first the due lanes get into line, each once, many in each round.
	warm := rate/5 + int64(lanes/2)
	server := redistest.Start(t)
	client := server.Client()
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{sharedBy(rate)}}}}); err != nil {
		t.Fatal(err)
	}
	enqueue := NewClient(client)
	job := func(tenant string) Job {
		return Job{Kind: "call", Queue: "q", Tenant: tenant, Payload: json.RawMessage(`{}`)}
	}
	batch := make([]Job, jobs)
	for i := range batch {
		batch[i] = job(fmt.Sprint("t", i%lanes))
	}
	enqueueAll(t, enqueue, batch...)
	var called atomic.Int64
	const stretches = 4
	marks := make(chan struct{}, 1+stretches)
	w := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	Handle(w, "call", func(ctx context.Context, _ json.RawMessage) error {
		if n := called.Add(1) - warm; n >= 0 && n <= calls && n%(calls/stretches) == 0 {
			marks <- struct{}{}
		}
		running, _ := Current(ctx)
		_, err := enqueue.Enqueue(ctx, job(running.Tenant))
		return err
	})
	runWorker(t, w)
	<-marks
	first := commandStats(t, client)
	last, micros := first, math.Inf(1)
	for range stretches {
		<-marks
		now := commandStats(t, client)
		micros = min(micros, now.since(last, int(calls/stretches)).micros)
		last = now
	}
	cost := last.since(first, int(calls))
	cost.micros = micros
	return cost
}

// TestTimedCommandsPerJobAtRates measures the cost of a job in Redis, including its enqueueing, at
// rates at which few jobs share rounds and settlements.
func TestTimedCommandsPerJobAtRates(t *testing.T) {
	redistest.Slow(t)
	for _, test := range []struct {
		rate, calls int64
		jobs        int
		most        float64
	}{
		{100, 300, 1000, 29},
		{500, 1500, 10_000, 20},
	} {
		t.Run(fmt.Sprint(test.rate, " a second"), func(t *testing.T) {
			// Jobs that miss their slots because the machine is busy take more commands.
			measured(t, func(t *testing.T, run *pacer.Run) {
				began := time.Now()
				u := atDepth(t, test.rate, test.calls, test.jobs, 1)
				run.Logf("%.1f commands, %.2f scripts, %.0f µs for each", u.commands, u.scripts, u.micros)
				run.Number("commands for a job", began, time.Now(), u.commands, test.most)
			})
		})
	}
}

// TestTimedCommandsPerJobAtDepth: a job costs Redis the same whether 100 or 20,000 jobs wait, in
// one lane or in a lane each. It measures time too: a script that reads more of a deep
// backlog in one command makes no more commands, but takes many times as long.
func TestTimedCommandsPerJobAtDepth(t *testing.T) {
	redistest.Slow(t)
	const few, many = 100, 20_000
	for name, lanes := range map[string]func(jobs int) int{
		"one lane":    func(int) int { return 1 },
		"a lane each": func(jobs int) int { return jobs },
	} {
		t.Run(name, func(t *testing.T) {
			measured(t, func(t *testing.T, run *pacer.Run) {
				began := time.Now()
				shallow, deep := atDepth(t, 1000, 2000, few, lanes(few)), atDepth(t, 1000, 2000, many, lanes(many))
				run.Logf("%d jobs: %.1f commands, %.2f scripts, %.0f µs for each; %d jobs: %.1f, %.2f, %.0f µs",
					few, shallow.commands, shallow.scripts, shallow.micros, many, deep.commands, deep.scripts, deep.micros)
				run.Number("commands for a job at depth", began, time.Now(), deep.commands, 1.2*shallow.commands)
				run.Number("µs of Redis for a job at depth", began, time.Now(), deep.micros, 3*shallow.micros)
			})
		})
	}
}
