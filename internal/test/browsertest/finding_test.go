package browsertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// findingLimits let one job of each tenant go at once, and the next ones hours later.
const findingLimits = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 300/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 1/day, burst: 1}
tenants:
  acme: {weight: 3, limits: {webhook: {tenant: {rate: 2/hour, burst: 1}}}}
  globex: {limits: {webhook: {tenant: {rate: 120/min, burst: 1}}}}
`

// TestFinding: among 400 tenants whose long names differ at the end, the one that matters is
// found, and paused ones look paused.
func TestFinding(t *testing.T) {
	t.Parallel()
	const tenants, paused = 400, 5
	name := func(i int) string { return fmt.Sprintf("customer-of-the-northern-sales-region-production-%04d", i) }
	s := newStage(t, findingLimits)
	p := s.worker()
	one := func(tenant, key string) string {
		job := s.call(tenant, "/orders")
		job.Key = key
		return s.enqueue(job)[0]
	}
	for i := range paused {
		if _, err := operate.PauseJobs(t.Context(), s.rdb, "webhook", inspect.Scope{Tenant: name(i)},
			time.Now().Add(240*time.Hour), operate.Operator{Actor: "anna", Reason: "their endpoint is being moved"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range tenants {
		s.enqueue(times(2, s.call(name(i), "/orders"))...)
	}
	key := one(name(7), "order-4711")
	if err := operate.SetOverride(t.Context(), s.rdb, "webhook", name(8), "tenant", operate.Override{
		Change: limits.Change{Burst: new(int64(1))}, Until: time.Now().Add(2 * time.Hour), Actor: "ben", Reason: "launch day",
	}); err != nil {
		t.Fatal(err)
	}
	inspector := inspect.New(s.rdb)
	until.Done(t, "one job of each tenant went", func() bool {
		o, err := inspector.Overview(t.Context(), "webhook")
		return err == nil && o.Waiting == tenants+paused+1
	})
	next := 0
	scenario(t, "finding.mjs", run{
		base:  p.page,
		given: map[string]any{"queue": "webhook", "tenant": name(7), "paused": name(0), "overridden": name(8), "job": key, "key": "order-4711"},
		control: control{
			// New tenants, whose first jobs go at once.
			"call": func(json.RawMessage) (any, error) {
				for range 5 {
					next++
					s.enqueue(s.call(fmt.Sprint("new-", next), "/orders"))
				}
				return true, nil
			},
		},
	})
}
