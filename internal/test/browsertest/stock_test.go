package browsertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// stockLimits hold most of what is stocked in place: it is there to be looked at.
const stockLimits = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - name: account
        algorithm: leaky_bucket
        rate: 300/s
      - name: tenant
        per: [tenant]
        algorithm: token_bucket
        rate: 20/s
        burst: 40
      - name: daily
        per: [tenant]
        algorithm: fixed_window
        rate: 10000/day
        timezone: Europe/Berlin
      - name: in-flight
        per: [tenant]
        concurrency: 10
    max_backlog: 100000
  email:
    kinds: [email]
    limits:
      - name: account
        algorithm: leaky_bucket
        rate: 100/s
plans:
  still: {limits: {webhook: {tenant: {rate: 2/hour, burst: 1}}}}
tenants:
  acme: {plan: still, weight: 3}
  globex: {plan: still}
%s`

// hostile are names of tenants that a page can be hurt with.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	"\u202Eevil\u202C \u0645\u0631\u062D\u0628\u0627 \u05E9\u05DC\u05D5\u05DD",
	"\U0001F469\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466\U0001F525 caf\u0065\u0301",
	"../../etc/passwd?a=b&c=d#e%2F",
	"{{constructor.constructor('alert(1)')()}}",
	strings.Repeat("W", 128),
	"a b\u00A0c\u2028d",
}

// limitsOf names the tenants that nothing of goes.
func limitsOf(still ...string) string {
	var b strings.Builder
	for _, name := range still {
		quoted, _ := json.Marshal(name) // JSON's strings are YAML's
		fmt.Fprintf(&b, "  %s: {plan: still}\n", quoted)
	}
	return fmt.Sprintf(stockLimits, b.String())
}

// limitsWith has another limit in place of in-flight; "": none.
func limitsWith(limit string, still ...string) string {
	if limit != "" {
		limit = "      - " + limit + "\n"
	}
	return strings.Replace(limitsOf(still...), `      - name: in-flight
        per: [tenant]
        concurrency: 10
`, limit, 1)
}

// call is a webhook job to the receiver.
func (s *stage) call(tenant, path string) queue.Job {
	body, _ := json.Marshal(map[string]any{"order": 4711, "items": []string{"book", "lamp"}})
	return queue.Job{Kind: "webhook", Tenant: tenant, Payload: webhook.Request{
		URL: s.receiver + path, Headers: map[string]string{"X-Trace": "7f3a"}, Body: body,
	}}
}

// times is the job n times over.
func times(n int, job queue.Job) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = job
	}
	return jobs
}

// enqueue tells the ids, in the order of the jobs.
func (s *stage) enqueue(jobs ...queue.Job) (ids []string) {
	s.t.Helper()
	for i, result := range s.client.EnqueueMany(s.t.Context(), jobs) {
		if result.Err != nil {
			s.t.Fatalf("enqueue job %d: %v", i, result.Err)
		}
		ids = append(ids, result.Receipt.ID)
	}
	return ids
}

// stock puts jobs of every sort there, and waits until each is what it is to be.
// The answer has the id of one of each.
func (s *stage) stock() map[string]string {
	s.t.Helper()
	sample := map[string]string{}
	add := func(name string, jobs ...queue.Job) { sample[name] = s.enqueue(jobs...)[len(jobs)-1] }

	acme := s.call("acme", "/orders")
	acme.Attributes, acme.Headers = map[string]string{"region": "eu"}, map[string]string{"x-request": "r-1"}
	acme.Retention = time.Hour
	acme.Deadline = time.Now().Add(9 * 24 * time.Hour)
	ids := s.enqueue(times(120, acme)...)
	sample["waiting"], sample["refusable"] = ids[119], ids[118]
	add("paused", times(30, s.call("globex", "/orders"))...)
	if _, err := operate.PauseJobs(s.t.Context(), s.rdb, "webhook", inspect.Scope{Tenant: "globex"},
		time.Now().Add(3*time.Hour), operate.Operator{Actor: "anna", Reason: "their endpoint is being moved"}); err != nil {
		s.t.Fatal(err)
	}
	kept := s.call("hooli", "/200/orders")
	kept.Retention = time.Hour
	add("completed", times(25, kept)...)

	later := s.call("umbrella", "/orders")
	later.In, later.Retention = 2*time.Hour, time.Hour
	add("scheduled", times(3, later)...)

	again := s.call("initech", "/500/orders")
	add("retrying", times(4, again)...)
	once := s.call("initech", "/502/orders")
	once.MaxAttempts = 1
	add("exhausted", times(6, once)...)
	add("archived", times(12, s.call("initech", "/404/orders"))...)
	add("refused", times(3, s.call("stark", "/422/orders"))...)
	add("sending", s.call("wayne", "/hang/orders"))

	old := s.call("umbrella", "/orders")
	old.In = time.Hour
	add("cancelled", times(2, old)...)
	if _, err := operate.Apply(s.t.Context(), s.rdb, "webhook", operate.Cancel, operate.Filter{ID: sample["cancelled"]},
		operate.Operator{Actor: "ben", Reason: "ordered twice"}, nil); err != nil {
		s.t.Fatal(err)
	}
	if err := operate.SetOverride(s.t.Context(), s.rdb, "webhook", "hooli", "tenant", operate.Override{
		Change: limits.Change{Burst: new(int64(80))}, Until: time.Now().Add(2 * time.Hour), Actor: "anna", Reason: "launch day",
	}); err != nil {
		s.t.Fatal(err)
	}

	large := s.call("large", "/orders")
	large.Payload = json.RawMessage(fmt.Sprintf(`{"url":"%s/orders","text":"%s"}`, s.receiver, strings.Repeat("<b>1 MB</b> ", (1<<20-200)/12)))
	add("large", times(2, large)...)
	for i, name := range hostile {
		job := s.call(name, "/orders")
		text, _ := json.Marshal(map[string]string{"html": name, "password": "hunter2"})
		job.Payload = json.RawMessage(fmt.Sprintf(`{"url":%q,"body":%s}`, s.receiver+"/orders", text))
		add(fmt.Sprintf("hostile %d", i), times(3, job)...)
	}
	s.settled()
	return sample
}

// settled waits until everything that was stocked is what it is to be.
func (s *stage) settled() {
	s.t.Helper()
	inspector := inspect.New(s.rdb)
	until.Done(s.t, "what was stocked is where it is to be", func() bool {
		o, err := inspector.Overview(s.t.Context(), "webhook")
		return err == nil && o.Archived == 22 && o.Retry+o.Active+o.Pending >= 4 && o.Scheduled == 4
	})
}
