package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

func (r *rig) tenant(t *testing.T, tenant string) inspect.TenantDetail {
	t.Helper()
	d, err := inspect.New(r.server.Client()).Tenant(t.Context(), r.queue, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// after returns times as durations since another time, rounded to milliseconds.
func after(now time.Time, moments []time.Time) (spans []time.Duration) {
	for _, moment := range moments {
		spans = append(spans, moment.Sub(now).Round(time.Millisecond))
	}
	return spans
}

// TestTenantSlots: the expected times of the next calls respect bursts, quotas, pauses and
// closed send windows.
func TestTenantSlots(t *testing.T) {
	t.Parallel()
	burst := perTenant(10)
	burst.Burst = 5
	hourly := windowOf("hourly", 8, time.Hour, "tenant")
	calls := limits.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 3, Per: []string{"tenant"}}
	shape := limitsOf(burst, sharedBy(1000), hourly, calls)
	r := startRig(t, 0, shape, nil)
	r.served(t)
	client, ctx, by := r.server.Client(), t.Context(), operate.Operator{Actor: "ann", Reason: "a test"}
	r.enqueue(t, "a", 12)
	d := r.tenant(t, "a")
	opens := d.Now.Truncate(time.Hour).Add(time.Hour)
	want := []time.Duration{0, 0, 0, 0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
	// The shared limit puts them 1 ms apart.
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= 8*time.Millisecond }
	if len(d.Slots) != 12 || !slices.EqualFunc(after(d.Now, d.Slots[:8]), want, near) {
		t.Fatalf("slots at %v", after(d.Now, d.Slots))
	}
	for _, slot := range d.Slots[8:] {
		if late := slot.Sub(opens); late < -time.Millisecond || late > time.Second {
			t.Errorf("beyond the quota: %v, and the hour begins at %v", slot, opens)
		}
	}
	if d.Waiting != 12 || d.HeldBy == nil || d.HeldBy.Limit != "hourly" || d.Limit != "hourly" || d.Level != 8 || d.Capacity != 8 {
		t.Errorf("%+v", d.TenantRow)
	}
	var names []string
	for _, limit := range d.Limits {
		names = append(names, limit.Name)
		levels := map[string]float64{"tenant": 5, "account": 1, "hourly": 8, "in-flight": 3}
		if want := levels[limit.Name]; limit.Level != want || limit.Capacity != want || limit.Adapted != 1 || limit.From != "queue" || limit.Binding != (limit.Name == "hourly") {
			t.Errorf("%+v", limit)
		}
		if limit.Next.Before(d.Now.Add(-time.Second)) || limit.Next.After(d.Now.Add(time.Second)) || !limit.PausedUntil.IsZero() {
			t.Errorf("%s next admits a job at %v", limit.Name, limit.Next)
		}
	}
	if got := strings.Join(names, " "); got != "tenant account hourly in-flight" {
		t.Errorf("limits %s", got)
	}

	// An unknown tenant has limits and no slots.
	if d := r.tenant(t, "nobody"); d.Waiting != 0 || len(d.Slots) != 0 || len(d.Limits) != 4 || d.Limits[0].Level != 5 || d.Limit == "" {
		t.Errorf("%+v", d)
	}

	until := time.Now().Add(10 * time.Minute)
	if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, until, by); err != nil {
		t.Fatal(err)
	}
	if d := r.tenant(t, "a"); len(d.Pauses) != 1 || len(d.Slots) != 12 || d.Slots[0].Sub(until).Abs() > time.Millisecond {
		t.Errorf("paused until %v: %v", until, d.Slots)
	}
	if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	if d := r.tenant(t, "a"); len(d.Slots) != 0 || d.Confidence != inspect.NoForecast {
		t.Errorf("paused until resumed: %v", d.Slots)
	}
	if _, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, by); err != nil {
		t.Fatal(err)
	}

	opens = time.Now().UTC().Add(10 * time.Hour).Truncate(time.Minute)
	window, err := sendwindow.Parse(opens.Format("15:04") + "-" + opens.Add(time.Hour).Format("15:04") + " UTC")
	if err != nil {
		t.Fatal(err)
	}
	q := shape.Queues[r.queue]
	q.SendWindows = map[string]sendwindow.Window{limits.AllKinds: window}
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{r.queue: q}}); err != nil {
		t.Fatal(err)
	}
	if d := r.tenant(t, "a"); !d.WindowOpens.Equal(opens) || len(d.Slots) != 12 || !d.Slots[0].Equal(opens) {
		t.Errorf("open from %v: %v, %v", opens, d.WindowOpens, d.Slots)
	}
}

// TestTenantIsOfOneMoment: in an answer from a shared reading, all parts are of the same
// time: a limit that admits a job now does so at the time of the answer, not some
// milliseconds after it.
func TestTenantIsOfOneMoment(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(1000)), nil)
	r.served(t)
	inspector := inspect.New(r.server.Client())
	for ask := range 20 {
		d, err := inspector.Tenant(t.Context(), r.queue, "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range d.Limits {
			if !limit.Next.Equal(d.Now) {
				t.Fatalf("question %d, asked at %v: %s next admits a job at %v, %v later", ask+1, d.Now, limit.Name, limit.Next, limit.Next.Sub(d.Now))
			}
		}
	}
}

// TestTenantOfSeveralLanes: a tenant's next slots are those of all its lanes.
func TestTenantOfSeveralLanes(t *testing.T) {
	t.Parallel()
	domain := limits.Limit{Name: "domain", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(2), Per: []string{"domain"}}
	r := startRig(t, 0, limitsOf(domain, sharedBy(1000)), nil)
	r.served(t)
	for range 3 {
		for _, value := range []string{"x", "y"} {
			r.add(t, func(job *Job) { job.Attributes = map[string]string{"domain": value} })
		}
	}
	d := r.tenant(t, "a")
	for i, span := range after(d.Now, d.Slots) {
		if want := time.Duration(i/2) * 500 * time.Millisecond; (span - want).Abs() > 2*time.Millisecond {
			t.Errorf("slot %d in %v, want %v", i, span, want)
		}
	}
	if len(d.Slots) != 6 || d.Confidence != inspect.Rough {
		t.Errorf("%d slots, %s", len(d.Slots), d.Confidence)
	}
}

// TestPreview: the preview of a change shows what the change then does. Invalid changes are
// rejected by both with the same error.
func TestPreview(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(1000)), nil)
	r.served(t)
	r.enqueue(t, "a", 101)
	r.enqueue(t, "b", 51)
	client, ctx := r.server.Client(), t.Context()
	inspector := inspect.New(client)
	fast := throttle.PerSecond(50)
	p, err := inspector.Preview(ctx, r.queue, "a", "tenant", limits.Change{Rate: &fast})
	if err != nil {
		t.Fatal(err)
	}
	if before, will := p.Before.DrainsAt.Sub(p.Before.Now).Round(time.Millisecond), p.After.DrainsAt.Sub(p.After.Now).Round(time.Millisecond); before != 10*time.Second || will != 2*time.Second ||
		p.Before.HeldBy.Rule != "10/s" || p.After.HeldBy.Rule != "50/s" || p.After.Waiting != 101 {
		t.Errorf("drains in %v, and then in %v: %+v", before, will, p)
	}
	// Nothing was changed, for no tenant.
	if o, err := inspector.Outlook(ctx, r.queue, "a"); err != nil || !o.DrainsAt.Equal(p.Before.DrainsAt) || client.Exists(ctx, store.Key(r.queue, "overrides")).Val() != 0 {
		t.Errorf("%v, %v", o, err)
	}
	if err := operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if o, err := inspector.Outlook(ctx, r.queue, "a"); err != nil || o.DrainsAt.Sub(o.Now).Round(10*time.Millisecond) != 2*time.Second {
		t.Errorf("after the change: %v, %v", o, err)
	}
	for name, change := range map[string]struct {
		queue, tenant, limit string
		limits.Change
	}{
		"no queue":    {"nothing", "a", "tenant", limits.Change{Rate: &fast}},
		"no tenant":   {r.queue, "", "tenant", limits.Change{Rate: &fast}},
		"no limit":    {r.queue, "a", "tennant", limits.Change{Rate: &fast}},
		"shared":      {r.queue, "a", "account", limits.Change{Rate: &fast}},
		"nothing":     {r.queue, "a", "tenant", limits.Change{}},
		"concurrency": {r.queue, "a", "tenant", limits.Change{Concurrency: new(int64(3))}},
		"burst":       {r.queue, "a", "tenant", limits.Change{Burst: new(int64(-3))}},
	} {
		_, previewed := inspector.Preview(ctx, change.queue, change.tenant, change.limit, change.Change)
		set := operate.SetOverride(ctx, client, change.queue, change.tenant, change.limit, operate.Override{Change: change.Change, Actor: "ann", Reason: "a test"})
		_, wrong := errors.AsType[*validation.Error](previewed)
		_, same := errors.AsType[*validation.Error](set)
		if previewed == nil || set == nil || previewed.Error() != set.Error() || wrong != same {
			t.Errorf("%s: a preview says %v, an override %v", name, previewed, set)
		}
	}
}
