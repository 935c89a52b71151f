package browsertest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// TestWorkers: the page says which workers are alive, that nobody serves a queue, and that the
// workers are the limit.
func TestWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, "queues: {webhook: {kinds: [webhook]}}")
	sms := "sms-" + strings.Repeat("x", 60)
	served := "served-" + sms + "-sms" // as Serve names it
	p := s.worker()
	if err := operate.Publish(t.Context(), s.rdb, limits.Set{Queues: map[string]limits.Queue{sms: {Kinds: []string{"sms"}}}}); err != nil {
		t.Fatal(err)
	}
	s.enqueue(queue.Job{Kind: "sms", Tenant: "acme"})
	scenario(t, "workers.mjs", run{base: p.page, given: map[string]any{"queue": sms}, control: control{
		"serve": asked(func(struct{}) (any, error) {
			redistest.Serve(s.rdb, sms, "sms")
			return nil, nil
		}),
		"starve": asked(func(struct{}) (any, error) { // the same worker has no room any more
			now := time.Now()
			text, err := json.Marshal(workers.Info{
				ID: served, Host: "test", Started: now, Seen: now.Add(time.Hour), Queues: []string{sms}, Kinds: []string{"sms"},
				Concurrency: 1, Held: 1, Starved: map[string]float64{sms: 0.93},
			})
			if err != nil {
				return nil, err
			}
			return nil, s.rdb.Set(t.Context(), workers.Key(served), text, time.Hour).Err()
		}),
	}})
}
