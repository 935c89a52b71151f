package inspect_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestForecastOfASharedLimit: what partitions have of a limit that they share changes with their backlogs, so a forecast
// under it is rough.
func TestForecastOfASharedLimit(t *testing.T) {
	t.Parallel()
	for want, limit := range map[inspect.Confidence]limits.Limit{inspect.Rough: sharedBy(300), inspect.Steady: perTenant(300)} {
		client, name := redistest.Any(t).Client(), redistest.Queue(t)
		if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{name: {Partitions: 2, Limits: []limits.Limit{limit}}}}); err != nil {
			t.Fatal(err)
		}
		redistest.Serve(client, name, "call")
		if e, err := inspect.New(client).Estimate(t.Context(), name, inspect.Batch{Tenant: "a", Kind: "call", Jobs: 1000}); err != nil || e.Confidence != want {
			t.Errorf("under %v: %v, %v; want %v", limit.Rate, e.Confidence, err, want)
		}
	}
}

// TestForecastOfWindowsThatOpenTogether: of two tenants whose windows open at the same moment, each has its own period.
func TestForecastOfWindowsThatOpenTogether(t *testing.T) {
	t.Parallel()
	short, times := opensWith(time.Now())
	r := newRig(t)
	window := limits.Limit{Name: "tenant", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 2, Period: short}, Per: []string{"tenant"}}
	longer := throttle.Rate{Count: 2, Period: times * short}
	if err := operate.Publish(t.Context(), r.client, limits.Set{
		Queues:  map[string]limits.Queue{r.queue: {Limits: []limits.Limit{window}}},
		Tenants: map[string]limits.Tenant{"b": {Limits: map[string]map[string]limits.Change{r.queue: {"tenant": {Rate: &longer}}}}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"a", "b"} {
		for range 20 {
			r.add(t, func(job *queue.Job) { job.Tenant = tenant })
		}
		for range 2 { // its window is used up
			if _, err := r.producer.Take(t.Context(), queue.Job{Kind: "call", Queue: r.queue, Tenant: tenant, Payload: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	page, err := inspect.New(r.client).ListTenants(t.Context(), r.queue, inspect.TenantQuery{})
	if err != nil || len(page.Tenants) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, row := range page.Tenants {
		period := map[string]time.Duration{"a": short, "b": times * short}[row.Tenant]
		if drains := row.DrainsAt.Sub(row.Now); drains < 9*period || drains > 10*period {
			t.Errorf("%s: 20 jobs, 2 in %v, have gone in %v", row.Tenant, period, drains)
		}
	}
}

// opensWith returns a period, and how many times as long one is whose next window begins with the next one of the first,
// not too soon.
func opensWith(now time.Time) (period, times time.Duration) {
	for period = time.Minute; ; period += time.Second {
		next := now.Unix()/int64(period.Seconds()) + 1
		if next*int64(period.Seconds())-now.Unix() < 20 {
			continue
		}
		for times = 5; times < 10; times++ {
			if next%int64(times) == 0 {
				return period, times
			}
		}
	}
}
