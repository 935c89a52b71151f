package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// noting returns middleware that records when it is entered and left.
func noting(into *[]string, name string) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			*into = append(*into, name+" in")
			defer func() { *into = append(*into, name+" out") }()
			return next(ctx, payload)
		}
	}
}

func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	var seen []string
	r.worker.Use(noting(&seen, "first"), noting(&seen, "second"))
	r.worker.Use(func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			job, ok := Current(ctx)
			deadline, timed := ctx.Deadline()
			if !ok || job.Tenant != "a" || string(payload) != `{}` {
				t.Errorf("middleware sees job %+v, payload %s", job, payload)
			}
			if left := time.Until(deadline); !timed || left > defaultTimeout || left < defaultTimeout/2 {
				t.Errorf("middleware has %v of the call's %v", left, defaultTimeout)
			}
			return next(ctx, payload)
		}
	})
	// Registered after Use, and still wrapped.
	Handle(r.worker, "late", func(context.Context, json.RawMessage) error {
		seen = append(seen, "call")
		return nil
	})
	r.add(t, func(job *Job) { job.Kind = "late" })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if want := []string{"first in", "second in", "call", "second out", "first out"}; !slices.Equal(seen, want) {
		t.Errorf("order = %v; want %v", seen, want)
	}
}

// TestMiddlewareComesAfterTheSlot: middleware does not run for a job that only waits.
func TestMiddlewareComesAfterTheSlot(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(1)), nil)
	entered := newCounter()
	r.worker.Use(func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			entered.count("entered")
			return next(ctx, payload)
		}
	})
	r.add(t, nil)
	expiring := r.add(t, func(job *Job) { job.Deadline = time.Now().Add(400 * time.Millisecond) })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Expired), 1)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if n := entered.n["entered"]; n != 1 || r.jobs[expiring] != 0 {
		t.Errorf("middleware was entered %d times for one call; the job that expired: %d", n, r.jobs[expiring])
	}
}

// TestHeld: Running.Held is how long the worker held the job for its slot, which is less
// than the job waited.
func TestHeld(t *testing.T) {
	t.Parallel()
	const n = 6 // the last waits for 1.25 s, the first 750 ms of it in its lane
	r := startRig(t, n, limitsOf(perTenant(4)), nil)
	type wait struct{ held, all time.Duration }
	waits := make(chan wait, n)
	began := time.Now()
	r.worker.Use(func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			job, _ := Current(ctx)
			waits <- wait{job.Held, time.Since(began)}
			return next(ctx, payload)
		}
	})
	r.enqueue(t, "a", n)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), n)
	var most, last wait
	for range n {
		w := <-waits
		if w.held <= 0 || w.held > w.all {
			t.Errorf("held for %v of %v", w.held, w.all)
		}
		if w.held > most.held {
			most = w
		}
		if w.all > last.all {
			last = w
		}
	}
	if most.held < 20*time.Millisecond || last.all-last.held < 500*time.Millisecond {
		t.Errorf("held for %v at most, and the last one for %v of %v; want some of the 250ms between two calls, and not the time in the lane", most.held, last.held, last.all)
	}
}

func TestMiddlewareDecides(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		use      Middleware
		outcome  lifecycle.Outcome
		archived string
	}{
		"its error":   {func(Handler) Handler { return func(context.Context, []byte) error { return permanent{} } }, lifecycle.Archived, "never take it"},
		"its panic":   {func(Handler) Handler { return func(context.Context, []byte) error { panic("middle") } }, lifecycle.Archived, "panic: middle"},
		"its silence": {func(Handler) Handler { return func(context.Context, []byte) error { return nil } }, lifecycle.Done, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(), nil)
			r.worker.Use(test.use)
			id := r.add(t, func(job *Job) { job.MaxAttempts = 1 })
			r.run(t)
			r.seen.wait(t, string(test.outcome), 1)
			r.stop()
			if r.jobs[id] != 0 {
				t.Error("the handler was called")
			}
			if reason := r.archived(t)[id]; !strings.Contains(reason, test.archived) {
				t.Errorf("archived with %q; want %q", reason, test.archived)
			}
		})
	}
}

// TestOutcomeOf: OutcomeOf returns the outcome that the worker then uses.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	panics := errors.New("panics")
	tests := map[string]struct {
		answer error
		want   lifecycle.Outcome
	}{
		"ok":        {nil, lifecycle.Done},
		"failed":    {errors.New("500"), lifecycle.Retried},
		"throttled": {throttled{time.Minute}, lifecycle.Throttled},
		"postponed": {postponed{time.Now().Add(time.Hour)}, lifecycle.Postponed},
		"permanent": {permanent{}, lifecycle.Archived},
		"unknown":   {unknown{}, lifecycle.Unknown},
		"panic":     {panics, lifecycle.Retried},
		"timed out": {context.DeadlineExceeded, lifecycle.Retried},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, limitsOf(), nil)
			var log bytes.Buffer
			r.worker.Use(Logging(slog.New(slog.NewJSONHandler(&log, nil)), slog.LevelInfo))
			Handle(r.worker, "call", func(ctx context.Context, _ json.RawMessage) error {
				switch test.answer {
				case panics:
					panic("secret")
				case context.DeadlineExceeded:
					<-ctx.Done()
					return ctx.Err()
				}
				return test.answer
			}, Timeout(50*time.Millisecond))
			id := r.add(t, func(job *Job) {
				job.Payload = json.RawMessage(`{"card":"secret"}`)
				job.Headers = map[string]string{"token": "secret"}
			})
			r.run(t)
			r.seen.wait(t, string(test.want), 1)
			r.stop()
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("want one line, got %s", log.String())
			}
			if line["outcome"] != string(test.want) || line["job"] != id || line["queue"] != r.queue || line["kind"] != "call" ||
				line["tenant"] != "a" || line["attempt"] != 1.0 || line["level"] != "INFO" || line["took"].(float64) <= 0 {
				t.Errorf("logged %s; want outcome %s of job %s", log.String(), test.want, id)
			}
			if strings.Contains(log.String(), "secret") {
				t.Errorf("payload or headers were logged: %s", log.String())
			}
		})
	}
}

// TestOutcomeOfRepeatUnknown: OutcomeOf respects the options of the kind.
func TestOutcomeOfRepeatUnknown(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	told := make(chan lifecycle.Outcome, 2)
	r.worker.Use(func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			err := next(ctx, payload)
			told <- OutcomeOf(ctx, err)
			return err
		}
	})
	Handle(r.worker, "call", func(context.Context, json.RawMessage) error { return unknown{} }, RepeatUnknown())
	r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Retried), 1)
	r.stop()
	if outcome := <-told; outcome != lifecycle.Retried {
		t.Errorf("middleware was told %s; want retried", outcome)
	}
	if outcome, err := r.worker.Call(t.Context(), Job{Kind: "call", Tenant: "a", Payload: 1}); outcome != lifecycle.Retried || !errors.Is(err, unknown{}) {
		t.Errorf("Call = %s, %v; want retried", outcome, err)
	}
}

// TestOutcomeOfACallThatWasCutOff: a call that is cut off by the worker's stop has not
// failed.
func TestOutcomeOfACallThatWasCutOff(t *testing.T) {
	may := &handler{backoff: defaultBackoff}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callKey{}, &call{job: &Running{Attempt: 1, MaxAttempts: 1}, handler: may}))
	if outcome := OutcomeOf(ctx, context.Canceled); outcome != lifecycle.Archived {
		t.Errorf("canceled by the handler itself: %s; want archived", outcome)
	}
	cancel()
	if outcome := OutcomeOf(ctx, fmt.Errorf("call: %w", ctx.Err())); outcome != lifecycle.Parked {
		t.Errorf("cut off: %s; want parked", outcome)
	}
	if outcome := OutcomeOf(ctx, unknown{}); outcome != lifecycle.Unknown {
		t.Errorf("a call with an unknown outcome that must not be repeated: %s; want unknown", outcome)
	}
	may.repeatUnknown = true
	if outcome := OutcomeOf(ctx, unknown{}); outcome != lifecycle.Parked {
		t.Errorf("a call with an unknown outcome that may be repeated: %s; want parked", outcome)
	}
}

func TestCall(t *testing.T) {
	w := newWorker(t, Config{Redis: startRig(t, 0, limitsOf(), nil).server.Options(), Queues: []string{"q"}})
	var seen []string
	w.Use(noting(&seen, "around"))
	const greet Kind[string] = "greet"
	var got Running
	Handle(w, greet, func(ctx context.Context, name string) error {
		got, _ = Current(ctx)
		seen = append(seen, "hello "+name)
		if name == "nobody" {
			panic("nobody there")
		}
		return nil
	}, Timeout(time.Second))
	for range 2 { // middleware is put around once, not once for each call
		seen = nil
		job := greet.Job("acme", "Ada")
		job.Key, job.Cost, job.Headers = "k", 3, map[string]string{"trace": "1"}
		if outcome, err := w.Call(t.Context(), job); outcome != lifecycle.Done || err != nil {
			t.Errorf("Call = %s, %v", outcome, err)
		}
		if want := []string{"around in", "hello Ada", "around out"}; !slices.Equal(seen, want) {
			t.Errorf("calls = %v; want %v", seen, want)
		}
	}
	if got.ID != "acme:k" || got.IdempotencyKey != "acme:k" || got.Kind != "greet" || got.Queue != "q" || got.Tenant != "acme" ||
		got.Attempt != 1 || got.MaxAttempts != store.DefaultMaxAttempts || got.Cost != 3 || got.Headers["trace"] != "1" {
		t.Errorf("Current = %+v", got)
	}
	if outcome, err := w.Call(t.Context(), greet.Job("acme", "nobody")); outcome != lifecycle.Retried || err == nil || err.Error() != "panic: nobody there" {
		t.Errorf("a panic: %s, %v", outcome, err)
	}
	HandleResult(w, "count", func(context.Context, int) (int, error) { return 2, nil })
	if outcome, err := w.Call(t.Context(), Job{Kind: "count", Tenant: "acme", Payload: 1}); outcome != lifecycle.Done || err != nil {
		t.Errorf("a handler with a result: %s, %v", outcome, err)
	}
	const mail Kind[letters] = "mail"
	Handle(w, mail, func(ctx context.Context, _ letters) error {
		got, _ = Current(ctx)
		return nil
	})
	job := mail.Job("acme", letters{To: make([]string, 3)})
	job.Costs = map[string]int64{"tokens": 1, "other": 2}
	if outcome, err := w.Call(t.Context(), job); outcome != lifecycle.Done || err != nil || !maps.Equal(got.Costs, map[string]int64{"tokens": 3, "other": 2}) {
		t.Errorf("a payload that knows its costs: %s, %v, costs %v", outcome, err, got.Costs)
	}
	for name, test := range map[string]struct {
		job  Job
		want string
	}{
		"no tenant":    {greet.Job("", "Ada"), "tenant: it is empty"},
		"unknown kind": {Job{Kind: "greeet", Tenant: "a"}, `kind: no handler for "greeet"; did you mean "greet"?`},
	} {
		if _, err := w.Call(t.Context(), test.job); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v; want %s", name, err, test.want)
		}
	}
}

func TestClientUse(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	refused := errors.New("closed on Sundays")
	var order []string
	r.client.Use(func(_ context.Context, job *Job) error {
		order = append(order, "first")
		job.Headers["from"] = "middleware"
		job.Attributes["domain"] = "x"
		return nil
	}, func(_ context.Context, job *Job) error {
		order = append(order, "second")
		if job.Headers["from"] != "middleware" {
			t.Error("the second does not see what the first did")
		}
		if job.Tenant == "sunday" {
			return refused
		}
		if job.Tenant == "" {
			job.Tenant = "named"
		}
		job.Queue = r.queue
		return nil
	})
	shared := map[string]string{"mine": "1"}
	jobs := []Job{
		{Kind: "call", Payload: 1, Headers: shared},
		{Kind: "call", Tenant: "sunday", Payload: 1},
		{Kind: "call", Tenant: "\x00", Payload: 1},
		{Kind: "call", Tenant: "b", Payload: 1, Headers: shared, Attributes: shared},
	}
	results := r.client.EnqueueMany(t.Context(), jobs)
	if results[0].Err != nil || !errors.Is(results[1].Err, refused) || results[3].Err != nil {
		t.Errorf("results = %+v", results)
	}
	if invalid, ok := errors.AsType[*validation.Error](results[2].Err); !ok || invalid.Field != "tenant" {
		t.Errorf("what middleware leaves is checked: %v", results[2].Err)
	}
	if !maps.Equal(shared, map[string]string{"mine": "1"}) || jobs[0].Tenant != "" {
		t.Errorf("the caller's job was changed: %v", shared)
	}
	if want := []string{"first", "second"}; !slices.Equal(order[:2], want) {
		t.Errorf("order = %v", order)
	}
	task, err := asynq.NewInspectorFromRedisClient(r.server.Client()).GetTaskInfo(r.queue, results[0].ID)
	if err != nil || task.Headers["from"] != "middleware" || task.Headers["mine"] != "1" || task.Headers[asynqwire.HeaderTenant] != "named" ||
		task.Headers[asynqwire.HeaderAttributes] != "domain=x" {
		t.Errorf("the task has %v, %v", task.Headers, err)
	}
}

func TestHeadersReachTheHandler(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, limitsOf(), nil)
	got := make(chan Running, 3)
	r.answer = func(_ context.Context, job Running) error {
		got <- job
		if job.Tenant == "retried" && job.Attempt == 1 {
			return errors.New("500")
		}
		return nil
	}
	headers := map[string]string{"traceparent": "00-1", "empty": "", "x": "日本"}
	r.add(t, func(job *Job) { job.Tenant, job.Headers = "retried", headers })
	r.add(t, func(job *Job) { job.Tenant = "without" })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
	for range 3 {
		job := <-got
		if want := headers; job.Tenant == "retried" && !maps.Equal(job.Headers, want) {
			t.Errorf("attempt %d has headers %v; want %v", job.Attempt, job.Headers, want)
		}
		if job.Tenant == "without" && len(job.Headers) > 0 {
			t.Errorf("headers out of nothing: %v", job.Headers)
		}
	}
}

// TestHeadersAreNotWhatAJobIs: a job that is enqueued again with other headers is still the
// same job.
func TestHeadersAreNotWhatAJobIs(t *testing.T) {
	r := startRig(t, 0, limitsOf(), nil)
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "k", Payload: 1, Headers: map[string]string{"traceparent": "1"}}
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	job.Headers = map[string]string{"traceparent": "2"}
	if receipt, err := r.client.Enqueue(t.Context(), job); err != nil || !receipt.Existing {
		t.Errorf("again: %+v, %v; want the job that is there", receipt, err)
	}
}

func TestHostileHeaders(t *testing.T) {
	many := map[string]string{}
	for i := range MaxHeaders {
		many[fmt.Sprintf("h%02d", i)] = strings.Repeat("x", MaxHeaderBytes/MaxHeaders-3)
	}
	if reason := headersProblem(many); reason != "" {
		t.Errorf("as many and as long as may be: %s", reason)
	}
	long := maps.Clone(many)
	long["h00"] += "x"
	more := map[string]string{"one": "too many"}
	maps.Copy(more, many)
	for name, test := range map[string]struct {
		headers map[string]string
		want    string
	}{
		"too many":      {more, "17; the maximum is 16"},
		"too long":      {long, "1025 bytes of names and values; the maximum is 1024"},
		"ours":          {map[string]string{"headgate-tenant": "x"}, "is reserved"},
		"upper case":    {map[string]string{"Trace": "x"}, `"Trace" must have only a-z`},
		"no name":       {map[string]string{"": "x"}, `"" must have only a-z`},
		"newline":       {map[string]string{"x": "a\r\nb"}, "x: \"a\\r\\nb\" has control characters"},
		"not UTF-8":     {map[string]string{"x": "\xff"}, "x: it is not UTF-8"},
		"a long name":   {map[string]string{strings.Repeat("x", 2000): ""}, "2000 bytes"},
		"a hostile one": {map[string]string{strings.Repeat("\x00", 2000): ""}, "must have only a-z"},
	} {
		reason := headersProblem(test.headers)
		if !strings.Contains(reason, test.want) || len(reason) > 300 {
			t.Errorf("%s: %q; want …%s…", name, reason, test.want)
		}
	}
	r := startRig(t, 0, limitsOf(), nil)
	_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Headers: map[string]string{"X": ""}})
	if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != "headers" {
		t.Errorf("Enqueue = %v; want an InvalidError of headers", err)
	}
}
