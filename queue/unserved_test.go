package queue

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/workers"
)

// TestUnservedIsSaid: jobs that no worker serves have no forecast, and every answer says why.
func TestUnservedIsSaid(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	other := func(job *Job) { job.Kind = "other" }
	id := r.add(t, other)
	scheduled := r.add(t, func(job *Job) { job.Kind, job.At = "other", time.Now().Add(time.Hour) })
	says := func(want inspect.Unserved) {
		t.Helper()
		in := inspect.New(r.server.Client()) // with no reading yet
		for _, id := range []string{id, scheduled} {
			e, err := in.Explain(t.Context(), r.queue, id)
			if err != nil || !strings.Contains(e.String(), want.String()) || !e.At.IsZero() || e.Confidence != inspect.NoForecast || e.HeldBy != nil ||
				e.Unserved == nil || *e.Unserved != want {
				t.Errorf("Explain: %v (%s), %v", e, e.Confidence, err)
			}
		}
		batch, err := in.Estimate(t.Context(), r.queue, inspect.Batch{Tenant: "b", Kind: "other", Jobs: 3})
		if err != nil || !strings.Contains(batch.String(), want.String()) || batch.Confidence != inspect.NoForecast || batch.Unserved == nil {
			t.Errorf("Estimate: %v (%s), %v", batch, batch.Confidence, err)
		}
		outlook, err := in.Outlook(t.Context(), r.queue, "a")
		if err != nil || !strings.Contains(outlook.String(), want.String()) || outlook.Confidence != inspect.NoForecast || outlook.Rate != 0 || outlook.HeldBy != nil {
			t.Errorf("Outlook: %v (%s), %v", outlook, outlook.Confidence, err)
		}
		page, err := in.ListTenants(t.Context(), r.queue, inspect.TenantQuery{})
		if err != nil || len(page.Tenants) != 1 || !strings.Contains(page.Tenants[0].String(), want.String()) || !page.Tenants[0].Next.IsZero() {
			t.Errorf("ListTenants: %+v, %v", page.Tenants, err)
		}
		overview, err := in.Overview(t.Context(), r.queue)
		if err != nil || overview.Confidence != inspect.NoForecast || overview.Top == nil || !strings.Contains(overview.Top.String(), want.String()) ||
			!slices.Equal(overview.Unserved, []inspect.Unserved{want}) || overview.UnservedJobs != 1 {
			t.Errorf("Overview: %+v, %v", overview, err)
		}
	}
	says(inspect.Unserved{Queue: r.queue})

	// A worker with only another handler.
	r.run(t)
	r.untilServed(t, "call")
	r.add(t, nil)
	r.seen.wait(t, string(lifecycle.Done), 1)
	says(inspect.Unserved{Queue: r.queue, Kind: "other"})
	r.stop()
	says(inspect.Unserved{Queue: r.queue})

	// A worker with the handler.
	worker := newWorker(t, Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: r.seen})
	Handle(worker, "other", func(context.Context, json.RawMessage) error { return nil })
	r.worker = worker
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
	r.untilServed(t, "other")
	overview, err := inspect.New(r.server.Client()).Overview(t.Context(), r.queue)
	if err != nil || overview.Unserved != nil || overview.UnservedJobs != 0 {
		t.Errorf("with a worker: %+v, %v", overview, err)
	}
	if e := r.explain(t, scheduled); e.Unserved != nil || e.At.IsZero() {
		t.Errorf("with a worker: %v", e)
	}
}

// untilServed waits until a worker has published that it has a handler for a kind.
func (r *rig) untilServed(t *testing.T, kind string) {
	t.Helper()
	until(t, "a worker of kind "+kind, func() bool {
		u, err := inspect.New(r.server.Client()).Unserved(t.Context(), r.queue, kind)
		if err != nil {
			t.Fatal(err)
		}
		return u == nil
	})
}

// TestSilentWorkerServesNothing: a worker that missed two heartbeats does not count, although
// Redis has it for five more seconds.
func TestSilentWorkerServesNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	client := r.server.Client()
	for seen, want := range map[time.Duration]bool{0: true, -7 * time.Second: true, -11 * time.Second: false} {
		now, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		id := "silent-" + r.queue
		text, err := encodeJSON(workers.Info{ID: id, Queues: []string{r.queue}, Kinds: []string{"call"}, Seen: now.Add(seen)})
		if err != nil {
			t.Fatal(err)
		}
		client.Set(t.Context(), workers.Key(id), text, time.Minute)
		client.ZAdd(t.Context(), workers.ListKey, zOf(id, float64(now.UnixMilli())))
		u, err := inspect.New(client).Unserved(t.Context(), r.queue, "call")
		if err != nil || (u == nil) != want {
			t.Errorf("a worker that was seen %v ago: %v, %v", -seen, u, err)
		}
	}
}
