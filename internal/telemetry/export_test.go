package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTracingErrorsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := &failures{logger: slog.New(slog.NewTextHandler(&log, nil))}
		for range 120 {
			e.Handle(errors.New("the collector is away"))
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "more=0") || !strings.Contains(lines[1], "more=59") {
			t.Errorf("in two minutes of errors: %q", lines)
		}
	})
}

// TestConsole: spans and metrics on standard output, to try it.
func TestConsole(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	t.Setenv("OTEL_METRICS_EXPORTER", "console")
	c, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	registry := prometheus.NewRegistry()
	calls := prometheus.NewCounter(prometheus.CounterOpts{Name: "headgate_attempts_total"})
	registry.MustRegister(calls)
	calls.Add(3)
	provider, stop, err := c.Start(t.Context(), Program{Name: "test", Metrics: registry, Logger: slog.New(slog.DiscardHandler), Console: &out})
	if err != nil {
		t.Fatal(err)
	}
	_, span := provider.Tracer("test").Start(t.Context(), "process webhook")
	span.End()
	stop()
	if c.Traces() != "console" || c.Metrics() != "console" || !strings.Contains(out.String(), `"process webhook"`) ||
		!strings.Contains(out.String(), `"headgate_attempts_total"`) || !strings.Contains(out.String(), `"Value":3`) {
		t.Errorf("%v: %s", c, out.String())
	}
}

// TestProtocols: metrics go where traces go by JSON, in the form that they have.
func TestProtocols(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	c, err := Read()
	if want := "otlp, http/json to http://127.0.0.1:4318/v1/traces"; err != nil || c.Traces() != want {
		t.Errorf("traces: %s, %v; want %s", c.Traces(), err, want)
	}
	if want := "otlp, http/protobuf to http://127.0.0.1:4318/v1/metrics"; c.Metrics() != want {
		t.Errorf("metrics: %s; want %s", c.Metrics(), want)
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "sometimes")
	if c, err := ReadMetrics(); err != nil || c.Traces() != "none" {
		t.Errorf("a program without spans: traces %s, %v", c.Traces(), err)
	}
}
