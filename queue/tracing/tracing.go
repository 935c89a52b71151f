// Package tracing traces jobs with OpenTelemetry: from the code that enqueued them,
// however long they waited, to each call that was made for them.
//
//	client.Use(tracing.Enqueue(tracing.Config{}))
//	worker.Use(tracing.Handle(tracing.Config{}))
//
// [Enqueue] makes a producer span for each job, also in a batch, and sends its context in
// the job's headers traceparent and tracestate (W3C Trace Context). [Handle] makes a
// consumer span for each call, linked to the producer span: retries are several spans
// with the same link. The spans follow the semantic conventions for messaging. Their
// names are "create KIND" and "process KIND".
//
// Payloads, headers and the text of errors, which may quote them, are never recorded. A
// handler whose errors contain nothing secret can record them:
//
//	trace.SpanFromContext(ctx).RecordError(err)
package tracing

import (
	"cmp"
	"context"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Config sets how spans are made. The zero value is a good default.
type Config struct {
	// Provider makes the spans; nil means the global one.
	Provider trace.TracerProvider

	// Child makes the span of a call a child of the span that enqueued the job, besides
	// the link, so that one trace shows both. Do not set it for jobs that wait long, or
	// that a batch enqueues by the thousand: their trace would not end, or be too large
	// to load.
	Child bool

	// Tenant adds the tenant to spans. It is off by default because a tenant is often a
	// customer's name or a person's address, which readers of traces need not know, and
	// because the backend has to index each value.
	Tenant bool
}

// Attributes of spans beyond the conventions.
const (
	attrKind    = attribute.Key("headgate.job.kind")
	attrAttempt = attribute.Key("headgate.job.attempt")
	attrHeld    = attribute.Key("headgate.job.held_seconds") // time that the worker held the job for its slot
	attrOutcome = attribute.Key("headgate.job.outcome")      // a lifecycle.Outcome
	attrTenant  = attribute.Key("headgate.tenant")
)

var (
	// The global propagator is not used: it may send baggage, which belongs to the
	// application and should not be stored in a job for days.
	w3c    = propagation.TraceContext{}
	system = semconv.MessagingSystemKey.String("headgate")
)

// Enqueue returns a function for [queue.Client.Use]. Install it after middleware that
// changes the kind, the queue or the tenant. Its span covers the making of one job and
// ends before the job is sent. Only the caller of Enqueue knows whether the job was
// accepted.
//
// A job whose headers have no room for the trace is enqueued without it.
func Enqueue(config Config) func(context.Context, *queue.Job) error {
	tracer := config.tracer()
	return func(ctx context.Context, job *queue.Job) error {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			// The author of the job may have set the headers of a trace, as in a line of
			// NDJSON.
			ctx = w3c.Extract(ctx, propagation.MapCarrier(job.Headers))
		}
		attributes := []attribute.KeyValue{
			system, semconv.MessagingOperationTypeCreate, semconv.MessagingOperationName("create"), attrKind.String(job.Kind),
		}
		if job.Queue != "" { // otherwise the kind determines it later
			attributes = append(attributes, semconv.MessagingDestinationName(job.Queue))
		}
		attributes = config.tenant(attributes, job.Tenant)
		ctx, span := tracer.Start(ctx, "create "+job.Kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
		defer span.End()
		if span.SpanContext().IsValid() {
			job.Headers = carry(ctx, job.Headers)
		}
		return nil
	}
}

// carry adds the trace of ctx to headers, as much of it as there is room for.
func carry(ctx context.Context, headers map[string]string) map[string]string {
	without := maps.Clone(headers)
	for _, name := range w3c.Fields() {
		delete(without, name)
	}
	fresh := propagation.MapCarrier{}
	w3c.Inject(ctx, fresh)
	for range 2 {
		all := maps.Clone(without)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, fresh)
		bytes := 0
		for name, value := range all {
			bytes += len(name) + len(value)
		}
		if len(all) <= queue.MaxHeaders && bytes <= queue.MaxHeaderBytes {
			return all
		}
		delete(fresh, "tracestate") // it only extends traceparent
	}
	return without
}

// Handle returns middleware for [queue.Worker.Use]. Install it outside of middleware
// whose work belongs to the span.
func Handle(config Config) queue.Middleware {
	tracer := config.tracer()
	return func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, payload []byte) error {
			job, _ := queue.Current(ctx)
			attributes := config.tenant([]attribute.KeyValue{
				system, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"),
				semconv.MessagingDestinationName(job.Queue), semconv.MessagingMessageID(job.ID),
				attrKind.String(job.Kind), attrAttempt.Int(job.Attempt), attrHeld.Float64(job.Held.Seconds()),
			}, job.Tenant)
			options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
			sent := w3c.Extract(context.Background(), propagation.MapCarrier(job.Headers))
			if origin := trace.SpanContextFromContext(sent); origin.IsValid() {
				options = append(options, trace.WithLinks(trace.Link{SpanContext: origin}))
				if config.Child {
					ctx = trace.ContextWithRemoteSpanContext(ctx, origin)
				}
			}
			ctx, span := tracer.Start(ctx, "process "+job.Kind, options...)
			err := error(panicked{}) // unless next returns
			// Not End itself: deferred, it would record the text of a panic.
			defer func() { end(ctx, span, err) }()
			err = next(ctx, payload)
			return err
		}
	}
}

// end closes the span of a call with its outcome. A call that the provider put off has
// not failed.
func end(ctx context.Context, span trace.Span, err error) {
	outcome := queue.OutcomeOf(ctx, err)
	span.SetAttributes(attrOutcome.String(string(outcome)))
	switch outcome {
	case lifecycle.Retried, lifecycle.Archived, lifecycle.Unknown:
		span.SetAttributes(semconv.ErrorType(err))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

type panicked struct{}

func (panicked) Error() string     { return "panic" }
func (panicked) ErrorType() string { return "panic" }

func (c Config) tracer() trace.Tracer {
	provider := cmp.Or(c.Provider, otel.GetTracerProvider())
	return provider.Tracer("github.com/headgate/headgate/queue/tracing", trace.WithSchemaURL(semconv.SchemaURL))
}

func (c Config) tenant(attributes []attribute.KeyValue, tenant string) []attribute.KeyValue {
	if c.Tenant {
		attributes = append(attributes, attrTenant.String(tenant))
	}
	return attributes
}
