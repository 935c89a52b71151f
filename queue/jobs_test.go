package queue

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// everyJob reads all pages of a list and calls each between two pages.
func everyJob(t *testing.T, inspector *inspect.Inspector, queue string, q inspect.JobQuery, each func()) (all []inspect.JobRow) {
	t.Helper()
	for range 1000 {
		page, err := inspector.ListJobs(t.Context(), queue, q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
		if each != nil {
			each()
		}
	}
	t.Fatal("the list has no end")
	return nil
}

func idsOf(rows []inspect.JobRow) (ids []string) {
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

func TestListWaitingJobs(t *testing.T) {
	t.Parallel()
	limits := limitsOf(perTenant(10))
	q := limits.Queues[""]
	q.Kinds = []string{redistest.Queue(t) + "-call", redistest.Queue(t) + "-mail"}
	limits.Queues[""] = q
	r := startRig(t, 0, limits, nil)
	want := map[string][]string{}
	for i := range 120 {
		tenant := []string{"a", "a;b", "z%"}[i%3]
		id := r.add(t, func(job *Job) {
			job.Tenant, job.Kind, job.Payload = tenant, q.Kinds[i/3%2], strings.Repeat("x", 10_000)
		})
		want[tenant] = append(want[tenant], id)
	}
	high := r.add(t, func(job *Job) { job.Kind, job.Priority = q.Kinds[1], High })
	want["a"] = append([]string{high}, want["a"]...)
	inspector := inspect.New(r.server.Client())
	for tenant, ids := range want {
		// Each kind has its own lane. The list has both in the order in which they go.
		got := everyJob(t, inspector, r.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Tenant: tenant, Limit: 7}, nil)
		if !slices.Equal(idsOf(got), ids) {
			t.Errorf("of %s: %d in the order %v, want %v", tenant, len(got), idsOf(got), ids)
		}
	}
	all := everyJob(t, inspector, r.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Limit: 11}, nil)
	seen := map[string]bool{}
	for _, row := range all {
		seen[row.ID] = true
		if row.State != lifecycle.StateWaiting || row.Attempt != 1 || time.Since(row.At).Abs() > time.Minute || row.Priority != string(Normal) && row.ID != high {
			t.Errorf("%+v", row)
		}
	}
	if len(all) != 121 || len(seen) != 121 {
		t.Errorf("%d are listed, %d of them once", len(all), len(seen))
	}
	if !slices.IsSortedFunc(all, func(a, b inspect.JobRow) int { return strings.Compare(a.Tenant, b.Tenant) }) {
		t.Error("not one tenant after the other")
	}
	if got := everyJob(t, inspector, r.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Kind: q.Kinds[1]}, nil); len(got) != 61 {
		t.Errorf("%d of the second kind, want 61", len(got))
	}
}

// TestListJobsWhileTheyMove: the next page starts after the last job of the page before, even
// if that job is gone. No job that stays is missed or listed twice.
func TestListJobsWhileTheyMove(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10)), nil)
	at := time.Now().Add(time.Hour)
	var ids []string
	for i := range 300 {
		job := Job{Kind: "call", Tenant: "a", Queue: r.queue, Key: fmt.Sprintf("%03d", i), At: at, Payload: i}
		receipt, err := r.client.Enqueue(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, receipt.ID)
	}
	gone, next := map[string]bool{}, 0
	got := everyJob(t, inspect.New(r.server.Client()), r.queue, inspect.JobQuery{State: lifecycle.StateScheduled, Limit: 20}, func() {
		// The last listed job, and some before it, are run by another tool.
		for _, i := range []int{next, next + 5, next + 19} {
			gone[ids[i]] = true
			r.server.Client().ZRem(t.Context(), asynqwire.Key(r.queue, "scheduled"), ids[i])
		}
		next += 20
	})
	if !slices.Equal(idsOf(got), ids) {
		t.Errorf("%d of %d listed: %v", len(got), len(ids), idsOf(got))
	}
	if len(gone) < 3 || got[0].At.Unix() != at.Truncate(time.Second).Unix()+1 && got[0].At.Unix() != at.Unix() {
		t.Errorf("%d went, the first is due at %v, want %v", len(gone), got[0].At, at)
	}
}

func TestListJobsByState(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(1000)), nil)
	r.retriesIn = 50 * time.Second
	under, end := make(chan struct{}), make(chan struct{})
	r.answer = func(ctx context.Context, job Running) error {
		switch job.Tenant {
		case "fails":
			return errors.New("500 from the provider")
		case "never":
			return permanent{}
		case "works":
			close(under)
			<-end
		}
		return nil
	}
	for _, tenant := range []string{"fails", "never", "works"} {
		r.add(t, func(job *Job) { job.Tenant = tenant })
	}
	r.run(t)
	<-under
	until(t, "put away by asynq", func() bool {
		states := r.states(t)
		return states["retry"] == 1 && states["archived"] == 1
	})
	inspector := inspect.New(r.server.Client())
	for state, want := range map[lifecycle.State]inspect.JobRow{
		lifecycle.StateRetry:    {Tenant: "fails", Attempt: 2, Reason: "500 from the provider"},
		lifecycle.StateArchived: {Tenant: "never", Attempt: 1, Reason: "never take it", Outcome: lifecycle.Archived},
		lifecycle.StateActive:   {Tenant: "works", Attempt: 1},
		lifecycle.StatePending:  {},
	} {
		page, err := inspector.ListJobs(t.Context(), r.queue, inspect.JobQuery{State: state})
		if err == nil && want.Tenant == "" && len(page.Jobs) == 0 {
			continue
		}
		if err != nil || len(page.Jobs) != 1 || page.Next != "" {
			t.Errorf("%s: %+v, %v", state, page, err)
			continue
		}
		row := page.Jobs[0]
		if row.Tenant != want.Tenant || row.Kind != "call" || row.Attempt != want.Attempt || !strings.Contains(row.Reason, want.Reason) || row.Outcome != want.Outcome ||
			row.State != state || time.Since(row.At).Abs() > time.Minute {
			t.Errorf("%s: %+v", state, row)
		}
		for _, other := range []inspect.JobQuery{{Tenant: "other"}, {Kind: "other"}} {
			other.State = state
			if page, err := inspector.ListJobs(t.Context(), r.queue, other); err != nil || len(page.Jobs) != 0 {
				t.Errorf("%+v: %+v, %v", other, page, err)
			}
		}
	}
	close(end)
}

// TestListJobsIsBounded: a page without matches still ends, and the next page goes on from
// there.
func TestListJobsIsBounded(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(1)), nil)
	r.enqueue(t, "a", 1200)
	r.add(t, func(job *Job) { job.Kind = "other" })
	inspector := inspect.New(r.server.Client())
	pages := 0
	rows := everyJob(t, inspector, r.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Tenant: "a", Kind: "other"}, func() { pages++ })
	if len(rows) != 1 || pages != 2 {
		t.Errorf("%d found on %d pages; want 1 on 3, of 500 each", len(rows), pages+1)
	}
}

// TestListJobsReadsEachLaneOnce: a page of many short lanes costs Redis no more than a page
// of one long lane.
func TestListJobsReadsEachLaneOnce(t *testing.T) {
	t.Parallel()
	const lanes, each = 50, 2 // as many as are asked at once
	server := redistest.Start(t)
	var jobs []Job
	for i := range lanes * each {
		jobs = append(jobs, Job{Kind: "call", Queue: "q", Tenant: fmt.Sprint("tenant-", i%lanes), Payload: i})
	}
	enqueueAll(t, NewClient(server.Client()), jobs...)
	before := redistest.Calls(t, server.Client(), "zrange")
	page, err := inspect.New(server.Client()).ListJobs(t.Context(), "q", inspect.JobQuery{State: lifecycle.StateWaiting, Limit: lanes})
	if err != nil || len(page.Jobs) != lanes {
		t.Fatalf("%d jobs, %v", len(page.Jobs), err)
	}
	// Each lane of the page is read to its end. Of the next lane the page only sees that
	// it has jobs.
	if n := redistest.Calls(t, server.Client(), "zrange") - before; n > 2*lanes/each+1 {
		t.Errorf("%d pieces of lanes were read for %d jobs, %d in a lane", n, lanes, each)
	}
}

func TestJobQueriesAreChecked(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(10)), nil)
	r.enqueue(t, "a", 3)
	inspector := inspect.New(r.server.Client())
	for _, test := range []struct {
		field string
		q     inspect.JobQuery
	}{
		{"state", inspect.JobQuery{}}, {"state", inspect.JobQuery{State: "completed"}}, {"limit", inspect.JobQuery{State: lifecycle.StateRetry, Limit: 201}}, {"limit", inspect.JobQuery{State: lifecycle.StateRetry, Limit: -1}},
		{"tenant", inspect.JobQuery{State: lifecycle.StateRetry, Tenant: "\x00"}}, {"kind", inspect.JobQuery{State: lifecycle.StateRetry, Kind: "a b"}}, {"reason", inspect.JobQuery{State: lifecycle.StateRetry, Reason: "x"}},
		{"reason", inspect.JobQuery{State: lifecycle.StateArchived, Reason: "a\nb"}},
		{"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: "x"}}, {"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: " -1 a"}}, {"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: " 1e9 a"}},
		{"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: " nan a"}}, {"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: " 99999999999999999999 a"}},
		{"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: "a 1 a"}}, {"cursor", inspect.JobQuery{State: lifecycle.StateWaiting, Cursor: " 1 a"}}, {"cursor", inspect.JobQuery{State: lifecycle.StateRetry, Cursor: " " + strings.Repeat("1", 5000) + " a"}},
		{"cursor", inspect.JobQuery{State: lifecycle.StatePending, Cursor: "  "}},
	} {
		_, err := inspector.ListJobs(t.Context(), r.queue, test.q)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != test.field {
			t.Errorf("%+v: %v; want a mistake of %s", test.q, err, test.field)
		}
	}
	// Any valid cursor is a place, whoever made it.
	for _, cursor := range []string{" 1 \x00\xff", " 9007199254740991 ", " 0 " + strings.Repeat("x", 1000)} {
		for _, state := range []lifecycle.State{lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StatePending, lifecycle.StateActive, lifecycle.StateArchived} {
			if _, err := inspector.ListJobs(t.Context(), r.queue, inspect.JobQuery{State: state, Cursor: cursor}); err != nil {
				t.Errorf("%s at %q: %v", state, cursor, err)
			}
		}
	}
	for _, cursor := range []string{"zzz 0 x", "a;b 0 x", "a 9007199254740991 x", "%00 7 "} {
		for _, tenant := range []string{"", "a"} {
			if page, err := inspector.ListJobs(t.Context(), r.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Tenant: tenant, Cursor: cursor}); err != nil || page.Next != "" {
				t.Errorf("%q: %+v, %v", cursor, page, err)
			}
		}
	}
}

func TestJobDetail(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(1000)), nil)
	r.served(t)
	r.answer = func(ctx context.Context, _ Running) error { return SetResult(ctx, map[string]int{"n": 1}) }
	deadline := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	began := time.Now()
	id := r.add(t, func(job *Job) {
		job.Priority, job.Cost, job.Costs = Low, 1, map[string]int64{"tokens": 500}
		job.Attributes = map[string]string{"domain": "x;y=z"}
		job.Headers = map[string]string{"trace": "abc"}
		job.Deadline, job.Retention = deadline, time.Hour
	})
	inspector := inspect.New(r.server.Client())
	d, err := inspector.Job(t.Context(), r.queue, id)
	if err != nil {
		t.Fatal(err)
	}
	if d.State != lifecycle.StateWaiting || d.ID != id || d.Priority != string(Low) || d.Cost != 1 || d.Costs["tokens"] != 500 || d.Attributes["domain"] != "x;y=z" ||
		len(d.Headers) != 1 || d.Headers["trace"] != "abc" || !d.Deadline.Equal(deadline) || d.Retention != time.Hour || string(d.Payload) != "{}" || d.Result != nil {
		t.Errorf("%+v", d)
	}
	if d.EnqueuedAt.Sub(began).Abs() > time.Minute || d.At.IsZero() {
		t.Errorf("enqueued at %v, expected at %v", d.EnqueuedAt, d.At)
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if d, err := inspector.Job(t.Context(), r.queue, id); err != nil || d.State != lifecycle.StateCompleted || string(d.Result) != `{"n":1}` || len(d.Timeline) == 0 || d.Timeline[len(d.Timeline)-1].What != lifecycle.EventEnded {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := inspector.Job(t.Context(), r.queue, "nobody"); !errors.Is(err, lifecycle.ErrNoJob) {
		t.Errorf("%v", err)
	}
}

// TestFailures: failures that differ only in numbers and ids are one group, and verbs find
// the group by its reason.
func TestFailures(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100_000), sharedBy(100_000)), nil)
	reasons := []string{
		"429 Too Many (request 0b6f6a1e-77aa-4b7e-b7b0-%d)", "503 from host-%d.example.com: try later", "no such recipient",
	}
	r.answer = func(_ context.Context, job Running) error {
		n, _ := strconv.Atoi(job.Tenant)
		reason := reasons[n%3]
		if strings.Contains(reason, "%d") {
			reason = fmt.Sprintf(reason, n)
		}
		return permanentWith(reason)
	}
	const jobs = 60
	for i := range jobs {
		r.add(t, func(job *Job) { job.Tenant = strconv.Itoa(i) })
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), jobs)
	r.stop()
	client, ctx, by := r.server.Client(), t.Context(), operate.Operator{Actor: "ann", Reason: "a test"}
	inspector := inspect.New(client)
	groups, err := inspector.Failures(ctx, r.queue, "")
	if err != nil || len(groups) != 3 {
		t.Fatalf("%+v, %v", groups, err)
	}
	for _, g := range groups {
		if g.Jobs != jobs/3 || g.Kind != "call" || g.Outcome != lifecycle.Archived || g.Newest.IsZero() || store.FoldReason(g.Example) != g.Reason || g.Tenants != jobs/3 || g.Hours[23] != jobs/3 || g.ID == "" || strings.ContainsAny(g.Reason, "0123456789") {
			t.Errorf("%+v", g)
		}
		// By the group's reason, and by a part of it as it is.
		for _, reason := range []string{g.Reason, g.Example[:4]} {
			tally, err := operate.Count(ctx, client, r.queue, operate.RetryArchived, operate.Filter{Reason: reason})
			page, listErr := inspector.ListJobs(ctx, r.queue, inspect.JobQuery{State: lifecycle.StateArchived, Reason: reason, Limit: 100})
			if err != nil || listErr != nil || tally.Jobs != jobs/3 || len(page.Jobs) != jobs/3 {
				t.Errorf("%q: %d would be retried, %d are listed, %v, %v", reason, tally.Jobs, len(page.Jobs), err, listErr)
			}
		}
	}
	gone, left := groups[0], groups[1:]
	if tally, err := operate.Apply(ctx, client, r.queue, operate.DeleteArchived, operate.Filter{Reason: gone.Reason}, by, nil); err != nil || tally.Jobs != jobs/3 {
		t.Errorf("%+v, %v", tally, err)
	}
	if groups, err := inspector.Failures(ctx, r.queue, ""); err != nil || !slices.Equal(groups, left) {
		t.Errorf("%+v, %v; want %+v", groups, err, left)
	}
	if entries, err := operate.Audit(ctx, client, r.queue, 1); err != nil || entries[0].Contains != gone.Reason || entries[0].Count != jobs/3 {
		t.Errorf("%+v, %v", entries, err)
	}
	for _, verb := range []operate.Verb{operate.Cancel, operate.RunNow} {
		_, err := operate.Count(ctx, client, r.queue, verb, operate.Filter{Reason: "x"})
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != "reason" {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := operate.Count(ctx, client, r.queue, operate.RetryArchived, operate.Filter{Reason: strings.Repeat("x", 1000)}); err == nil {
		t.Error("a reason of 1,000 bytes is looked for")
	}
}

// TestFoldIsTheSame: reasons are folded in the same way in Go and in Lua.
func TestFoldIsTheSame(t *testing.T) {
	client := redistest.Any(t).Client()
	for _, reason := range []string{
		"", "plain words", "429", "v2beta of 17", "id 0b6f6a1e-77aa-4b7e-b7b0-0123456789ab!", "a_b-c1 is short", "longwordwithoutany", "longword1", "eightle8", "sevenl7", "ünïcödé 12 ß3", "%d 5% #7", "1\n2\t3",
		"attempt 3 of 12: 503 from the provider", "attempt 1 of 2: attempt 1 of 2: x", "after attempt 1 of 2: x", "attempt of 2: x",
		"10.0.0.7:8080 answered 503: \"try in 503 s\"", "answered 5031", "answered 603", "answered answered 404 404", "status 429, HTTP 500; HTTP/1.1 502", "answered  410",
	} {
		folded, err := client.Eval(t.Context(), "local function tenant_of() end\nlocal function varint() end\nlocal asynq, task_key = '', nil\n"+asynqwire.MessageLua+"\nreturn fold(ARGV[2])", nil, "q", reason).Text()
		if err != nil || folded != store.FoldReason(reason) {
			t.Errorf("%q: %q in Lua, %q in Go, %v", reason, folded, store.FoldReason(reason), err)
		}
	}
}

// TestFoldKeepsTheStatus: groups of failures say which status the provider answered with.
func TestFoldKeepsTheStatus(t *testing.T) {
	for reason, want := range map[string]string{
		`attempt 3 of 3: 127.0.0.1:8080 answered 503: "try again in 503 s"`: `#.#.#.#:# answered 503: "try again in # s"`,
		"answered 404, then status 410":                                     "answered 404, then status 410",
		"answered 5031 times; 503 in all":                                   "answered # times; # in all",
	} {
		if got := store.FoldReason(reason); got != want {
			t.Errorf("%q: %q; want %q", reason, got, want)
		}
	}
}

// permanentWith is a permanent error with a text.
type permanentWith string

func (p permanentWith) Error() string   { return string(p) }
func (p permanentWith) Permanent() bool { return true }
