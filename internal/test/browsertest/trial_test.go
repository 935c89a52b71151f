package browsertest

import (
	"testing"

	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// TestTrial: the page says how jobs would have waited under other limits, also on a server that is read-only.
func TestTrial(t *testing.T) {
	t.Parallel()
	s := newStage(t, `
queues:
  webhook:
    kinds: [webhook]
    conformance: true
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 50/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 1/s, burst: 3}
      - {name: in-flight, per: [tenant], concurrency: 10}
  email:
    kinds: [email]
    limits: [{name: account, algorithm: leaky_bucket, rate: 10/s}]
`)
	p := s.worker("HEADGATE_READ_ONLY=true")
	costly := s.call("umbrella", "/orders")
	costly.Cost = 3
	jobs := append(times(6, s.call("acme", "/orders")), times(4, s.call(hostile[1], "/orders"))...)
	s.enqueue(append(jobs, costly)...)
	set, err := operate.Published(t.Context(), s.rdb, "webhook")
	if err != nil {
		t.Fatal(err)
	}
	until.Done(t, "all calls are known", func() bool {
		trial, err := inspect.Try(t.Context(), s.rdb, "webhook", set, inspect.TrialQuery{N: 1})
		return err == nil && trial.Jobs == len(jobs)+1
	})
	scenario(t, "trial.mjs", run{base: p.page, given: map[string]any{"queue": "webhook", "unknown": "email", "hostile": hostile[1]}})
}
