// Package tracing follows jobs with OpenTelemetry: from the code that enqueued
// them, however long they waited, to every call that was made for them.
//
//	client.Use(tracing.Enqueue(tracing.Config{}))
//	worker.Use(tracing.Handle(tracing.Config{}))
//
// [Enqueue] makes a producer span for each job, also for each of a batch, and
// sends its context along in the job's headers traceparent and tracestate (W3C
// Trace Context). [Handle] makes a consumer span for each call, linked to it:
// retries are several spans with the same link. The spans follow the semantic
// conventions for messaging; their names are "create KIND" and "process KIND".
//
// Payloads, headers and the text of errors, which may quote them, are never
// recorded. A handler that knows its errors to be harmless adds them itself:
//
//	trace.SpanFromContext(ctx).RecordError(err)
package tracing

import (
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

// Config says how spans are made. The zero value will do for most.
type Config struct {
	// Provider makes the spans; nil: the global one.
	Provider trace.TracerProvider

	// Child makes the span of a call a child of the one that enqueued the job,
	// besides the link: one trace shows both. Not for jobs that wait long or that
	// a batch enqueued by the thousand: their trace would not end, or not load.
	Child bool

	// Tenant puts the tenant on spans. It is off because a tenant is often a
	// customer's name or a person's address, which whoever reads traces need not
	// know, and because every other value is one more for the backend to index.
	Tenant bool
}

// Attributes of our spans beyond the conventions.
const (
	attrKind    = attribute.Key("headgate.job.kind")
	attrAttempt = attribute.Key("headgate.job.attempt")
	attrHeld    = attribute.Key("headgate.job.held_seconds") // in the worker, for its slot
	attrOutcome = attribute.Key("headgate.job.outcome")      // a queue.Outcome
	attrTenant  = attribute.Key("headgate.tenant")
)

var (
	// The global propagator is not used: it may send baggage, which is the
	// application's own and has no place in a job that is kept for days.
	w3c    = propagation.TraceContext{}
	system = semconv.MessagingSystemKey.String("headgate")
)

// Enqueue is for [queue.Client.Use], behind what changes the kind, the queue or
// the tenant. Its span stands for the making of one job and ends before the job
// is sent; whether it was accepted is told to the caller of Enqueue alone.
//
// A job whose headers have no room for the trace goes without it.
func Enqueue(config Config) func(context.Context, *queue.Job) error {
	tracer := config.tracer()
	return func(ctx context.Context, job *queue.Job) error {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			// Who wrote the job may have sent a trace along, as in a line of NDJSON.
			ctx = w3c.Extract(ctx, propagation.MapCarrier(job.Headers))
		}
		attributes := []attribute.KeyValue{
			system, semconv.MessagingOperationTypeCreate, semconv.MessagingOperationName("create"), attrKind.String(job.Kind),
		}
		if job.Queue != "" { // else it is found by the kind, later
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

// carry puts the trace of ctx into headers, as much of it as there is room for.
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
		delete(fresh, "tracestate") // it only adds to the other
	}
	return without
}

// Handle is for [queue.Worker.Use], outside of middleware whose work belongs to
// the span.
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

// end closes the span of a call with what came of it. A call that the provider
// put off has not failed.
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
	provider := c.Provider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer("github.com/headgate/headgate/queue/tracing", trace.WithSchemaURL(semconv.SchemaURL))
}

func (c Config) tenant(attributes []attribute.KeyValue, tenant string) []attribute.KeyValue {
	if c.Tenant {
		attributes = append(attributes, attrTenant.String(tenant))
	}
	return attributes
}
