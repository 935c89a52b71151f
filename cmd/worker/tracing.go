package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// OpenTelemetry's own variables that decide whether and where spans go. The
// exporters read the rest of them by themselves.
const (
	otelDisabled = "OTEL_SDK_DISABLED"
	otelExporter = "OTEL_TRACES_EXPORTER"
	otelSampler  = "OTEL_TRACES_SAMPLER"
	otelArgument = "OTEL_TRACES_SAMPLER_ARG"
	otlp         = "OTEL_EXPORTER_OTLP_"
)

const (
	// flushTime is how long the end of the worker may wait for the collector.
	flushTime = 5 * time.Second
	// tellTracing is how often a collector that is away is spoken of.
	tellTracing = time.Minute
)

// tracingConfig is what those variables say.
type tracingConfig struct {
	exporter string // "otlp", "console"; "": no tracing
	protocol string // of otlp
	endpoint string // of otlp, for people
	secrets  []string
}

// readTracing refuses what the exporters would pass over in silence: spans that
// go nowhere, or all of them where a few were asked for.
func readTracing() (tracingConfig, error) {
	var c tracingConfig
	if strings.EqualFold(otelVariable(otelDisabled), "true") {
		return c, nil
	}
	endpoint := otelVariable(otlp+"ENDPOINT") != "" || otelVariable(otlp+"TRACES_ENDPOINT") != ""
	switch exporter := otelVariable(otelExporter); {
	case exporter == "none" || exporter == "" && !endpoint:
		return c, nil
	case exporter == "console":
		c.exporter = exporter
	case exporter == "otlp" || exporter == "":
		c.exporter = "otlp"
	default:
		return c, usageError{fmt.Errorf("%s: %.40q is not one of otlp, console, none", otelExporter, exporter)}
	}
	errs := []error{checkSampler()}
	if c.exporter == "otlp" {
		errs = append(errs, c.readOTLP())
	}
	if err := errors.Join(errs...); err != nil {
		return c, usageError{err}
	}
	return c, nil
}

// otelVariable is a variable's value. To OpenTelemetry, an empty one is not set.
func otelVariable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// ofTraces is the value of an exporter's variable, for traces alone or for all, and
// which of the two it is.
func ofTraces(name string) (variable, value string) {
	if value := otelVariable(otlp + "TRACES_" + name); value != "" {
		return otlp + "TRACES_" + name, value
	}
	return otlp + name, otelVariable(otlp + name)
}

func checkSampler() error {
	switch sampler := strings.ToLower(otelVariable(otelSampler)); sampler {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
	case "traceidratio", "parentbased_traceidratio":
		argument := otelVariable(otelArgument)
		if ratio, err := strconv.ParseFloat(argument, 64); argument != "" && (err != nil || !(ratio >= 0 && ratio <= 1)) {
			return fmt.Errorf("%s: %.40q is no ratio from 0 to 1", otelArgument, argument)
		}
	default:
		return fmt.Errorf("%s: %.40q is not one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio", otelSampler, sampler)
	}
	return nil
}

// readOTLP tells mistakes without the values, in which secrets may stand.
func (c *tracingConfig) readOTLP() error {
	var errs []error
	variable, protocol := ofTraces("PROTOCOL")
	if protocol == "" {
		protocol = "http/protobuf"
	}
	if c.protocol = protocol; !slices.Contains([]string{"http/protobuf", "http/json", "grpc"}, protocol) {
		errs = append(errs, fmt.Errorf("%s: %.40q is not one of http/protobuf, http/json, grpc", variable, protocol))
	}
	variable, endpoint := ofTraces("ENDPOINT")
	u, err := url.Parse(endpoint)
	switch isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https"); {
	case endpoint == "" && protocol == "grpc":
		c.endpoint = "localhost:4317"
	case endpoint == "":
		c.endpoint = "localhost:4318"
	case isURL:
		if password, ok := u.User.Password(); ok {
			c.secrets = append(c.secrets, password)
		}
		path := u.Path
		if protocol != "grpc" && variable == otlp+"ENDPOINT" {
			path = strings.TrimSuffix(path, "/") + "/v1/traces"
		}
		// Neither user nor query, which no exporter sends and which may be secret.
		c.endpoint = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
	case protocol == "grpc" && err == nil && !strings.Contains(endpoint, "@"):
		c.endpoint = endpoint // a target of gRPC's own, such as dns:///collector:4317
	default:
		errs = append(errs, fmt.Errorf("%s: it is no URL such as http://collector:4318", variable))
	}
	// Those of traces take the place of the others, and both are read.
	for _, variable := range []string{otlp + "HEADERS", otlp + "TRACES_HEADERS"} {
		values, err := headerValues(otelVariable(variable))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
		}
		c.secrets = append(c.secrets, values...)
	}
	return errors.Join(errs...)
}

// headerValues are the values of a list name=value,name=value, each percent-encoded,
// and what follows the scheme of an authorization.
func headerValues(list string) (values []string, err error) {
	if list == "" {
		return nil, nil
	}
	for i, pair := range strings.Split(list, ",") {
		name, encoded, ok := strings.Cut(pair, "=")
		value, escape := url.PathUnescape(encoded)
		if name = strings.TrimSpace(name); !ok || escape != nil || name == "" || strings.ContainsFunc(name, notOfToken) {
			return nil, fmt.Errorf("header %d is not name=value with a percent-encoded value", i+1)
		}
		value = strings.TrimSpace(value)
		values = append(values, value)
		if _, credentials, ok := strings.Cut(value, " "); ok {
			values = append(values, strings.TrimSpace(credentials))
		}
	}
	return values, nil
}

func notOfToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func (c tracingConfig) String() string {
	switch c.exporter {
	case "otlp":
		return "otlp, " + c.protocol + " to " + c.endpoint
	case "console":
		return "console"
	}
	return ""
}

// start returns what makes spans, nil where there is no tracing, and what ends the
// export: it waits for the collector, but not for long.
func (c tracingConfig) start(ctx context.Context, logger *slog.Logger, console io.Writer) (provider trace.TracerProvider, stop func(), err error) {
	if c.exporter == "" {
		return nil, func() {}, nil
	}
	// The SDK would write to standard error, in a format of its own, what the
	// collector answers.
	report := &tracingErrors{logger: logger, secrets: c.secrets}
	otel.SetErrorHandler(report)
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	exporter, err := c.open(ctx, console)
	if err != nil {
		return nil, nil, fmt.Errorf("open the export of traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(aboutWorker()...), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		logger.Warn("OTEL_RESOURCE_ATTRIBUTES is not read in full", "error", report.text(err))
	}
	// Its queue drops spans when it is full: a job waits for no collector.
	recording := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return recording, func() {
		bounded, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := recording.Shutdown(bounded); err != nil {
			logger.Warn("the last spans were not exported", "error", report.text(err))
			_ = exporter.Shutdown(bounded) // cuts off what is under way
		}
	}, nil
}

func (c tracingConfig) open(ctx context.Context, console io.Writer) (sdktrace.SpanExporter, error) {
	switch {
	case c.exporter == "console":
		return stdouttrace.New(stdouttrace.WithWriter(console))
	case c.protocol == "grpc":
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// aboutWorker gives way to OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
func aboutWorker() (all []attribute.KeyValue) {
	all = append(all, semconv.ServiceName("headgate-worker"))
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		all = append(all, semconv.ServiceVersion(info.Main.Version))
	}
	return all
}

// tracingErrors logs what is wrong with the export, and not each time: a
// collector that is away fails every few seconds.
type tracingErrors struct {
	logger  *slog.Logger
	secrets []string

	mu   sync.Mutex
	next time.Time
	kept int // since the last line
}

// Handle is called by the SDK.
func (e *tracingErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Before(e.next) {
		e.kept++
		return
	}
	e.logger.Warn("spans are not exported", "error", e.text(err), "more", e.kept)
	e.next, e.kept = now.Add(tellTracing), 0
}

// text is the error without what the collector may have repeated of our headers.
func (e *tracingErrors) text(err error) string {
	text := err.Error()
	for _, secret := range e.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "(secret)")
		}
	}
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
