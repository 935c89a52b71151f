package queue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/headgate/headgate/queue/lifecycle"
)

type letters struct{ To []string }

func (l letters) Costs() map[string]int64 { return map[string]int64{"tokens": int64(len(l.To))} }

// TestPayloadKnowsItsCosts: no producer makes a call cheaper than its payload says it is. Go clients
// take the larger of both before the call; for other producers' jobs, the worker charges the rest
// after it.
func TestPayloadKnowsItsCosts(t *testing.T) {
	t.Parallel()
	to := letters{To: make([]string, 400)}
	raw, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		edit    func(*Job)
		answer  func(context.Context) error
		before  int64 // left while the call is made
		after   int64
		outcome lifecycle.Outcome
	}{
		"none declared":       {func(job *Job) { job.Payload = to }, nil, 600, 600, lifecycle.Done},
		"less declared":       {func(job *Job) { job.Payload, job.Costs = to, map[string]int64{"tokens": 0} }, nil, 600, 600, lifecycle.Done},
		"more declared":       {func(job *Job) { job.Payload, job.Costs = to, map[string]int64{"tokens": 700} }, nil, 300, 300, lifecycle.Done},
		"by another producer": {func(job *Job) { job.Payload, job.Costs = json.RawMessage(raw), map[string]int64{"tokens": 1} }, nil, 999, 600, lifecycle.Done},
		"by another producer, and failed": {func(job *Job) {
			job.Payload, job.Costs, job.MaxAttempts = json.RawMessage(raw), map[string]int64{"tokens": 1}, 1
		}, func(context.Context) error { return errors.New("refused") }, 999, 600, lifecycle.Archived},
		"the provider counted": {func(job *Job) { job.Payload = to }, func(ctx context.Context) error {
			return SetActual(ctx, map[string]int64{"tokens": 5})
		}, 600, 995, lifecycle.Done},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(tokens(1000)), nil)
			left := int64(-1)
			Handle(r.worker, "letters", func(ctx context.Context, l letters) error {
				r.take(ctx)
				left = r.left(t, "a;kind=letters", "tokens")
				if test.answer != nil {
					return test.answer(ctx)
				}
				return nil
			})
			r.add(t, func(job *Job) {
				job.Kind = "letters"
				test.edit(job)
			})
			r.run(t)
			r.seen.wait(t, string(test.outcome), 1)
			if after := r.left(t, "a;kind=letters", "tokens"); left != test.before || after != test.after {
				t.Errorf("%d tokens are left during the call and %d after it; want %d and %d", left, after, test.before, test.after)
			}
		})
	}
	// A follow-up pays too.
	next := Kind[letters]("letters").Job("a", to)
	first, err := encodeNext(&Job{Kind: "call", Tenant: "a", OnSuccess: &next}, "a")
	if err != nil || first.OnSuccess.Costs["tokens"] != 400 {
		t.Errorf("%+v, %v", first, err)
	}
}
