package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// TestFailureGroupIsNamedExactly: a verb on a group of failures changes only the jobs of the
// group. It does not change jobs whose reason contains the group's reason, jobs with the
// same reason and another outcome, or, if the group has no reason, all jobs.
func TestFailureGroupIsNamedExactly(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100_000), sharedBy(100_000)), nil)
	reasons := map[string]int{ // jobs with each
		"503": 2, "503 from the provider": 3, "the host said 503\nand hung up": 4, "cancelled by ann: a test": 5,
		strings.Repeat("a long reason ", 60): 6, // longer than a part of a reason may be
	}
	text := map[string]string{}
	jobs := 0
	r.answer = func(_ context.Context, job Running) error { return permanentWith(text[job.Tenant]) }
	for reason, n := range reasons {
		tenant := fmt.Sprintf("t%d", len(text))
		text[tenant] = reason
		for range n {
			r.add(t, func(job *Job) { job.Tenant = tenant })
		}
		jobs += n
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), jobs)
	r.stop()
	client, ctx, by := r.server.Client(), t.Context(), operate.Operator{Actor: "ann", Reason: "a test"}
	tools := asynq.NewInspectorFromRedisClient(client)
	for range 7 { // without a reason
		if err := tools.ArchiveTask(r.queue, r.add(t, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 { // the reason of others, but cancelled
		if _, err := operate.Apply(ctx, client, r.queue, operate.Cancel, operate.Filter{ID: r.add(t, nil)}, by, nil); err != nil {
			t.Fatal(err)
		}
	}
	inspector := inspect.New(client)
	groups, err := inspector.Failures(ctx, r.queue, "")
	if err != nil || len(groups) != len(reasons)+2 {
		t.Fatalf("%d groups, %v; want %d: %+v", len(groups), err, len(reasons)+2, groups)
	}
	for _, g := range groups {
		tally, err := operate.Count(ctx, client, r.queue, operate.RetryArchived, operate.Filter{State: lifecycle.StateArchived, Group: &g.FailureKey})
		page, listErr := inspector.ListJobs(ctx, r.queue, inspect.JobQuery{State: lifecycle.StateArchived, Group: &g.FailureKey, Limit: 100})
		if err != nil || listErr != nil || tally.Jobs != g.Jobs || int64(len(page.Jobs)) != g.Jobs {
			t.Errorf("%s %.30q has %d jobs; %d would be retried, %d are listed; %v, %v", g.Outcome, g.Reason, g.Jobs, tally.Jobs, len(page.Jobs), err, listErr)
		}
	}
	// One group is deleted; the others stay as they are.
	for i, gone := range groups {
		if gone.Reason != "" {
			continue
		}
		if tally, err := operate.Apply(ctx, client, r.queue, operate.DeleteArchived, operate.Filter{Group: &gone.FailureKey}, by, nil); err != nil || tally.Jobs != gone.Jobs {
			t.Errorf("%+v, %v", tally, err)
		}
		if left, err := inspector.Failures(ctx, r.queue, ""); err != nil || !slices.Equal(left, slices.Delete(slices.Clone(groups), i, i+1)) {
			t.Errorf("left are %+v, %v", left, err)
		}
		if entries, err := operate.Audit(ctx, client, r.queue, 1); err != nil || entries[0].Group == nil || *entries[0].Group != gone.FailureKey || entries[0].Count != gone.Jobs {
			t.Errorf("%+v, %v", entries, err)
		}
	}

	some := &groups[0].FailureKey
	for name, f := range map[string]operate.Filter{
		"kind": {Group: some, Kind: "call"}, "reason": {Group: some, Reason: "x"}, "group.outcome": {Group: &inspect.FailureKey{Kind: "call"}},
		"group.kind": {Group: &inspect.FailureKey{Outcome: lifecycle.Archived}}, "group.reason": {Group: &inspect.FailureKey{Outcome: lifecycle.Archived, Kind: "call", Reason: strings.Repeat("x", 10_000)}},
	} {
		_, err := operate.Count(ctx, client, r.queue, operate.RetryArchived, f)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, verb := range []operate.Verb{operate.Cancel, operate.RunNow} {
		_, err := operate.Count(ctx, client, r.queue, verb, operate.Filter{Group: some})
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != "group" {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
