package queue

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// TestInspectorShares: all questions within a second share one reading, and no question
// changes the answer to another one.
func TestInspectorShares(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	counter := limits.Limit{Name: "counter", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.PerSecond(50), Per: []string{"tenant"}}
	log := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.PerSecond(30), Per: []string{"tenant"}}
	window, err := sendwindow.Parse("00:00-23:59 UTC")
	if err != nil {
		t.Fatal(err)
	}
	set := limits.Set{Queues: map[string]limits.Queue{"q": {
		Limits:      []limits.Limit{sharedBy(60), perTenant(10), windowOf("daily", 200, 24*time.Hour, "tenant"), counter, log},
		SendWindows: map[string]sendwindow.Window{limits.AllKinds: window},
	}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 20 {
		jobs := make([]Job, 100+i) // none drains while it is asked about
		for k := range jobs {
			jobs[k] = Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("tenant-", i), Payload: k}
		}
		all := enqueueAll(t, NewClient(client), jobs...)
		ids = append(ids, all[len(all)-1])
	}
	inspector, began, before := inspect.New(client), time.Now(), redistest.Calls(t, server.Client(), "scard")
	ask := func(i int) string {
		tenant := fmt.Sprint("tenant-", i%20)
		explained, err := inspector.Explain(t.Context(), "q", ids[i%20])
		if err != nil {
			return err.Error()
		}
		outlook, err := inspector.Outlook(t.Context(), "q", tenant)
		if err != nil {
			return err.Error()
		}
		estimate, err := inspector.Estimate(t.Context(), "q", inspect.Batch{Tenant: fmt.Sprint("tenant-", i%25), Jobs: 30})
		if err != nil {
			return err.Error()
		}
		overview, err := inspector.Overview(t.Context(), "q")
		if err != nil {
			return err.Error()
		}
		page, err := inspector.ListTenants(t.Context(), "q", inspect.TenantQuery{Search: tenant, Sort: inspect.ByDrains})
		if err != nil || page.Total == 0 {
			return fmt.Sprint(page, err)
		}
		return fmt.Sprint(explained.At, explained.Position, outlook.DrainsAt, estimate.Last, overview.DrainsAt, overview.Top.Tenant, page.Tenants[0].DrainsAt)
	}
	// The first question reads alone; the others use its reading.
	want := make([]string, 20)
	for i := range want {
		want[i] = ask(i)
	}
	var wg sync.WaitGroup
	told := make([]string, 200)
	for i := range told {
		wg.Go(func() { told[i] = ask(i) })
	}
	wg.Wait()
	readings, most := redistest.Calls(t, server.Client(), "scard")-before, 1+int(time.Since(began)/time.Second)
	if readings < 1 || readings > most {
		t.Errorf("%d readings in %v, want at most %d", readings, time.Since(began), most)
	}
	for i, got := range told {
		// Another reading has other times.
		if readings == 1 && i%100 < 20 && got != want[i%20] {
			t.Errorf("%d was told %s; alone: %s", i, got, want[i%20])
		}
	}
}

// TestInspectorSeesChanges: changes of an operator are seen at once, even with an older
// reading.
func TestInspectorSeesChanges(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(1000)), nil)
	r.served(t)
	var id string
	for range 30 {
		id = r.add(t, nil)
	}
	client, ctx, by := r.server.Client(), t.Context(), operate.Operator{Actor: "ann", Reason: "a test"}
	inspector := inspect.New(client)
	explain := func() inspect.Explanation {
		t.Helper()
		e, err := inspector.Explain(ctx, r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := explain(); e.Pause != nil || e.HeldBy == nil || e.HeldBy.Rule != "10/s" {
		t.Fatalf("%+v", e)
	}
	if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	if e := explain(); e.Pause == nil || !e.At.IsZero() {
		t.Errorf("after a pause: %v", e)
	}
	if o, err := inspector.Outlook(ctx, r.queue, "a"); err != nil || o.Confidence != inspect.NoForecast {
		t.Errorf("after a pause: %v, %v", o, err)
	}
	if o, err := inspector.Overview(ctx, r.queue); err != nil || len(o.Pauses) != 1 || o.Confidence != inspect.NoForecast || o.Top == nil || o.Top.Tenant != "a" || o.Waiting != 30 || o.Tenants != 1 {
		t.Errorf("after a pause: %+v, %v", o, err)
	}
	if _, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, by); err != nil {
		t.Fatal(err)
	}
	if e := explain(); e.Pause != nil || e.At.IsZero() {
		t.Errorf("resumed: %v", e)
	}
	fast := throttle.PerSecond(25)
	if err := operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Reason: "sale", Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	if e := explain(); e.HeldBy == nil || e.HeldBy.Rule != "25/s" {
		t.Errorf("after an override: %v", e)
	}
	set := limitsOf(perTenant(10), sharedBy(5))
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{r.queue: set.Queues[""]}}); err != nil {
		t.Fatal(err)
	}
	if e := explain(); e.HeldBy == nil || e.HeldBy.Limit != "account" {
		t.Errorf("after a publication: %v", e)
	}
}

// TestInspectorFollowsTheLane: jobs that went since the reading are no longer before a job,
// and the forecast of its call stays the same.
func TestInspectorFollowsTheLane(t *testing.T) {
	t.Parallel()
	set, slow := limitsOf(perTenant(100)), throttle.PerSecond(1)
	set.Tenants = map[string]limits.Tenant{"late": {Limits: map[string]map[string]limits.Change{"": {"tenant": {Rate: &slow}}}}}
	r := startRig(t, 0, set, nil)
	r.served(t)
	var ids []string
	for range 400 {
		ids = append(ids, r.add(t, nil))
	}
	inspector := inspect.New(r.server.Client())
	before, err := inspector.Explain(t.Context(), r.queue, ids[300])
	if err != nil {
		t.Fatal(err)
	}
	gone := int64(len(r.release(t, r.dispatcher(), 20)))
	if gone == 0 {
		t.Fatal("nothing was released")
	}
	for range gone { // others come, so that the lane is as long as before
		r.add(t, nil)
	}
	after, err := inspector.Explain(t.Context(), r.queue, ids[300])
	if err != nil {
		t.Fatal(err)
	}
	if after.Position != 300-gone || after.TenantPosition != 300-gone || after.Waiting != 400 {
		t.Errorf("%d went: %d before it, %d of its tenant, %d wait", gone, after.Position, after.TenantPosition, after.Waiting)
	}
	if off := after.At.Sub(before.At).Abs(); off > time.Millisecond || !after.Now.After(before.Now) {
		t.Errorf("expected at %v, and before %d went at %v", after.At, gone, before.At)
	}
	// Jobs that came since the reading are explained too. One that is taken for two would wait for a second.
	late := r.add(t, func(job *Job) { job.Tenant = "late" })
	e, err := inspector.Explain(t.Context(), r.queue, late)
	if err != nil || e.State != lifecycle.StateWaiting || e.Position != 0 || !e.At.Equal(e.Now) || e.Waiting != 1 {
		t.Errorf("%v, %v", e, err)
	}
}

// TestInspectorOfNobody: a question about a tenant without waiting jobs does not change the
// answers for other tenants from the same reading.
func TestInspectorOfNobody(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(1)}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(client).Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	inspector := inspect.New(client)
	if outlook, err := inspector.Outlook(t.Context(), "q", "nobody"); err != nil || outlook.Waiting != 0 {
		t.Errorf("outlook of nobody = %+v, %v", outlook, err)
	}
	overview, err := inspector.Overview(t.Context(), "q")
	if err != nil || overview.Waiting != 1 || overview.Top == nil || overview.Top.Tenant != "acme" {
		t.Errorf("overview = %+v, %v; want acme on top", overview, err)
	}
}
