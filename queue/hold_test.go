package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// TestPauseScopes: a pause holds waiting and released jobs. Jobs outside of it go on,
// calls in flight finish, and everything goes after the pause.
func TestPauseScopes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scope inspect.Scope
		held  func(tenant, kind string) bool
	}{
		"tenant": {inspect.Scope{Tenant: "a:b"}, func(tenant, _ string) bool { return tenant == "a:b" }},
		"kind":   {inspect.Scope{Kind: "other:x"}, func(_, kind string) bool { return kind == "other:x" }},
		"queue":  {inspect.Scope{}, func(string, string) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			limits := limitsOf(perTenant(1000))
			q := limits.Queues[""]
			q.Kinds = []string{"call", "other:x"} // two of them: lanes are split
			limits.Queues[""] = q
			r := startRig(t, -1, limits, nil)
			client := r.server.Client()
			Handle(r.worker, "other:x", func(ctx context.Context, _ any) error { r.take(ctx); return nil })
			held := map[string]bool{}
			free := 0
			for _, tenant := range []string{"a:b", "c"} {
				for _, kind := range []string{"call", "other:x"} {
					for range 3 {
						id := r.add(t, func(job *Job) { job.Tenant, job.Kind = tenant, kind })
						if test.held(tenant, kind) {
							held[id] = true
						} else {
							free++
						}
					}
				}
			}
			pause, err := operate.PauseJobs(t.Context(), client, r.queue, test.scope, time.Time{}, ann)
			if err != nil || pause.Scope != test.scope || !pause.Until.IsZero() || pause.By != "operator" || pause.Reason != "ann: the campaign was a mistake" {
				t.Fatalf("%+v, %v", pause, err)
			}
			if all, err := inspect.Pauses(t.Context(), client, r.queue); err != nil || !slices.Equal(all, []inspect.Pause{pause}) {
				t.Errorf("Pauses = %+v, %v", all, err)
			}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), free)
			r.seen.wait(t, "round", 40) // time enough for what is held to go, if it could
			r.mu.Lock()
			for id, n := range r.jobs {
				if held[id] || n != 1 {
					t.Errorf("job %s was called %d times under the pause", id, n)
				}
			}
			r.mu.Unlock()
			later := strconv.FormatInt(client.Time(t.Context()).Val().Add(time.Second).UnixMicro(), 10)
			if was, err := operate.ResumeJobs(t.Context(), client, r.queue, test.scope, ann); err != nil || !was {
				t.Errorf("ResumeJobs = %v, %v", was, err)
			}
			if lanes := client.ZRange(t.Context(), store.Key(r.queue, "waiting"), 0, -1).Val(); client.ZCount(t.Context(), store.Key(r.queue, "waiting"), later, "+inf").Val() > 0 {
				t.Errorf("some of %v still wait after the pause", lanes)
			}
			r.seen.wait(t, string(lifecycle.Done), 12)
			if was, err := operate.ResumeJobs(t.Context(), client, r.queue, test.scope, ann); err != nil || was {
				t.Errorf("a second time: %v, %v", was, err)
			}
			entries, err := operate.Audit(t.Context(), client, r.queue, 10)
			if err != nil || len(entries) != 3 || entries[0].Action != "resume" || entries[1].Action != "pause" || entries[1].Reason != ann.Reason {
				t.Errorf("the audit says %+v, %v", entries, err)
			}
		})
	}
}

// TestUnreadableAudit: an entry that no program of ours wrote is an error that names it.
func TestUnreadableAudit(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	list := store.Key(r.queue, "audit:key:ann")
	for _, text := range []string{"{}", "null", "{", `"pause"`} {
		client.LPush(t.Context(), list, text)
		if entries, err := operate.Audit(t.Context(), client, r.queue, 10); err == nil || !strings.Contains(err.Error(), "read the audit of queue") {
			t.Errorf("%s: %+v, %v", text, entries, err)
		}
		client.LPop(t.Context(), list)
	}
	if entries, err := operate.Audit(t.Context(), client, r.queue, 10); err != nil || len(entries) != 2 {
		t.Errorf("without it: %+v, %v; want the pause and the limits", entries, err)
	}
}

// TestResumeAfterProvider: operators can also resume a provider's pause, with the buckets
// that it stopped.
func TestResumeAfterProvider(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(100)), nil)
	first := true
	r.answer = func(context.Context, Running) error {
		if first {
			first = false
			return slowDown{}
		}
		return nil
	}
	r.enqueue(t, "a", 1)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	pauses, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue)
	if err != nil || len(pauses) != 1 || pauses[0].By != "provider" || pauses[0].Tenant != "a" {
		t.Fatalf("%+v, %v", pauses, err)
	}
	if was, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, ann); err != nil || !was {
		t.Fatalf("%v, %v", was, err)
	}
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if slots := r.seen.n["missed"]; slots > 5 {
		t.Errorf("the worker asked for %d slots", slots)
	}
}

// slowDown is an error as package clients makes them: the provider wants fewer calls.
type slowDown struct{}

func (slowDown) Error() string             { return "slow down" }
func (slowDown) RetryAfter() time.Duration { return time.Hour }

func TestPauseLaterEndWins(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	soon, far := time.Now().Add(time.Minute).Truncate(time.Microsecond), time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for i, step := range []struct{ until, want time.Time }{{soon, soon}, {far, far}, {soon, far}, {time.Time{}, time.Time{}}, {far, time.Time{}}} {
		pause, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, step.until, ann)
		if err != nil || !pause.Until.Equal(step.want) {
			t.Errorf("step %d: %+v, %v; want it until %v", i, pause, err, step.want)
		}
	}
	for what, test := range map[string]struct {
		scope inspect.Scope
		until time.Time
		by    operate.Operator
		want  string
	}{
		"past":            {inspect.Scope{}, time.Now().Add(-time.Second), ann, "until: "},
		"year 9999":       {inspect.Scope{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ann, "until: "},
		"tenant and kind": {inspect.Scope{Tenant: "a", Kind: "call"}, time.Time{}, ann, "tenant: pause a tenant or a kind"},
		"tenant":          {inspect.Scope{Tenant: "a\n"}, time.Time{}, ann, "tenant: "},
		"kind":            {inspect.Scope{Kind: "*"}, time.Time{}, ann, "kind: "},
		"nobody":          {inspect.Scope{}, time.Time{}, operate.Operator{}, "actor: "},
	} {
		if _, err := operate.PauseJobs(t.Context(), client, r.queue, test.scope, test.until, test.by); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v; want %s", what, err, test.want)
		}
	}
	if _, err := operate.PauseJobs(t.Context(), client, "nobody", inspect.Scope{}, time.Time{}, ann); err == nil {
		t.Error("a queue that is not there was paused")
	}
}

// TestRunNowLeavesPaused: the verb run does not run paused jobs, and the tally says so.
func TestRunNowLeavesPaused(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	r.enqueue(t, "a", 2)
	r.enqueue(t, "b", 1)
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	for _, run := range []func() (operate.Tally, error){
		func() (operate.Tally, error) {
			return operate.Count(t.Context(), client, r.queue, operate.RunNow, operate.Filter{})
		},
		func() (operate.Tally, error) {
			return operate.Apply(t.Context(), client, r.queue, operate.RunNow, operate.Filter{}, ann, nil)
		},
	} {
		if tally, err := run(); err != nil || tally.Jobs != 1 || tally.Paused != 2 {
			t.Errorf("%+v, %v", tally, err)
		}
	}
}

func TestOverridesInTheAudit(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(100)), nil)
	client, ctx := r.server.Client(), t.Context()
	fast := throttle.PerSecond(25)
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	if err := operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Until: until, Reason: "sale", Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	all, err := inspect.LimitsInForce(ctx, client, r.queue, "a")
	if err != nil || len(all) != 2 || all[0].From != "override" || all[0].Rate != "25/s" || all[0].Actor != "ann" || !all[0].Until.Equal(until) || all[1].Rate != "100/s" {
		t.Errorf("LimitsInForce = %+v, %v", all, err)
	}
	page, err := inspect.New(client).ListTenants(ctx, r.queue, inspect.TenantQuery{})
	if err != nil || len(page.Tenants) != 1 || !page.Tenants[0].Overridden || page.Tenants[0].Weight != 1 {
		t.Errorf("ListTenants = %+v, %v", page, err)
	}
	if was, err := operate.ClearOverride(ctx, client, r.queue, "a", "tenant", operate.Operator{Actor: "bob", Reason: "sale is over"}); err != nil || !was {
		t.Errorf("ClearOverride = %v, %v", was, err)
	}
	if was, err := operate.ClearOverride(ctx, client, r.queue, "a", "tenant", operate.Operator{Actor: "bob", Reason: "again"}); err != nil || was {
		t.Errorf("ClearOverride of none = %v, %v", was, err)
	}
	entries, err := operate.Audit(ctx, client, r.queue, 10)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	if e := entries[0]; e.Action != "clear" || e.Actor != "bob" || e.Before["tenant"] != "25/s, burst 1" || e.After["tenant"] != "10/s, burst 1" {
		t.Errorf("the audit says %+v", e)
	}
	if e := entries[1]; e.Action != "override" || e.Tenant != "a" || e.Limit != "tenant" || e.Reason != "sale" || !e.Until.Equal(until) || e.After["tenant"] != "25/s, burst 1" {
		t.Errorf("the audit says %+v", e)
	}
	for what, err := range map[string]error{
		"nothing":  operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Reason: "x", Actor: "x"}),
		"past":     operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Until: time.Unix(1, 0), Reason: "x", Actor: "x"}),
		"far":      operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Until: time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC), Reason: "x", Actor: "x"}),
		"no actor": operate.SetOverride(ctx, client, r.queue, "a", "tenant", operate.Override{Change: limits.Change{Rate: &fast}, Reason: "x"}),
		"limit":    operate.SetOverride(ctx, client, r.queue, "a", "tenat", operate.Override{Change: limits.Change{Rate: &fast}, Reason: "x", Actor: "x"}),
	} {
		if _, invalid := errors.AsType[*validation.Error](err); !invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWeightsAreLive: a tenant's new weight applies to jobs that already wait.
func TestWeightsAreLive(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(sharedBy(10_000)), nil)
	r.enqueue(t, "a", 200)
	r.enqueue(t, "b", 200)
	of := map[string]string{}
	for _, tenant := range []string{"a", "b"} {
		for _, id := range r.server.Client().ZRange(t.Context(), asynqwire.Key(r.queue, "g:"+tenant+";kind=call"), 0, -1).Val() {
			of[id] = tenant
		}
	}
	d, counted := r.dispatcher(), 0
	share := func() (a int) {
		t.Helper()
		var ids []string
		for len(ids) < counted+40 {
			ids = r.release(t, d, 40)
		}
		for _, id := range ids[counted : counted+40] {
			if of[id] == "a" {
				a++
			}
		}
		counted = len(ids)
		return a
	}
	share() // until their turns are even
	share()
	if a := share(); a < 18 || a > 22 {
		t.Errorf("%d of 40 are a's at equal weights", a)
	}
	limits := limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{sharedBy(10_000)}}}, Tenants: map[string]limits.Tenant{"a": {Weight: 3}}}
	if err := operate.Publish(t.Context(), r.server.Client(), limits); err != nil {
		t.Fatal(err)
	}
	if a := share(); a < 28 || a > 32 {
		t.Errorf("%d of 40 are a's at weight 3 of 4", a)
	}
}

// TestPublishInTheAudit: published limits are in the audit once, however many workers
// publish them, and only with their changes.
func TestPublishInTheAudit(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10), sharedBy(100)), nil)
	client := r.server.Client()
	limits := limits.Set{
		Queues:  map[string]limits.Queue{r.queue: {Limits: []limits.Limit{perTenant(20), sharedBy(100)}, MaxBacklog: 7}},
		Tenants: map[string]limits.Tenant{"a b": {Weight: 3}},
	}
	errs := make(chan error)
	for range 8 {
		go func() { errs <- operate.Publish(context.Background(), client, limits) }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	entries, err := operate.Audit(t.Context(), client, r.queue, 10)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%+v, %v", entries, err)
	}
	e := entries[0]
	if e.Action != "publish" || !strings.HasPrefix(e.Actor, "queue.test on ") || !strings.HasSuffix(e.Actor, fmt.Sprintf(", process %d", os.Getpid())) || len(e.Before) != 1 || e.Before["tenant"] != "token_bucket 10/s, burst 1, per tenant" ||
		len(e.After) != 3 || e.After["tenant"] != "token_bucket 20/s, burst 1, per tenant" || e.After["max_backlog"] != "7" || e.After["a b: weight"] != "3" {
		t.Errorf("the audit says %+v", e)
	}
	if left := redistest.Keys(t, client, store.Key(r.queue, "limits:*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if ttl := client.TTL(t.Context(), store.Key(r.queue, "limits")).Val(); ttl != -1 {
		t.Errorf("the limits expire in %v", ttl)
	}
}

// TestShareOfTheAudit: however much one API key changes, what others did stays in the audit.
func TestShareOfTheAudit(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const share = 2000
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	pause := func(actor string, tenant int) {
		t.Helper()
		scope := inspect.Scope{Tenant: fmt.Sprintf("t%d", tenant)}
		if _, err := operate.PauseJobs(t.Context(), client, r.queue, scope, time.Time{}, operate.Operator{Actor: actor, Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
	}
	pause("ops", 0)
	pause("cli:ann", 1)
	for i := range share + 10 {
		pause("greedy", i)
	}
	r.enqueue(t, "a", 1)
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{}, operate.Operator{Actor: "cli:bob", Reason: "a test"}, nil); err != nil {
		t.Fatal(err)
	}
	all, err := operate.Audit(t.Context(), client, r.queue, operate.MaxAudit)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for i, e := range all {
		n[e.Actor]++
		if i > 0 && e.At.After(all[i-1].At) {
			t.Fatalf("entry %d is newer than the one before it", i)
		}
	}
	if n["ops"] != 1 || n["cli:ann"] != 1 || n["cli:bob"] != 1 || n["greedy"] != share || len(n) != 5 { // and the program that published limits
		t.Errorf("%v", n)
	}
	if newest, err := operate.Audit(t.Context(), client, r.queue, 1); err != nil || len(newest) != 1 || newest[0].Actor != "cli:bob" || newest[0].Count != 1 {
		t.Errorf("%+v, %v", newest, err)
	}
	for _, n := range []int{0, -1, operate.MaxAudit + 1} {
		if _, err := operate.Audit(t.Context(), client, r.queue, n); err == nil {
			t.Errorf("%d entries: no error", n)
		}
	}
}
