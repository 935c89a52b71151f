package queue

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestTimedManyForOneSecond: jobs scheduled for the same time cost Redis no more than jobs
// enqueued at that time, and none goes before it. The test runs alone on the machine,
// because a job that misses its slot asks for another one.
func TestTimedManyForOneSecond(t *testing.T) {
	const rate = 1000
	jobs := manyJobs()
	scripts := func(t *testing.T, at time.Time) float64 {
		server := redistest.Start(t)
		client := NewClient(server.Client())
		if err := operate.Publish(t.Context(), server.Client(), limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(rate)}}}}); err != nil {
			t.Fatal(err)
		}
		got := newReceiver(jobs)
		w := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
		Handle(w, "call", got.handle)
		enqueueAll(t, client, slices.Repeat([]Job{{Kind: "call", Queue: "q", Tenant: "a", At: at, Payload: json.RawMessage(`{}`)}}, jobs)...)
		before := commandStats(t, server.Client())
		runWorker(t, w)
		got.wait(t)
		for _, called := range got.all() {
			if called.Before(at) {
				t.Fatalf("a call %v before its time", at.Sub(called))
			}
		}
		return commandStats(t, server.Client()).since(before, jobs).scripts
	}
	measured(t, func(t *testing.T, run *pacer.Run) {
		began := time.Now()
		plain := scripts(t, time.Time{})
		scheduled := scripts(t, time.Now().Add(3*time.Second).Truncate(time.Second))
		t.Logf("enqueued for now: %.2f scripts for a job; scheduled: %.2f", plain, scheduled)
		// Forwarding a hundred jobs takes one script. A script that each job asks for would be
		// one more for each, and so is one for each slot that a busy machine misses.
		run.Number("scripts more for a scheduled job", began, time.Now(), scheduled-plain, 0.1)
	})
}
