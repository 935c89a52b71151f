package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/test/redistest"
	polled "github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

var until = polled.Done // by a short name, because most tests of this package call it

// takeOver recovers a job from its worker, like another worker that takes it for dead.
func (r *rig) takeOver(t *testing.T, id string) {
	t.Helper()
	seen := ""
	if score, err := r.server.Client().ZScore(t.Context(), asynqwire.Key(r.queue, "lease"), id).Result(); err == nil {
		seen = fmt.Sprintf("%.0f", score)
	} else if !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if n := r.recover(t, id, seen, true); n != 1 {
		t.Fatalf("recovered %d", n)
	}
}

// recover takes a job with the given lease from its worker.
func (r *rig) recover(t *testing.T, id, lease string, ended bool) int64 {
	t.Helper()
	gone := 0
	if ended {
		gone = 1
	}
	n, err := store.RecoverScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, id, lease, r.field(t, id, "hg_owner"), gone)
	if err != nil {
		t.Fatal(err)
	}
	return n.(int64)
}

// wired is a rig whose worker's network can be broken by the test.
func wired() (*redistest.Wire, func(*Config)) {
	w := &redistest.Wire{}
	return w, func(c *Config) { c.Redis.Dialer = w.Dial }
}

func (r *rig) field(t *testing.T, id, name string) string {
	t.Helper()
	text, err := r.server.Client().HGet(t.Context(), asynqwire.Key(r.queue, "t:"+id), name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return text
}

// TestEndsWithoutSuccess: a job that ended without success is archived with its reason.
func TestEndsWithoutSuccess(t *testing.T) {
	t.Parallel()
	once := func(job *Job) { job.MaxAttempts = 1 }
	tests := map[string]struct {
		answer  error
		edit    func(*Job)
		outcome lifecycle.Outcome
		reason  string // a part of it
		calls   int
	}{
		"permanent":              {answer: permanent{}, outcome: lifecycle.Archived, reason: "never take it", calls: 1},
		"last attempt":           {answer: errors.New("500"), edit: once, outcome: lifecycle.Archived, reason: "attempt 1 of 1: 500", calls: 1},
		"a panic":                {answer: errPanic, edit: once, outcome: lifecycle.Archived, reason: "panic: boom", calls: 1},
		"a payload that is none": {edit: func(job *Job) { job.Payload = []byte("{") }, outcome: lifecycle.Archived, reason: "decode the payload"},
		"unknown":                {answer: unknown{}, outcome: lifecycle.Unknown, reason: "outcome unknown: connection lost", calls: 1},
		"expired": {outcome: lifecycle.Expired, reason: "its deadline passed before it could go", edit: func(job *Job) {
			job.Deadline = time.Now().Add(20 * time.Millisecond)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(), nil)
			r.answer = func(context.Context, Running) error {
				if test.answer == errPanic {
					panic("boom")
				}
				return test.answer
			}
			id := r.add(t, test.edit)
			if test.outcome == lifecycle.Expired {
				time.Sleep(30 * time.Millisecond) // its deadline
			}
			r.run(t)
			r.seen.wait(t, string(test.outcome), 1)
			r.stop()
			reason := r.field(t, id, "hg_error")
			if got := r.archived(t)[id]; got != reason || !strings.Contains(reason, test.reason) {
				t.Errorf("archived with %q, and its error is %q; want %q in both", got, reason, test.reason)
			}
			if r.jobs[id] != test.calls {
				t.Errorf("%d calls; want %d", r.jobs[id], test.calls)
			}
			got, err := r.client.Result(t.Context(), r.queue, id)
			if err != nil || got.Outcome != test.outcome || got.Err != reason || got.State != "archived" || time.Since(got.EndedAt).Abs() > time.Minute {
				t.Errorf("Result = %+v, %v", got, err)
			}
		})
	}
}

// TestArchivedJobsCanBeRunAgain: archiving removes the mark of the job's outcome. Otherwise
// a job that an operator retries would only be put away.
func TestArchivedJobsCanBeRunAgain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, limitsOf(perTenant(100)), nil)
	answers := make(chan error, 2)
	answers <- permanent{}
	answers <- nil
	r.answer = func(context.Context, Running) error { return <-answers }
	id := r.add(t, func(job *Job) { job.Key, job.KeyUntil, job.Retention = "k", Ended, time.Hour })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	if n := r.server.Client().Exists(t.Context(), store.Key(r.queue, "unique:a:k")).Val(); n != 0 {
		t.Error("the key of a job that ended is not free")
	}
	until(t, "archived", func() bool { return r.field(t, id, "state") == "archived" })
	if e, c := parseSlot(t, r.field(t, id, "hg_slot")); e != 0 || c != 0 {
		t.Errorf("it keeps the slot of its call: %d, %d", e, c)
	}
	if err := asynq.NewInspectorFromRedisClient(r.server.Client()).RunTask(r.queue, id); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	got, err := r.client.Result(t.Context(), r.queue, id)
	if err != nil || got.Outcome != lifecycle.Done || got.Err != "" || got.State != "completed" || r.jobs[id] != 2 {
		t.Errorf("Result = %+v, %v after %d calls", got, err, r.jobs[id])
	}
}

// textError panics if it is nil, as most errors do.
type textError struct{ text string }

func (e *textError) Error() string { return e.text }

// waitError has a text if it is nil, but no time.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string             { return "slow down" }
func (e *waitError) RetryAfter() time.Duration { return e.after }

// TestHostileErrors: jobs are put away whatever the text of their error is, and if its methods panic.
func TestHostileErrors(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"not UTF-8": errors.New("bad \xff\xfe text"), "long": errors.New(strings.Repeat("é", 5000)),
		"a nil pointer": (*textError)(nil), "a nil pointer with a text": (*waitError)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 2, limitsOf(), nil)
			r.answer = func(context.Context, Running) error { return answer }
			id := r.add(t, func(job *Job) { job.MaxAttempts = 2 })
			r.run(t)
			r.seen.wait(t, string(lifecycle.Retried), 1)
			r.seen.wait(t, string(lifecycle.Archived), 1)
			r.stop()
			reason := r.archived(t)[id]
			if reason == "" || len(reason) > check.MaxReason || !utf8.ValidString(reason) || r.jobs[id] != 2 {
				t.Errorf("archived with %d bytes %.40q after %d calls", len(reason), reason, r.jobs[id])
			}
		})
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value any
		want  string
	}{
		"JSON":    {map[string]int{"n": 1}, `{"n":1}`},
		"text":    {"é", `"é"`},
		"bytes":   {[]byte("\x00\xff"), "\x00\xff"},
		"raw":     {json.RawMessage(`{ "a": 1 }`), `{ "a": 1 }`},
		"largest": {[]byte(strings.Repeat("x", maxResult)), strings.Repeat("x", maxResult)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(), nil)
			r.answer = func(ctx context.Context, _ Running) error {
				if err := SetResult(ctx, "overwritten"); err != nil {
					return err
				}
				return SetResult(ctx, test.value)
			}
			id := r.add(t, func(job *Job) { job.Retention = time.Hour })
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 1)
			if got, err := r.client.Result(t.Context(), r.queue, id); err != nil || got.Outcome != lifecycle.Done || string(got.Result) != test.want {
				t.Errorf("Result = %+v, %v, before asynq is told; want %.40q", got, err, test.want)
			}
			r.stop()
			got, err := r.client.Result(t.Context(), r.queue, id)
			if err != nil || got.State != "completed" || string(got.Result) != test.want || got.Kind != "call" || got.Tenant != "a" ||
				time.Since(got.EndedAt).Abs() > time.Minute {
				t.Errorf("Result = %+v, %v", got, err)
			}
			info, err := asynq.NewInspectorFromRedisClient(r.server.Client()).GetTaskInfo(r.queue, id)
			if err != nil || string(info.Result) != test.want {
				t.Errorf("asynq's result = %.40q, %v", info.Result, err)
			}
		})
	}
}

func TestResultsAreRefused(t *testing.T) {
	t.Parallel()
	if err := SetResult(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "is not from a handler") {
		t.Errorf("outside of a handler: %v", err)
	}
	r := startRig(t, 2, limitsOf(), nil)
	var late context.Context
	r.answer = func(ctx context.Context, job Running) error {
		late = ctx
		if err := SetResult(ctx, strings.Repeat("x", maxResult)); err == nil || !strings.Contains(err.Error(), "65538 bytes; the maximum is 65536") {
			t.Errorf("a large one: %v", err)
		}
		if err := SetResult(ctx, func() {}); err == nil {
			t.Error("a func was encoded")
		}
		if err := SetResult(ctx, 1); err != nil {
			t.Error(err)
		}
		if job.Tenant == "bad" {
			return permanent{}
		}
		return nil
	}
	bad := r.add(t, func(job *Job) { job.Tenant = "bad" })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	if err := SetResult(late, 2); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after the call: %v", err)
	}
	id := r.add(t, nil)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if got, err := r.client.Result(t.Context(), r.queue, bad); err != nil || got.Result != nil {
		t.Errorf("a failed job has the result %q, %v", got.Result, err)
	}
	if _, err := r.client.Result(t.Context(), r.queue, id); !errors.Is(err, lifecycle.ErrNoJob) {
		t.Errorf("a job without retention: %v", err)
	}
}

// TestReportsAfterTheCall: what a handler reports when its call has ended is used nowhere, so it is an error. So is
// what is reported outside of a handler.
func TestReportsAfterTheCall(t *testing.T) {
	t.Parallel()
	reports := map[string]func(context.Context) error{
		"SetResult":   func(ctx context.Context) error { return SetResult(ctx, 1) },
		"Progress":    func(ctx context.Context) error { return Progress(ctx, 1, "") },
		"SetActual":   func(ctx context.Context) error { return SetActual(ctx, map[string]int64{"tokens": 1}) },
		"SetQuota":    func(ctx context.Context) error { return SetQuota(ctx, Quota{Limit: 1, Window: time.Second}) },
		"SetRejected": SetRejected,
		"pause":       func(ctx context.Context) error { return PauseTenant(ctx, time.Millisecond, "") },
	}
	r := startRig(t, 1, limitsOf(), nil)
	all := func(ctx context.Context, want string) {
		t.Helper()
		for name, report := range reports {
			if err := report(ctx); (err == nil) != (want == "") || err != nil && err.Error() != "queue: "+name+": "+want {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
	}
	var call context.Context
	r.answer = func(ctx context.Context, _ Running) error {
		call = ctx
		all(ctx, "")
		return nil
	}
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	all(call, "the call has ended")
	all(t.Context(), "ctx is not from a handler")
}

func TestHandleResult(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	type order struct{ Amount int }
	var calls atomic.Int64
	HandleResult(r.worker, "double", func(_ context.Context, o order) (any, error) {
		calls.Add(1)
		if o.Amount < 0 {
			return nil, permanent{}
		}
		if o.Amount == 0 {
			return strings.Repeat("x", maxResult), nil
		}
		return order{2 * o.Amount}, nil
	})
	add := func(amount int) string {
		return r.add(t, func(job *Job) { job.Kind, job.Payload, job.Retention = "double", order{amount}, time.Hour })
	}
	good, bad, large := add(21), add(-1), add(0)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.seen.wait(t, string(lifecycle.Archived), 2)
	r.stop()
	if got, err := r.client.Result(t.Context(), r.queue, good); err != nil || string(got.Result) != `{"Amount":42}` {
		t.Errorf("Result = %s, %v", got.Result, err)
	}
	if got, err := r.client.Result(t.Context(), r.queue, bad); err != nil || got.Outcome != lifecycle.Archived {
		t.Errorf("Result = %+v, %v", got, err)
	}
	if reason := r.archived(t)[large]; !strings.Contains(reason, "the call was made, but its result cannot be stored") || calls.Load() != 3 {
		t.Errorf("archived with %q after %d calls", reason, calls.Load())
	}
}

// TestResultOf: a result has the type of its kind, and is that of a call that succeeded.
func TestResultOf(t *testing.T) {
	t.Parallel()
	type receipt struct{ ID string }
	const charge ResultKind[int, receipt] = "charge"
	done := JobResult{ID: "1", Kind: "charge", State: lifecycle.StateCompleted, Outcome: lifecycle.Done, Result: []byte(`{"ID":"ch_1"}`)}
	if got, err := charge.ResultOf(done); got.ID != "ch_1" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := charge.ParentResult(Running{Parent: "1", ParentResult: done.Result}); got.ID != "ch_1" || err != nil {
		t.Errorf("of the parent: %+v, %v", got, err)
	}
	if got, err := ResultKind[int, []byte]("charge").ResultOf(done); string(got) != string(done.Result) || err != nil {
		t.Errorf("bytes: %s, %v", got, err)
	}
	for what, change := range map[string]func(*JobResult){
		"no result": func(job *JobResult) { job.Result = nil },
		"waiting":   func(job *JobResult) { job.State, job.Outcome, job.Result = lifecycle.StateWaiting, "", nil },
		"it failed": func(job *JobResult) { job.State, job.Outcome = lifecycle.StateArchived, lifecycle.Archived },
	} {
		job := done
		change(&job)
		if got, err := charge.ResultOf(job); !errors.Is(err, ErrNoResult) || got != (receipt{}) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if _, err := charge.ParentResult(Running{Parent: "1"}); !errors.Is(err, ErrNoResult) {
		t.Errorf("a parent without a result: %v", err)
	}
	other := done
	other.Kind = "refund"
	if _, err := charge.ResultOf(other); err == nil || !strings.Contains(err.Error(), "is of kind refund, not charge") {
		t.Errorf("another kind: %v", err)
	}
	wrong := done
	wrong.Result = []byte(`[]`)
	if _, err := charge.ResultOf(wrong); err == nil || !strings.Contains(err.Error(), "decode the result of job") {
		t.Errorf("another type: %v", err)
	}
}

// TestLostSettlement: the reply to a settlement is lost. The settlement is sent again, and
// counts once.
func TestLostSettlement(t *testing.T) {
	t.Parallel()
	w, edit := wired()
	r := startRig(t, -1, limitsOf(), edit)
	r.answer = func(ctx context.Context, job Running) error {
		if job.Tenant == "a" {
			w.LoseReply("done")
		}
		return SetResult(ctx, "kept")
	}
	r.run(t)
	r.enqueue(t, "b", 1) // Redis has the script by then
	r.seen.wait(t, string(lifecycle.Done), 1)
	id := r.add(t, func(job *Job) { job.Retention = time.Hour })
	r.seen.wait(t, string(lifecycle.Done), 2)
	r.stop()
	got, err := r.client.Result(t.Context(), r.queue, id)
	if err != nil || string(got.Result) != `"kept"` || r.jobs[id] != 1 || w.Lost() != 1 {
		t.Errorf("Result = %+v, %v after %d calls, %d replies lost", got, err, r.jobs[id], w.Lost())
	}
	if done := countsOf(t, r.server.Client(), r.queue, "a").Done; done != 1 {
		t.Errorf("counted %d times", done)
	}
}
