package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/queuetest"
	"github.com/headgate/headgate/queue/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type SMS struct{ To string }

const SendSMS queue.Kind[SMS] = "sms"

// rig is a queue whose client and worker are traced.
type rig struct {
	*queuetest.Queue
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer // the application's
}

func start(t *testing.T, config tracing.Config, handler func(context.Context, SMS) error) rig {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	config.Provider = provider
	r := rig{queuetest.Start(t, "texts"), spans, provider.Tracer("application")}
	r.Client.Use(tracing.Enqueue(config))
	r.Worker.Use(tracing.Handle(config))
	queue.Handle(r.Worker, SendSMS, handler)
	return r
}

func (r rig) enqueue(t *testing.T, ctx context.Context, jobs ...queue.Job) {
	t.Helper()
	for i := range jobs {
		jobs[i].Queue = "texts"
	}
	for _, result := range r.Client.EnqueueMany(ctx, jobs) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// named returns the ended spans of a name, in the order of their starts.
func (r rig) named(name string) []sdktrace.ReadOnlySpan {
	var spans []sdktrace.ReadOnlySpan
	for _, span := range r.spans.Ended() {
		if span.Name() == name {
			spans = append(spans, span)
		}
	}
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return spans
}

func attributes(span sdktrace.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// linked fails the test unless a span has exactly one link, to the other.
func linked(t *testing.T, span, origin sdktrace.ReadOnlySpan) {
	t.Helper()
	links := span.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != origin.SpanContext().SpanID() || links[0].SpanContext.TraceID() != origin.SpanContext().TraceID() {
		t.Errorf("%s links to %+v; want %s", span.Name(), links, origin.SpanContext().SpanID())
	}
}

func TestOneJob(t *testing.T) {
	var inside trace.SpanContext
	r := start(t, tracing.Config{}, func(ctx context.Context, _ SMS) error {
		inside = trace.SpanContextFromContext(ctx)
		return nil
	})
	ctx, request := r.tracer.Start(t.Context(), "request")
	r.enqueue(t, ctx, SendSMS.Job("acme", SMS{"secret"}))
	request.End()
	r.Drain()

	created, processed := r.named("create sms"), r.named("process sms")
	if len(created) != 1 || len(processed) != 1 {
		t.Fatalf("%d and %d spans; want one each", len(created), len(processed))
	}
	if created[0].SpanKind() != trace.SpanKindProducer || created[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("the producer span is %s under %s; want producer under the request", created[0].SpanKind(), created[0].Parent().SpanID())
	}
	if processed[0].SpanKind() != trace.SpanKindConsumer || processed[0].Parent().IsValid() ||
		processed[0].SpanContext().TraceID() == created[0].SpanContext().TraceID() {
		t.Errorf("the consumer span is %s under %v; want consumer, the root of its own trace", processed[0].SpanKind(), processed[0].Parent())
	}
	linked(t, processed[0], created[0])
	if inside.SpanID() != processed[0].SpanContext().SpanID() {
		t.Error("the handler does not run inside of the span")
	}
	id := r.Outcomes()[0].ID
	for span, want := range map[sdktrace.ReadOnlySpan]map[string]any{
		created[0]: {
			"messaging.system": "headgate", "messaging.operation.type": "create", "messaging.operation.name": "create",
			"messaging.destination.name": "texts", "headgate.job.kind": "sms",
		},
		processed[0]: {
			"messaging.system": "headgate", "messaging.operation.type": "process", "messaging.operation.name": "process",
			"messaging.destination.name": "texts", "messaging.message.id": id, "headgate.job.kind": "sms",
			"headgate.job.attempt": int64(1), "headgate.job.outcome": "done",
		},
	} {
		got := attributes(span)
		if held, ok := got["headgate.job.held_seconds"].(float64); span == processed[0] && (!ok || held < 0 || held > 60) {
			t.Errorf("%s was held for %v s", span.Name(), got["headgate.job.held_seconds"])
		}
		delete(got, "headgate.job.held_seconds") // as long as this machine took
		if !maps.Equal(got, want) {
			t.Errorf("%s has %v; want %v", span.Name(), got, want)
		}
		if !strings.HasPrefix(span.InstrumentationScope().SchemaURL, "https://opentelemetry.io/schemas/") {
			t.Errorf("%s has schema %q", span.Name(), span.InstrumentationScope().SchemaURL)
		}
	}
}

func TestRetries(t *testing.T) {
	r := start(t, tracing.Config{}, func(ctx context.Context, _ SMS) error {
		if job, _ := queue.Current(ctx); job.Attempt < 3 {
			return fmt.Errorf("send: %w", context.DeadlineExceeded)
		}
		return nil
	})
	r.enqueue(t, t.Context(), SendSMS.Job("acme", SMS{}))
	for range 3 {
		r.Drain()
		r.Advance(time.Hour)
	}
	created, processed := r.named("create sms"), r.named("process sms")
	if len(created) != 1 || len(processed) != 3 {
		t.Fatalf("%d and %d spans; want 1 and 3", len(created), len(processed))
	}
	traces := map[trace.TraceID]bool{}
	for i, span := range processed {
		linked(t, span, created[0])
		traces[span.SpanContext().TraceID()] = true
		got := attributes(span)
		want, status, fault := "retried", codes.Error, any("context.deadlineExceededError")
		if i == 2 {
			want, status, fault = "done", codes.Unset, nil
		}
		if got["headgate.job.attempt"] != int64(i+1) || got["headgate.job.outcome"] != want || got["error.type"] != fault || span.Status().Code != status {
			t.Errorf("attempt %d has %v, status %v; want %s", i+1, got, span.Status(), want)
		}
	}
	if len(traces) != 3 {
		t.Errorf("three attempts are in %d traces", len(traces))
	}
}

// TestBatch: each job of a batch has a span of its own to link to.
func TestBatch(t *testing.T) {
	r := start(t, tracing.Config{}, func(context.Context, SMS) error { return nil })
	ctx, request := r.tracer.Start(t.Context(), "request")
	const n = 5
	jobs := make([]queue.Job, n)
	shared := map[string]string{"mine": "1"} // by all jobs; it must not be changed
	for i := range jobs {
		jobs[i] = SendSMS.Job("acme", SMS{fmt.Sprint(i)})
		jobs[i].Headers = shared
	}
	r.enqueue(t, ctx, jobs...)
	request.End()
	r.Drain()
	created, processed := r.named("create sms"), r.named("process sms")
	if len(created) != n || len(processed) != n {
		t.Fatalf("%d and %d spans; want %d each", len(created), len(processed), n)
	}
	for i := range n { // a tenant's jobs run in order
		linked(t, processed[i], created[i])
		if created[i].Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("span %d is not under the request", i)
		}
	}
	if len(shared) != 1 {
		t.Errorf("the caller's headers were changed: %v", shared)
	}
}

func TestChild(t *testing.T) {
	r := start(t, tracing.Config{Child: true}, func(context.Context, SMS) error { return nil })
	r.enqueue(t, t.Context(), SendSMS.Job("acme", SMS{}))
	r.Drain()
	created, processed := r.named("create sms")[0], r.named("process sms")[0]
	linked(t, processed, created)
	if parent := processed.Parent(); parent.SpanID() != created.SpanContext().SpanID() || parent.TraceID() != created.SpanContext().TraceID() || !parent.IsRemote() {
		t.Errorf("parent = %+v; want the span that enqueued", parent)
	}
}

func TestTenant(t *testing.T) {
	for _, told := range []bool{false, true} {
		r := start(t, tracing.Config{Tenant: told}, func(context.Context, SMS) error { return nil })
		r.enqueue(t, t.Context(), SendSMS.Job("acme", SMS{}))
		r.Drain()
		for _, span := range r.spans.Ended() {
			if got, has := attributes(span)["headgate.tenant"]; has != told || told && got != "acme" {
				t.Errorf("%s with Tenant: %v has tenant %v", span.Name(), told, got)
			}
		}
	}
}

type throttled struct{}

func (throttled) Error() string             { return "429 for secret" }
func (throttled) RetryAfter() time.Duration { return time.Minute }

// TestOutcomes: spans have the outcome of the call, and none of its content.
func TestOutcomes(t *testing.T) {
	tests := map[string]struct {
		answer  func() error
		outcome lifecycle.Outcome
		status  codes.Code
		fault   any
	}{
		"failed":    {func() error { return errors.New("500 for secret") }, lifecycle.Archived, codes.Error, "*errors.errorString"},
		"throttled": {func() error { return throttled{} }, lifecycle.Throttled, codes.Unset, nil},
		"panicked":  {func() error { panic("secret") }, lifecycle.Archived, codes.Error, "panic"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := start(t, tracing.Config{}, func(context.Context, SMS) error { return test.answer() })
			job := SendSMS.Job("tenant-secret", SMS{"secret"})
			job.MaxAttempts, job.Headers = 1, map[string]string{"token": "secret"}
			job.Attributes = map[string]string{"domain": "secret"}
			r.enqueue(t, t.Context(), job)
			r.Drain()
			if runs := r.Outcomes(); len(runs) != 1 || runs[0].Outcome != test.outcome {
				t.Errorf("runs = %v", runs)
			}
			queuetest.Enqueued(r.Queue, SendSMS) // throttled jobs stay
			span := r.named("process sms")[0]
			got := attributes(span)
			if got["headgate.job.outcome"] != string(test.outcome) || got["error.type"] != test.fault || span.Status().Code != test.status {
				t.Errorf("span has %v, status %v; want %s", got, span.Status(), test.outcome)
			}
			for _, span := range r.spans.Ended() {
				if stub := fmt.Sprintf("%+v", tracetest.SpanStubFromReadOnlySpan(span)); strings.Contains(stub, "secret") {
					t.Errorf("%s tells too much: %s", span.Name(), stub)
				}
			}
		})
	}
}

// TestRoom: a job is never refused because of its trace.
func TestRoom(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=" + strings.Repeat("x", 200))
	if err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range queue.MaxHeaders {
		many[fmt.Sprintf("h%d", i)] = "x"
	}
	tests := map[string]struct {
		headers map[string]string
		want    []string
	}{
		"room for all":            {nil, []string{"traceparent", "tracestate"}},
		"an old trace":            {map[string]string{"traceparent": "junk", "tracestate": "junk"}, []string{"traceparent", "tracestate"}},
		"room for the parent":     {map[string]string{"long": strings.Repeat("x", 800)}, []string{"long", "traceparent"}},
		"room for nothing":        {map[string]string{"long": strings.Repeat("x", 1000)}, []string{"long"}},
		"as many as there may be": {many, slices.Sorted(maps.Keys(many))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := start(t, tracing.Config{}, nil)
			parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceState: state, TraceFlags: trace.FlagsSampled})
			job := SendSMS.Job("acme", SMS{})
			job.Headers = test.headers
			r.enqueue(t, trace.ContextWithSpanContext(t.Context(), parent), job)
			got := queuetest.Enqueued(r.Queue, SendSMS)[0].Headers
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, test.want) || got["traceparent"] == "junk" {
				t.Errorf("headers = %v; want %v", names, test.want)
			}
		})
	}
}

// TestOldTrace: a new trace replaces an old one completely.
func TestOldTrace(t *testing.T) {
	r := start(t, tracing.Config{}, nil)
	ctx, request := r.tracer.Start(t.Context(), "request")
	defer request.End()
	job := SendSMS.Job("acme", SMS{})
	job.Headers = map[string]string{"traceparent": "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01", "tracestate": "vendor=old"}
	r.enqueue(t, ctx, job)
	headers := queuetest.Enqueued(r.Queue, SendSMS)[0].Headers
	if _, old := headers["tracestate"]; old || !strings.Contains(headers["traceparent"], request.SpanContext().TraceID().String()) {
		t.Errorf("headers = %v; want the request's trace alone", headers)
	}
}

// TestTraceOfTheLine: a job with the headers of a trace continues that trace.
func TestTraceOfTheLine(t *testing.T) {
	r := start(t, tracing.Config{}, func(context.Context, SMS) error { return nil })
	job := SendSMS.Job("acme", SMS{})
	job.Headers = map[string]string{"traceparent": "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"}
	r.enqueue(t, t.Context(), job)
	r.Drain()
	created := r.named("create sms")[0]
	if created.Parent().SpanID().String() != "0102030405060708" {
		t.Errorf("parent = %v", created.Parent())
	}
	linked(t, r.named("process sms")[0], created)
}

// TestWithoutTracing: a program that records nothing sends no trace, and a job without a
// trace or with a broken one runs nevertheless.
func TestWithoutTracing(t *testing.T) {
	q := queuetest.Start(t, "sms")
	q.Client.Use(tracing.Enqueue(tracing.Config{Provider: noop.NewTracerProvider()}))
	spans := tracetest.NewSpanRecorder()
	q.Worker.Use(tracing.Handle(tracing.Config{Provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}))
	queue.Handle(q.Worker, SendSMS, func(context.Context, SMS) error { return nil })
	broken := SendSMS.Job("acme", SMS{})
	broken.Headers = map[string]string{"traceparent": "00-zz-zz-01"}
	for _, result := range q.Client.EnqueueMany(t.Context(), []queue.Job{SendSMS.Job("acme", SMS{}), broken}) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	if headers := queuetest.Enqueued(q, SendSMS)[0].Headers; len(headers) > 0 {
		t.Errorf("headers = %v", headers)
	}
	q.Drain()
	if ended := spans.Ended(); len(ended) != 2 || len(ended[0].Links())+len(ended[1].Links()) > 0 {
		t.Errorf("%d spans, want 2 without links", len(ended))
	}
}

func Example() {
	spans := tracetest.NewInMemoryExporter()
	config := tracing.Config{Provider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
	create := tracing.Enqueue(config) // client.Use(create)

	job := SendSMS.Job("acme", SMS{"Ada"})
	if err := create(context.Background(), &job); err != nil {
		fmt.Println(err)
	}
	span := spans.GetSpans()[0]
	fmt.Println(span.Name, span.SpanKind, strings.Contains(job.Headers["traceparent"], span.SpanContext.TraceID().String()))
	fmt.Println(slices.Contains(span.Attributes, attribute.String("messaging.operation.type", "create")))
	// Output:
	// create sms producer true
	// true
}
