package queue

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// BenchmarkCrowd: 100,000 lanes become due at the same time while another tenant sends at
// its limit of 100/s. It reports the time of a dispatch request, with the round trip, and
// the share of its limit that the other tenant uses meanwhile.
func BenchmarkCrowd(b *testing.B) {
	lanes, jobs := 100_000, 1500
	if testing.Short() {
		lanes, jobs = 1000, 20
	}
	c := startCrowd(b, redistest.Start(b), lanes)
	enqueueAll(b, c.client, slices.Repeat([]Job{{Kind: "call", Queue: c.queue, Tenant: "live", Payload: json.RawMessage(`{}`)}}, jobs)...)
	got := newReceiver(jobs)
	worker := newWorker(b, Config{Redis: c.server.Options(), Queues: []string{c.queue}, Observer: c.seen})
	Handle(worker, "call", got.handle)
	Handle(worker, "mail", got.handle)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	for b.Loop() {
		go func() { ended <- worker.Run(ctx) }()
		select {
		case <-got.full:
		case <-time.After(time.Minute):
			b.Fatalf("%d of %d calls after a minute", got.total, jobs)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	times := got.all()
	slices.SortFunc(times, time.Time.Compare)
	took := times[len(times)-1].Sub(times[0])
	b.ReportMetric(float64(jobs-1)/100/took.Seconds(), "of-the-limit")
	var rounds []time.Duration
	for _, round := range c.seen.rounds {
		rounds = append(rounds, round.Took)
	}
	slices.Sort(rounds)
	b.ReportMetric(float64(rounds[len(rounds)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(rounds[len(rounds)*99/100].Microseconds()), "p99-µs")
}
