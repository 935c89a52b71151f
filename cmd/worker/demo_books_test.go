package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/throttle"
)

// startDemo is a demo without a worker, and what it prints.
func startDemo(t *testing.T) (*demo, *bytes.Buffer) {
	t.Helper()
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(providers.close)
	var out bytes.Buffer
	d := newDemo(redistest.Start(t).Client(), providers, &lateness{}, &out)
	if err := queue.Publish(t.Context(), d.client, demoLimits()); err != nil {
		t.Fatal(err)
	}
	d.final = d.uses()
	return d, &out
}

// TestDevCountsJobsFromOutside: jobs of a second terminal are counted apart, those of
// however many tenants are found again, and what somebody deleted is not lost.
func TestDevCountsJobsFromOutside(t *testing.T) {
	d, out := startDemo(t)
	ctx := t.Context()
	if err := d.topUp(ctx); err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, n := range d.made {
		own += n
	}
	const outside = 450
	for i := range outside {
		job := d.providers.job(demoTenants[0], i)
		if job.Tenant = fmt.Sprint("outside-", i); i == 0 {
			job.At = time.Now().Add(time.Hour)
		}
		if _, err := d.enqueue.Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	// All but the first are done, as far as Redis knows.
	client, by := d.client, queue.Operator{Actor: "ann", Reason: "a test"}
	for i := 1; i < outside; i++ {
		filter := queue.Filter{Tenant: fmt.Sprint("outside-", i)}
		if _, err := queue.Apply(ctx, client, "webhook", queue.Cancel, filter, by, nil); err != nil {
			t.Fatal(err)
		}
	}
	client.Del(ctx, "asynq:{webhook}:archived")
	for i := 1; i < outside; i++ {
		client.HIncrBy(ctx, "headgate:{webhook}:done", fmt.Sprint("outside-", i), 1)
	}
	err := d.account(ctx)
	want := fmt.Sprintf("  jobs: %d enqueued, %d of them from outside, %d done, %d still waiting, 0 called twice, 0 unaccounted for\n", own+outside, outside, outside-1, own+1)
	if err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}

	out.Reset()
	filter := queue.Filter{Tenant: "outside-0"}
	for _, verb := range []queue.Verb{queue.Cancel, queue.DeleteArchived} {
		if tally, err := queue.Apply(ctx, client, "webhook", verb, filter, by, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%s: %+v, %v", verb, tally, err)
		}
	}
	if err := d.account(ctx); err != nil || !strings.Contains(out.String(), fmt.Sprintf(" %d still waiting, 1 deleted, ", own)) {
		t.Errorf("one was deleted: %v\n%s", err, out)
	}
}

// TestDevTellsWhoBrokeALimit: calls that a provider refuses because an operator raised
// a limit or ran jobs past it are listed, and are not the demo's fault.
func TestDevTellsWhoBrokeALimit(t *testing.T) {
	d, out := startDemo(t)
	ctx := t.Context()
	tooMany := func(tenant string) {
		t.Helper()
		for range 20 {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.providers.web.URL()+"/"+tenant, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set(clients.HeaderTenant, tenant)
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
	}
	rate := throttle.PerSecond(1000)
	raised := queue.Override{Change: queue.Change{Rate: &rate}, Actor: "ann", Reason: "a test"}
	if err := queue.SetOverride(ctx, d.client, "webhook", "acme", "tenant", raised); err != nil {
		t.Fatal(err)
	}
	tooMany("acme")
	if err := d.account(ctx); err != nil || !strings.Contains(out.String(), "calls that an operator let past a limit, and that the provider refused: ") {
		t.Errorf("%v\n%s", err, out)
	}
	rate = throttle.PerSecond(20)
	if err := queue.SetOverride(ctx, d.client, "webhook", "globex", "tenant", raised); err != nil {
		t.Fatal(err)
	}
	tooMany("globex")
	if err := d.account(ctx); err == nil || !strings.Contains(err.Error(), " of globex at ") {
		t.Errorf("nobody raised a limit of globex: %v", err)
	}
}
