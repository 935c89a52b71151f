package browsertest

import (
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// TestConformance: the page says which limits were kept, and why one was not.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := newStage(t, `
queues:
  webhook:
    kinds: [webhook]
    conformance: true
    limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 2/hour, burst: 4}]
tenants:
  oscorp: {limits: {webhook: {tenant: {rate: 1/hour, burst: 1}}}}
`)
	p := s.worker()
	s.enqueue(times(3, s.call("acme", "/orders"))...)
	s.enqueue(times(4, s.call("oscorp", "/orders"))...)
	counted := func(over bool) func() bool {
		return func() bool {
			now := time.Now()
			c, err := inspect.ReadConformance(t.Context(), s.rdb, "webhook", inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now, N: 10})
			return err == nil && c.Total == 2 && (c.Buckets[0].Hours[0].Over != nil && c.Buckets[0].Hours[0].Over.Took == 4 || !over)
		}
	}
	until(t, "counted", counted(false))
	if _, err := operate.Apply(t.Context(), s.rdb, "webhook", operate.RunNow, operate.Filter{Tenant: "oscorp"}, operate.Operator{Actor: "anna", Reason: "invoices first"}, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "counted with those that were run", counted(true))
	scenario(t, "conformance.mjs", run{base: p.page, given: map[string]any{"queue": "webhook"}})
}
