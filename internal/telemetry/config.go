// Package traceexport sets up the export of spans, configured by OpenTelemetry's own
// variables.
package traceexport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
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

	"github.com/headgate/headgate/internal/version"
)

// OpenTelemetry's variables that decide whether and where spans go. The exporters read the
// others.
const (
	otelDisabled = "OTEL_SDK_DISABLED"
	otelExporter = "OTEL_TRACES_EXPORTER"
	otelSampler  = "OTEL_TRACES_SAMPLER"
	otelArgument = "OTEL_TRACES_SAMPLER_ARG"
	otlp         = "OTEL_EXPORTER_OTLP_"
)

const (
	// flushTime is how long the worker waits for the collector when it stops.
	flushTime = 5 * time.Second
	// logEvery is how often a failing export is logged.
	logEvery = time.Minute
)

// Config is the content of those variables.
type Config struct {
	exporter string // "otlp", "console"; "": no tracing
	protocol string // of otlp
	endpoint string // of otlp, for people
	secrets  []string
}

// Read reads the variables. It rejects values that the exporters would ignore silently,
// which would export no spans, or all of them instead of a sample.
func Read() (Config, error) {
	var c Config
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
		return c, fmt.Errorf("%s: %.40q is not one of otlp, console, none", otelExporter, exporter)
	}
	errs := []error{checkSampler()}
	if c.exporter == "otlp" {
		errs = append(errs, c.readOTLP())
	}
	return c, errors.Join(errs...)
}

// otelVariable returns the value of a variable. OpenTelemetry treats an empty one as unset.
func otelVariable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// ofTraces returns the value of an exporter's variable, and its name: the one for traces, or
// the one for all signals.
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
			return fmt.Errorf("%s: %.40q is not a ratio from 0 to 1", otelArgument, argument)
		}
	default:
		return fmt.Errorf("%s: %.40q is not one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio", otelSampler, sampler)
	}
	return nil
}

// readOTLP returns errors without the values, which may contain secrets.
func (c *Config) readOTLP() error {
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
		// Without the user and the query: exporters do not send them, and they may be secret.
		c.endpoint = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
	case protocol == "grpc" && err == nil && !strings.Contains(endpoint, "@"):
		c.endpoint = endpoint // a target of gRPC's own, such as dns:///collector:4317
	default:
		errs = append(errs, fmt.Errorf("%s: not a URL such as http://collector:4318", variable))
	}
	for _, variable := range []string{otlp + "HEADERS", otlp + "TRACES_HEADERS"} {
		values, err := headerValues(otelVariable(variable))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
		}
		c.secrets = append(c.secrets, values...)
	}
	return errors.Join(errs...)
}

// headerValues returns the values of a list name=value,name=value, each percent-encoded, and
// the part of an authorization after its scheme.
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

func (c Config) String() string {
	switch c.exporter {
	case "otlp":
		return "otlp, " + c.protocol + " to " + c.endpoint
	case "console":
		return "console"
	}
	return ""
}

// Start starts the export. It returns a nil provider if there is no tracing. The function
// stop exports the last spans and waits up to 5 s for the collector.
func (c Config) Start(ctx context.Context, logger *slog.Logger, console io.Writer) (provider trace.TracerProvider, stop func(), err error) {
	if c.exporter == "" {
		return nil, func() {}, nil
	}
	// By default the SDK writes the collector's answers to standard error, in its own format.
	report := &failures{logger: logger, secrets: c.secrets}
	otel.SetErrorHandler(report)
	otel.SetLogger(logr.FromSlogHandler(logger.Handler()))
	exporter, err := c.open(ctx, console)
	if err != nil {
		return nil, nil, fmt.Errorf("open the export of traces: %w", err)
	}
	described, err := resource.New(ctx, resource.WithAttributes(about()...), resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		logger.Warn("some of OTEL_RESOURCE_ATTRIBUTES cannot be read", "error", report.text(err))
	}
	// Its queue drops spans when it is full, so that jobs do not wait for the collector.
	recording := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
	return recording, func() {
		bounded, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := recording.Shutdown(bounded); err != nil {
			logger.Warn("the last spans were not exported", "error", report.text(err))
			_ = exporter.Shutdown(bounded) // cuts off requests in flight
		}
	}, nil
}

func (c Config) open(ctx context.Context, console io.Writer) (sdktrace.SpanExporter, error) {
	switch {
	case c.exporter == "console":
		return stdouttrace.New(stdouttrace.WithWriter(console))
	case c.protocol == "grpc":
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// about describes the program. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func about() (all []attribute.KeyValue) {
	all = append(all, semconv.ServiceName("headgate-worker"))
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
	e.logger.Warn("spans are not exported", "error", e.text(err), "more", e.skipped)
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
