package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestPartitionsAreOneQueue: a queue of four partitions says of itself what an undivided one says, after the
// same jobs and the same acts of operators.
func TestPartitionsAreOneQueue(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	start := func() (*redis.UniversalOptions, redis.UniversalClient) {
		server := redistest.Start(t)
		return server.Options(), server.Client()
	}
	options, client := start()
	one := livedIn(t, options, client, 1)
	is := func(where string, options *redis.UniversalOptions, client redis.UniversalClient) {
		four := livedIn(t, options, client, 4)
		for _, what := range slices.Sorted(maps.Keys(one)) {
			if one[what] != four[what] {
				t.Errorf("%s:\none partition: %s\nfour, %s: %s", what, one[what], where, four[what])
			}
			if strings.Contains(four[what], "q@") {
				t.Errorf("%s names a partition: %s", what, four[what])
			}
		}
	}
	options, client = start()
	is("in one Redis", options, client)
	cluster := redistest.StartCluster(t)
	is("in a Cluster", cluster.Options(), cluster.Client())
}

// livedIn makes a queue with jobs in all states, acts on it, and returns all that it says.
func livedIn(t *testing.T, options *redis.UniversalOptions, client redis.UniversalClient, partitions int) map[string]string {
	t.Helper()
	ctx := t.Context()
	set := limits.Set{
		Queues: map[string]limits.Queue{"q": {
			Kinds: []string{"call", "other"}, Partitions: partitions,
			Limits: []limits.Limit{
				{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 2, Per: []string{"tenant"}},
			},
		}},
		Tenants: map[string]limits.Tenant{"t03": {Weight: 3}, "t04": {Partition: 4}, "t05": {Limits: map[string]map[string]limits.Change{"q": {"tenant": {Burst: new(int64(3))}}}}},
	}
	if partitions == 1 {
		set.Tenants["t04"] = limits.Tenant{Partition: 1}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	enqueue := func(jobs []Job) {
		t.Helper()
		for _, r := range NewClient(client).EnqueueMany(ctx, jobs) {
			must(r.Err)
			if r.Queue != "q" {
				t.Fatalf("%+v", r)
			}
		}
	}

	// Two jobs of each tenant are called, and one of them fails; t05 has three calls.
	fast := limits.Set{Queues: maps.Clone(set.Queues), Tenants: map[string]limits.Tenant{"t04": set.Tenants["t04"]}}
	q := fast.Queues["q"]
	q.Limits = []limits.Limit{perTenant(1000)}
	fast.Queues["q"] = q
	must(operate.Publish(ctx, client, fast))
	calls := []Job{{Kind: "other", Tenant: "t05", Key: "third", Payload: "goes"}}
	for i := range 12 {
		tenant := fmt.Sprintf("t%02d", i)
		calls = append(calls, Job{Kind: "call", Tenant: tenant, Key: "goes", Payload: "goes"}, Job{Kind: "call", Tenant: tenant, Key: "fails", Payload: "fails", MaxAttempts: 1})
	}
	enqueue(calls)
	worker, err := New(Config{Redis: options, Queues: []string{"q"}})
	must(err)
	for _, kind := range []Kind[json.RawMessage]{"call", "other"} {
		Handle(worker, kind, func(_ context.Context, payload json.RawMessage) error {
			if string(payload) == `"fails"` {
				return errors.New("it fails, as it should")
			}
			return nil
		})
	}
	stop := runWorker(t, worker)
	until(t, "all calls were made", func() bool {
		all, err := inspect.New(client).Totals(ctx, "q")
		must(err)
		return all.Calls == int64(len(calls))
	})
	stop()

	must(operate.Publish(ctx, client, set))
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	var jobs []Job
	for i := range 12 {
		tenant := fmt.Sprintf("t%02d", i)
		for n := range i + 1 {
			jobs = append(jobs, Job{Kind: "call", Tenant: tenant, Key: fmt.Sprintf("k%02d", n), Payload: n})
		}
		for n := range 30 { // more than are looked at in one step
			kind := "call"
			if n%10 == i%10 {
				kind = "other"
			}
			jobs = append(jobs, Job{Kind: kind, Tenant: tenant, Key: fmt.Sprint("many", n), At: later.Add(time.Duration(10+(n*7+i)%9) * time.Second)})
		}
		jobs = append(jobs,
			Job{Kind: "other", Tenant: tenant, Key: "o", Payload: "o"},
			Job{Kind: "other", Tenant: tenant, Key: "o2", Payload: "o"},
			Job{Kind: "other", Tenant: tenant, Key: "o3", Payload: "o"},
			Job{Kind: "call", Tenant: tenant, Key: "later", Payload: "later", At: later.Add(time.Duration(i%3) * time.Second)})
	}
	enqueue(jobs)

	said := map[string]string{}
	say := func(what string, value any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		text, err := json.Marshal(value)
		must(err)
		said[what] = string(text)
	}
	by := operate.Operator{Actor: "ann", Reason: "a test"}
	act := func(what string, verb operate.Verb, filter operate.Filter) {
		t.Helper()
		count, err := operate.Count(ctx, client, "q", verb, filter)
		say("counted: "+what, count, err)
		var last operate.Tally
		tally, err := operate.Apply(ctx, client, "q", verb, filter, by, func(now operate.Tally) {
			if now.Jobs < last.Jobs {
				t.Errorf("%s: %d jobs after %d", what, now.Jobs, last.Jobs)
			}
			last = now
		})
		say("done: "+what, tally, err)
	}
	act("retry archived of t06", operate.RetryArchived, operate.Filter{Tenant: "t06"})
	act("cancel others of t03", operate.Cancel, operate.Filter{Kind: "other", Tenant: "t03"})
	act("run others", operate.RunNow, operate.Filter{Kind: "other", State: lifecycle.StateWaiting})
	act("cancel one", operate.Cancel, operate.Filter{ID: "t07:k05"})
	act("cancel scheduled", operate.Cancel, operate.Filter{State: lifecycle.StateScheduled, Tenant: "t01"})
	act("delete by reason", operate.DeleteArchived, operate.Filter{Reason: "as it should", Tenant: "t09"})
	_, err = operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{ID: "t07:none"}, by, nil)
	say("cancel an unknown one", fmt.Sprint(err), nil)
	_, err = operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{ID: "0198f6a2-0000-7000-8000-000000000000"}, by, nil)
	say("cancel an unknown one without a key", fmt.Sprint(err), nil)
	_, err = operate.PauseJobs(ctx, client, "q", inspect.Scope{Tenant: "t02"}, time.Time{}, by)
	must(err)
	_, err = operate.PauseJobs(ctx, client, "q", inspect.Scope{Kind: "other"}, later, by)
	must(err)
	_, err = operate.PauseJobs(ctx, client, "q", inspect.Scope{}, later, by)
	must(err)
	was, err := operate.ResumeJobs(ctx, client, "q", inspect.Scope{}, by)
	say("resumed", was, err)
	was, err = operate.ResumeJobs(ctx, client, "q", inspect.Scope{Tenant: "t08"}, by)
	say("resumed nothing", was, err)
	change := limits.Change{Burst: new(int64(7))}
	for _, tenant := range []string{"t10", "t11"} {
		must(operate.SetOverride(ctx, client, "q", tenant, "tenant", operate.Override{Change: change, Reason: "a test", Actor: "ann", Until: later}))
	}
	was, err = operate.ClearOverride(ctx, client, "q", "t11", "tenant", by)
	say("cleared", was, err)

	asked(t, client, said, say)
	for _, id := range []string{"t05:k00", "t06:fails", "t07:k05", "t08:later", "t08:none"} {
		r, err := NewClient(client).Result(ctx, "q", id)
		say("result of "+id, []any{r.Queue, r.Tenant, r.State, r.Outcome, r.Err, r.EndedAt.IsZero(), errors.Is(err, lifecycle.ErrNoJob)}, nil)
	}
	say("unregister", fmt.Sprint(operate.Unregister(ctx, client, "q", by)), nil)
	for _, verb := range []operate.Verb{operate.Cancel, operate.DeleteArchived} {
		if _, err := operate.Apply(ctx, client, "q", verb, operate.Filter{}, by, nil); err != nil {
			t.Error(err)
		}
	}
	return said
}

// asked asks all that can be asked about a queue.
func asked(t *testing.T, client redis.UniversalClient, said map[string]string, say func(string, any, error)) {
	t.Helper()
	ctx, in := t.Context(), inspect.New(client)
	queues, err := inspect.Queues(ctx, client)
	say("queues", queues, err)

	var ids []string
	for _, state := range []lifecycle.State{lifecycle.StateWaiting, lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StatePending, lifecycle.StateActive, lifecycle.StateArchived} {
		for _, q := range []inspect.JobQuery{{State: state, Limit: 3}, {State: state, Limit: 200}, {State: state, Limit: 2, Tenant: "t07"}, {State: state, Kind: "other", Limit: 4}} {
			var listed []string
			for page := 0; ; page++ {
				rows, err := in.ListJobs(ctx, "q", q)
				if err != nil || page > 1000 {
					t.Fatalf("%+v: page %d, %v", q, page, err)
				}
				for _, row := range rows.Jobs {
					listed = append(listed, fmt.Sprint(row.ID, " ", row.State, " ", row.Outcome, " ", row.Reason))
					ids = append(ids, row.ID)
				}
				if q.Cursor = rows.Next; rows.Next == "" {
					break
				}
			}
			if state != lifecycle.StateWaiting && state != lifecycle.StateScheduled {
				slices.Sort(listed) // they came into this state at other times
			}
			q.Cursor = ""
			say(fmt.Sprintf("jobs %+v", q), listed, nil)
		}
	}
	slices.Sort(ids)
	for _, id := range append(slices.Compact(ids), "t01:none", "0198f6a2-0000-7000-8000-000000000000") {
		e, err := in.Explain(ctx, "q", id)
		say("explain "+id, []any{e.Queue, e.State, e.Outcome, e.Tenant, e.Kind, e.Lane, e.Position, e.TenantPosition, e.Waiting, e.Confidence, e.HeldBy != nil, e.Pause != nil, e.Unserved, errors.Is(err, lifecycle.ErrNoJob)}, nil)
		tenant, kind, err := in.Owner(ctx, "q", id)
		say("owner "+id, []any{tenant, kind, errors.Is(err, lifecycle.ErrNoJob)}, nil)
		job, err := in.Job(ctx, "q", id)
		say("job "+id, []any{string(job.Payload), job.Cost, job.Locked, len(job.Timeline), errors.Is(err, lifecycle.ErrNoJob)}, nil)
		of, err := inspect.QueuesOf(ctx, client, id)
		say("queues of "+id, of, err)
	}

	for _, q := range []inspect.TenantQuery{
		{Limit: 5}, {Limit: 200}, {Sort: inspect.ByTenant, Limit: 3}, {Sort: inspect.ByTenant, Ascending: true, Limit: 3}, {Sort: inspect.ByWeight, Limit: 4},
		{Sort: inspect.ByDrains, Limit: 3}, {Sort: inspect.ByDrains, Ascending: true, Limit: 3}, {Only: inspect.OnlyPaused}, {Only: inspect.OnlyOverridden}, {Only: inspect.OnlyOwn}, {Search: "T1", Limit: 2}, {Offset: 100},
	} {
		var listed []string
		first := q.Offset
		for {
			page, err := in.ListTenants(ctx, "q", q)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range page.Tenants {
				listed = append(listed, fmt.Sprint(row.Queue, row.Tenant, row.Waiting, row.Done, row.Stored, row.Weight, row.Limit, row.Overridden, len(row.Pauses), row.Own, page.Total))
			}
			if q.Offset += len(page.Tenants); len(page.Tenants) == 0 {
				break
			}
		}
		q.Offset = first
		say(fmt.Sprintf("tenants %+v", q), listed, nil)
	}
	for _, tenant := range []string{"t00", "t02", "t04", "t05", "t10", "unknown"} {
		d, err := in.Tenant(ctx, "q", tenant)
		say("tenant "+tenant, []any{d.Queue, d.Waiting, d.Done, d.Stored, d.Limit, d.Capacity, len(d.Limits), len(d.Recent), d.Pause != nil, d.Confidence}, err)
		o, err := in.Outlook(ctx, "q", tenant)
		say("outlook "+tenant, []any{o.Queue, o.Waiting, o.Pause != nil, o.HeldBy != nil, o.Confidence}, err)
		b, err := in.Estimate(ctx, "q", inspect.Batch{Tenant: tenant, Kind: "call", Jobs: 3})
		say("estimate "+tenant, []any{b.Waiting, b.Confidence, b.HeldBy != nil, b.Pause != nil, b.Unserved}, err)
		rules, err := inspect.LimitsInForce(ctx, client, "q", tenant)
		say("limits "+tenant, withoutTimes(rules), err)
		p, err := in.Preview(ctx, "q", tenant, "tenant", limits.Change{Burst: new(int64(9))})
		say("preview "+tenant, []any{p.Before.Waiting, p.After.Waiting, p.Before.Queue}, err)
	}

	o, err := in.Overview(ctx, "q")
	say("overview", []any{o.Queue, o.Waiting, o.Scheduled, o.Retry, o.Pending, o.Active, o.Archived, o.Enqueued, o.Tenants, o.Stored, o.StoredBytes, o.Confidence, o.DrainsAt.IsZero(), o.Answers, o.Calls, o.Unserved, o.UnservedJobs, o.Top.Tenant, len(o.Faults)}, err)
	say("pauses of the overview", scopesOf(o.Pauses), nil)
	g, err := in.Gauges(ctx, "q")
	say("gauges", []any{g.Queue, g.Waiting, g.Scheduled, g.Retry, g.Pending, g.Active, g.Archived, g.Completed, g.Enqueued, g.Tenants, g.Stored, g.StoredBytes, len(g.Limits), g.Limits[0].Name, g.Limits[0].PerSecond, scopesOf(g.Pauses), g.Asynq.Archived, g.Asynq.Processed, g.Asynq.Failed, g.Asynq.Paused}, err)
	gauges, err := in.TenantGauges(ctx, "q", []string{"t11", "t00", "unknown", "t04"})
	say("gauges of tenants", gauges, err)
	totals, err := in.Totals(ctx, "q")
	say("totals", []any{totals.Queue, totals.Enqueued, totals.Waiting, totals.Answers, totals.Calls}, err)
	unserved, err := in.UnservedJobs(ctx)
	say("unserved", unserved, err)
	failures, err := in.Failures(ctx, "q", "")
	say("failures", groupsOf(failures), err)
	failures, err = in.Failures(ctx, "q", "t03")
	say("failures of t03", groupsOf(failures), err)
	failed, err := in.FailedByTenant(ctx, "q")
	say("failed by tenant", failed, err)
	pauses, err := inspect.Pauses(ctx, client, "q")
	say("pauses", scopesOf(pauses), err)
	_, calls, err := inspect.Completed(ctx, client, "q")
	say("completed", calls, err)
	overrides, err := inspect.Overrides(ctx, client, "q")
	say("overrides", len(overrides), err)
	overrides, err = inspect.Overrides(ctx, client, "q", "t10", "t00")
	say("overrides of some", []any{len(overrides), overrides[0].Tenant, overrides[0].Burst}, err)
	entries, err := operate.Audit(ctx, client, "q", 100)
	var acts []string
	for _, e := range entries {
		acts = append(acts, fmt.Sprint(e.Action, e.Queue, e.Actor == "ann", e.Tenant, e.Kind, e.ID, e.Limit, e.Count))
	}
	say("audit", acts, err)

	events, err := inspect.Events(ctx, client, "q", "", inspect.MaxEvents)
	var found, in2 []string
	for _, e := range events {
		found, in2 = append(found, fmt.Sprint(e.Queue, e.Job, e.Outcome, e.Answer)), append(in2, e.ID)
	}
	paged := []string{in2[0]}
	for {
		page, err := inspect.Events(ctx, client, "q", paged[len(paged)-1], 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			paged = append(paged, e.ID)
		}
		if len(page) == 0 {
			break
		}
	}
	if !slices.Equal(paged, in2) {
		t.Errorf("events in pages: %v\nat once: %v", paged, in2)
	}
	slices.Sort(found)
	say("events", found, err)
}

func scopesOf(pauses []inspect.Pause) (all []string) {
	for _, p := range pauses {
		all = append(all, fmt.Sprint(p.Scope, p.By, p.Reason))
	}
	return all
}

func groupsOf(groups []inspect.FailureGroup) (all []string) {
	for _, g := range groups {
		all = append(all, fmt.Sprint(g.FailureKey, g.Jobs, g.Tenants))
	}
	slices.Sort(all)
	return all
}

func withoutTimes(rules []limits.Effective) []limits.Effective {
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Until = time.Time{}
	}
	return rules
}
