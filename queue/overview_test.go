package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestOverviewSaysWhatBinds: each tenant is held by the limit that its own jobs reach, the
// tenants' rates add up to what the queue may send, and a next slot is never in the past,
// even from an old reading.
func TestOverviewSaysWhatBinds(t *testing.T) {
	t.Parallel()
	calls := perTenant(15)
	calls.Name = "calls"
	tokens := limits.Limit{Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Burst: 200, Per: []string{"tenant"}, Unit: "tokens"}
	r := startRig(t, 1, limitsOf(calls, tokens), nil)
	r.served(t)
	for range 400 {
		r.add(t, func(job *Job) { job.Tenant, job.Costs = "short", map[string]int64{"tokens": 10} })
		r.add(t, func(job *Job) { job.Tenant, job.Costs = "long", map[string]int64{"tokens": 200} })
	}
	r.release(t, r.dispatcher(), 100) // some are given ahead
	inspector := inspect.New(r.server.Client())
	for began := time.Now(); time.Since(began) < time.Second/2; {
		o, err := inspector.Overview(t.Context(), r.queue)
		if err != nil {
			t.Fatal(err)
		}
		if o.Allowed < 19 || o.Allowed > 21 {
			t.Fatalf("%.1f jobs/s are allowed; want 15 of one tenant and 5 of the other", o.Allowed)
		}
		page, err := inspector.ListTenants(t.Context(), r.queue, inspect.TenantQuery{Sort: inspect.ByTenant, Ascending: true})
		if err != nil || len(page.Tenants) != 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for i, want := range []string{"tokens", "calls"} {
			row := page.Tenants[i]
			if row.HeldBy == nil || row.HeldBy.Limit != want {
				t.Fatalf("%s is held by %v; want %s", row.Tenant, row.HeldBy, want)
			}
			if row.HeldBy.Next.Before(row.Now) {
				t.Fatalf("%s's next slot was %v ago", row.Tenant, row.Now.Sub(row.HeldBy.Next))
			}
		}
	}
}
