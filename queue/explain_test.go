package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

func (r *rig) explain(t *testing.T, id string) inspect.Explanation {
	t.Helper()
	e, err := inspect.New(r.server.Client()).Explain(t.Context(), r.queue, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestExplainWaiting(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(10), sharedBy(1000)), nil)
	r.served(t)
	var ids []string
	for range 40 {
		ids = append(ids, r.add(t, func(job *Job) { job.MaxAttempts = 4 }))
	}
	e := r.explain(t, ids[30])
	if e.State != lifecycle.StateWaiting || e.Tenant != "a" || e.Kind != "call" || e.Attempt != 1 || e.MaxAttempts != 4 || e.Position != 30 ||
		e.TenantPosition != 30 || e.Waiting != 40 || e.Lane != "a;kind=call" || e.Confidence != inspect.Steady || e.Pause != nil || e.Full != nil {
		t.Errorf("%+v", e)
	}
	if e.HeldBy == nil || e.HeldBy.Limit != "tenant" || e.HeldBy.Rule != "10/s" || e.HeldBy.Scope != "tenant a" {
		t.Errorf("held by %+v", e.HeldBy)
	}
	// The first goes at once, from a full bucket, and then one each 100 ms.
	if d := e.At.Sub(e.Now); d != 3*time.Second {
		t.Errorf("its call is expected in %v", d)
	}
	if d := e.DrainsAt.Sub(e.Now); d != 3900*time.Millisecond {
		t.Errorf("drained in %v", d)
	}
	if age := e.Now.Sub(e.Since); age < 0 || age > time.Minute {
		t.Errorf("waits since %v", age)
	}
	if text := e.String(); !strings.HasPrefix(text, `a's call is held by limit "tenant" (10/s), next slot now, 30 before it, goes at `) ||
		!strings.Contains(text, "(steady), 40 waiting, done at ") || strings.Contains(text, "\n") {
		t.Error(text)
	}
	if e, err := inspect.New(r.server.Client()).Explain(t.Context(), r.queue, "nobody"); !errors.Is(err, lifecycle.ErrNoJob) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestExplainStates(t *testing.T) {
	r := startRig(t, 1, limitsOf(perTenant(1000)), nil)
	r.served(t)
	r.retriesIn = time.Hour
	fail := errors.New("500 from the provider")
	r.answer = func(_ context.Context, job Running) error {
		switch job.ID {
		case "a:fails":
			return fail
		case "a:never":
			return permanent{}
		case "a:unsure":
			return unknown{}
		}
		return nil
	}
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	scheduled := r.add(t, func(job *Job) { job.At = soon })
	for _, key := range []string{"works", "fails", "never", "unsure"} {
		r.add(t, func(job *Job) { job.Key = key })
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.seen.wait(t, string(lifecycle.Retried), 1)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.seen.wait(t, string(lifecycle.Unknown), 1)
	r.stop()
	for id, want := range map[string]inspect.Explanation{
		scheduled:  {State: lifecycle.StateScheduled, Until: soon, At: soon, Attempt: 1, Confidence: inspect.Rough},
		"a:works":  {State: lifecycle.StateCompleted, Outcome: lifecycle.Done, Attempt: 1},
		"a:fails":  {State: lifecycle.StateRetry, Attempt: 2, Error: "500 from the provider"},
		"a:never":  {State: lifecycle.StateArchived, Outcome: lifecycle.Archived, Attempt: 1, Error: "never take it"},
		"a:unsure": {State: lifecycle.StateArchived, Outcome: lifecycle.Unknown, Attempt: 1, Error: unknown{}.Error()},
	} {
		e := r.explain(t, id)
		if e.State != want.State || e.Outcome != want.Outcome || e.Attempt != want.Attempt || !strings.Contains(e.Error, want.Error) || want.Error == "" && e.Error != "" ||
			!want.Until.IsZero() && (!e.Until.Equal(want.Until) || !e.At.Equal(want.At) || e.Confidence != want.Confidence) ||
			want.State == lifecycle.StateRetry && (e.Until.Before(e.Now.Add(-2*time.Second)) || e.At.Before(e.Until)) {
			t.Errorf("%s: %+v; want %+v", id, e, want)
		}
		t.Log(e)
	}
}

func TestExplainPauseAndWindow(t *testing.T) {
	t.Parallel()
	set := limitsOf(perTenant(10))
	r := startRig(t, 1, set, nil)
	r.served(t)
	id := r.add(t, nil)
	client := r.server.Client()
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	pause := func(scope, text string) {
		t.Helper()
		if err := client.HSet(t.Context(), store.Key(r.queue, "pauses"), scope, text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	pause("a", fmt.Sprintf("%d provider 429 Too Many", until.UnixMicro()))
	e := r.explain(t, id)
	if e.Pause == nil || *e.Pause != (inspect.Pause{Scope: inspect.Scope{Tenant: "a"}, Until: e.Pause.Until, By: "provider", Reason: "429 Too Many"}) || !e.Pause.Until.Equal(until) ||
		!e.At.Equal(until) || !strings.Contains(e.String(), "a's call waits: tenant a is paused by the provider until ") {
		t.Errorf("%v, %+v", e, e.Pause)
	}
	pause("*", fmt.Sprintf("%d operator ann: maintenance", store.Endless))
	e = r.explain(t, id)
	if e.Pause == nil || e.Pause.Scope.String() != "the whole queue" || !e.Pause.Until.IsZero() || !e.At.IsZero() || e.Confidence != inspect.NoForecast ||
		!strings.Contains(e.String(), "the whole queue is paused by ann until somebody resumes: maintenance; ") {
		t.Errorf("%v, %+v", e, e.Pause)
	}
	client.Del(t.Context(), store.Key(r.queue, "pauses"))

	// A window of a minute, far from now.
	opens := time.Now().UTC().Add(10 * time.Hour).Truncate(time.Minute)
	window, err := sendwindow.Parse(opens.Format("15:04") + "-" + opens.Add(time.Minute).Format("15:04") + " UTC")
	if err != nil {
		t.Fatal(err)
	}
	q := set.Queues[""]
	q.SendWindows = map[string]sendwindow.Window{limits.AllKinds: window}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{r.queue: q}}); err != nil {
		t.Fatal(err)
	}
	e = r.explain(t, id)
	if !e.WindowOpens.Equal(opens) || !e.At.Equal(opens) || !strings.Contains(e.String(), "its send window is closed until ") {
		t.Errorf("%v, opens %v and goes %v; want %v", e, e.WindowOpens, e.At, opens)
	}
	// 900 jobs at 10/s do not fit into one minute: the others go a day later.
	estimate, err := inspect.New(client).Estimate(t.Context(), r.queue, inspect.Batch{Tenant: "b", Jobs: 900})
	if err != nil {
		t.Fatal(err)
	}
	if after := estimate.Last.Sub(opens); after < 24*time.Hour || after > 24*time.Hour+31*time.Second {
		t.Errorf("the last call is %v after the first", after)
	}
}

func TestExplainFullConcurrency(t *testing.T) {
	t.Parallel()
	set := limitsOf(limits.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}})
	r := startRig(t, 1, set, nil)
	under, done := make(chan struct{}), make(chan struct{})
	r.answer = func(context.Context, Running) error {
		close(under)
		<-done
		return nil
	}
	first := r.add(t, nil)
	r.run(t)
	<-under
	second := r.add(t, nil)
	defer r.stop()
	defer close(done)
	if e := r.explain(t, first); e.State != lifecycle.StateActive || e.Until.After(e.Now) || e.Outcome != "" {
		t.Errorf("%v", e)
	}
	e := r.explain(t, second)
	if e.State != lifecycle.StateWaiting || e.Full == nil || e.Full.Limit != "in-flight" || e.Full.Rule != "1 at a time" || !e.At.IsZero() || e.Confidence != inspect.NoForecast {
		t.Errorf("%v: %+v", e, e)
	}
	r.answer = nil
}

func TestExplainPriorities(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(1)), nil)
	r.served(t)
	low := r.add(t, func(job *Job) { job.Priority = Low })
	var high string
	for range 30 {
		high = r.add(t, func(job *Job) { job.Priority = High })
	}
	if e := r.explain(t, high); e.Position != 29 || e.At.Sub(e.Now).Round(time.Second) != 32*time.Second {
		t.Errorf("the last of 30: %v", e)
	}
	// It has waited longest of the jobs of lower priority, and is the tenth to go.
	if e := r.explain(t, low); e.Position != 30 || e.At.Sub(e.Now).Round(time.Second) != 9*time.Second {
		t.Errorf("one of low priority: %v", e)
	}
}

// TestExplainWritesNothing: explaining a job changes nothing in Redis.
func TestExplainWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	log := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.PerSecond(5), Per: []string{"tenant"}}
	counter := limits.Limit{Name: "counter", Algorithm: throttle.SlidingWindowCounter, Rate: throttle.PerSecond(50)}
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(5), log, counter}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	receipt, err := NewClient(client).Enqueue(t.Context(), Job{Kind: "call", Queue: "q", Tenant: "a", Payload: 1})
	if err != nil {
		t.Fatal(err)
	}
	dirty := func() string {
		info, err := client.Info(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(rest, "\r\n")
		return n
	}
	before, inspector := dirty(), inspect.New(client)
	if _, err := inspector.Explain(t.Context(), "q", receipt.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := inspector.Outlook(t.Context(), "q", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := inspector.Estimate(t.Context(), "q", inspect.Batch{Tenant: "b", Jobs: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := inspector.Overview(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if _, err := inspector.ListTenants(t.Context(), "q", inspect.TenantQuery{}); err != nil {
		t.Fatal(err)
	}
	if after := dirty(); after != before {
		t.Errorf("changes of the data: %s before, %s after", before, after)
	}
}
