package browsertest

import (
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestWorkers: the page says which workers are alive, and that nobody serves a queue.
func TestWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t, "queues: {webhook: {kinds: [webhook]}}")
	p := s.worker()
	if err := operate.Publish(t.Context(), s.rdb, limits.Set{Queues: map[string]limits.Queue{"sms": {Kinds: []string{"sms"}}}}); err != nil {
		t.Fatal(err)
	}
	s.enqueue(queue.Job{Kind: "sms", Tenant: "acme"})
	scenario(t, "workers.mjs", run{base: p.page, control: control{"serve": asked(func(struct{}) (any, error) {
		redistest.Serve(s.rdb, "sms", "sms")
		return nil, nil
	})}})
}
