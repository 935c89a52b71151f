package browsertest

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/until"
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
	counted := func(tenant string, most int64) bool {
		now := time.Now()
		c, err := inspect.ReadConformance(t.Context(), s.rdb, "webhook", inspect.ConformanceQuery{From: now.Add(-time.Hour), To: now, Tenant: tenant, N: 1})
		return err == nil && c.Total == 1 && slices.ContainsFunc(c.Buckets[0].Hours, func(h inspect.ConformanceHour) bool { return h.Most == most })
	}
	until.Done(t, "counted", func() bool { return counted("acme", 3) && counted("oscorp", 1) })
	if _, err := operate.Apply(t.Context(), s.rdb, "webhook", operate.RunNow, operate.Filter{Tenant: "oscorp"}, operate.Operator{Actor: "anna", Reason: "invoices first"}, nil); err != nil {
		t.Fatal(err)
	}
	until.Done(t, "counted with those that were run", func() bool { return counted("oscorp", 4) })
	scenario(t, "conformance.mjs", run{base: p.page, given: map[string]any{"queue": "webhook"}})
}
