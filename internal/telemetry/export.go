package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/internal/version"
)

const (
	// flushTime is how long a program waits for the collector when it stops.
	flushTime = 5 * time.Second
	// logEvery is how often a failing export is logged.
	logEvery = time.Minute
)

// Program is what a program exports.
type Program struct {
	Name    string              // such as headgate-worker
	Metrics prometheus.Gatherer // what it shows at /metrics
	Logger  *slog.Logger
	Console io.Writer // of the exporter "console"
}

// Start starts the export. It returns a nil provider if there is no tracing. The function
// stop exports the last spans and metrics, and waits up to 5 s for the collector.
func (c Config) Start(ctx context.Context, p Program) (provider trace.TracerProvider, stop func(), err error) {
	if c.traces.exporter == "" && c.metrics.exporter == "" {
		return nil, func() {}, nil
	}
	// By default the SDK writes the collector's answers to standard error, in its own format.
	report := &failures{logger: p.Logger, secrets: c.secrets}
	otel.SetErrorHandler(report)
	otel.SetLogger(logr.FromSlogHandler(p.Logger.Handler()))
	described, descErr := resource.New(ctx, resource.WithAttributes(p.about()...), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if descErr != nil {
		p.Logger.Warn("some of OTEL_RESOURCE_ATTRIBUTES cannot be read", "error", report.text(descErr))
	}
	console := &shared{to: p.Console}
	var ends []func(context.Context) error
	defer func() {
		if err != nil { // nobody else ends what was opened
			for _, end := range ends {
				_ = end(ctx)
			}
		}
	}()
	if c.traces.exporter != "" {
		exporter, err := c.traces.spans(ctx, console)
		if err != nil {
			return nil, nil, fmt.Errorf("open the export of traces: %w", err)
		}
		// Its queue drops spans when it is full, so that jobs do not wait for the collector.
		recording := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
		provider = recording
		ends = append(ends, recording.Shutdown, exporter.Shutdown)
	}
	if c.metrics.exporter != "" {
		exporter, err := c.metrics.readings(ctx, console)
		if err != nil {
			return nil, nil, fmt.Errorf("open the export of metrics: %w", err)
		}
		reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(p.Metrics))))
		reading := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(described))
		ends = append(ends, reading.Shutdown, exporter.Shutdown)
	}
	return provider, func() {
		bounded, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		ended := make(chan struct{})
		var parts sync.WaitGroup
		for i := 0; i < len(ends); i += 2 {
			end, cut := ends[i], ends[i+1]
			parts.Go(func() {
				if err := end(bounded); err != nil {
					p.Logger.Warn("the last telemetry was not exported", "error", report.text(err))
					_ = cut(bounded) // ends requests in flight
				}
			})
		}
		go func() {
			parts.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-bounded.Done(): // reading the metrics for the last time may take longer
			p.Logger.Warn("the last telemetry was not exported in time")
		}
	}, nil
}

// shared is a writer for several exporters.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(b)
}

func (s signal) spans(ctx context.Context, console io.Writer) (sdktrace.SpanExporter, error) {
	switch {
	case s.exporter == "console":
		return stdouttrace.New(stdouttrace.WithWriter(console))
	case s.protocol == "grpc":
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func (s signal) readings(ctx context.Context, console io.Writer) (sdkmetric.Exporter, error) {
	switch {
	case s.exporter == "console":
		return stdoutmetric.New(stdoutmetric.WithWriter(console))
	case s.protocol == "grpc":
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

// about describes the program. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func (p Program) about() (all []attribute.KeyValue) {
	all = append(all, semconv.ServiceName(p.Name))
	if known := version.Program(); known != "" {
		all = append(all, semconv.ServiceVersion(known))
	}
	return all
}

// failures logs errors of the export, once a minute: if the collector does not answer, an
// error comes every few seconds.
type failures struct {
	logger  *slog.Logger
	secrets []string

	mu      sync.Mutex
	next    time.Time
	skipped int // since the last line
}

// Handle is called by the SDK.
func (e *failures) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Before(e.next) {
		e.skipped++
		return
	}
	e.logger.Warn("telemetry is not exported", "error", e.text(err), "more", e.skipped)
	e.next, e.skipped = now.Add(logEvery), 0
}

// text returns the error without secrets: a collector's answer may repeat our headers.
func (e *failures) text(err error) string {
	text := err.Error()
	for _, secret := range e.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "(secret)")
		}
	}
	const maxText = 500
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
