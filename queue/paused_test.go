package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/operate"
)

// TestPauseIsSaid: paused jobs are not reported as held by a limit. Every answer says who
// paused them, until when and why.
func TestPauseIsSaid(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10), sharedBy(100)), nil)
	r.served(t)
	client := r.server.Client()
	var id string
	for range 3 {
		id = r.add(t, nil)
	}
	says := func(until time.Time, wants ...string) {
		t.Helper()
		in := inspect.New(client)
		check := func(what, text string, held *inspect.Hold) {
			t.Helper()
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %s\nwant %s", what, text, want)
				}
			}
			if strings.Contains(text, "held by") || held != nil {
				t.Errorf("%s: %s, held by %v", what, text, held)
			}
		}
		e, err := in.Explain(t.Context(), r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		check("Explain", e.String(), e.HeldBy)
		batch, err := in.Estimate(t.Context(), r.queue, inspect.Batch{Tenant: "a", Kind: "call", Jobs: 3})
		if err != nil {
			t.Fatal(err)
		}
		check("Estimate", batch.String(), batch.HeldBy)
		outlook, err := in.Outlook(t.Context(), r.queue, "a")
		if err != nil {
			t.Fatal(err)
		}
		check("Outlook", outlook.String(), outlook.HeldBy)
		page, err := in.ListTenants(t.Context(), r.queue, inspect.TenantQuery{})
		if err != nil || len(page.Tenants) != 1 || !page.Tenants[0].Next.Equal(until) {
			t.Fatalf("next slots: %+v, %v; want %v", page.Tenants, err, until)
		}
		check("ListTenants", page.Tenants[0].String(), page.Tenants[0].HeldBy)
		overview, err := in.Overview(t.Context(), r.queue)
		if err != nil {
			t.Fatal(err)
		}
		check("Overview", overview.Top.String(), overview.Top.HeldBy)
	}
	ann := operate.Operator{Actor: "ann", Reason: "bounces: ticket 4711"}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, until, ann); err != nil {
		t.Fatal(err)
	}
	says(until, "tenant a is paused by ann until "+until.Local().Format("15:04")+": bounces: ticket 4711; ")
	if _, err := operate.ResumeJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, ann); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Kind: "call"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	says(time.Time{}, "kind call is paused by ann until somebody resumes: bounces: ticket 4711; ", "not known")
	if _, err := operate.ResumeJobs(t.Context(), client, r.queue, inspect.Scope{Kind: "call"}, ann); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(until.UnixMicro(), " provider 429 Too Many Requests")
	if err := client.HSet(t.Context(), store.Key(r.queue, "pauses"), store.WholeQueue, text).Err(); err != nil {
		t.Fatal(err)
	}
	says(until, "the whole queue is paused by the provider until "+until.Local().Format("15:04")+": 429 Too Many Requests; ")
}
