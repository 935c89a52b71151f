package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/tracing"
)

// exported is what a collector was sent.
type exported struct {
	collector.UnimplementedTraceServiceServer

	mu       sync.Mutex
	spans    []*tracepb.Span
	metrics  map[string]string // names of services, by metric
	resource *resourcepb.Resource
	token    string // of the authorization header
}

func (e *exported) take(request *collector.ExportTraceServiceRequest, token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token = token
	for _, of := range request.ResourceSpans {
		e.resource = of.Resource
		for _, scope := range of.ScopeSpans {
			e.spans = append(e.spans, scope.Spans...)
		}
	}
}

func (e *exported) takeMetrics(request *metricscollector.ExportMetricsServiceRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.metrics == nil {
		e.metrics = map[string]string{}
	}
	for _, of := range request.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, metric := range scope.Metrics {
				e.metrics[metric.Name] = values(of.Resource.Attributes)["service.name"]
			}
		}
	}
}

// ServeHTTP is a collector for http/protobuf.
func (e *exported) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	spans, metrics := &collector.ExportTraceServiceRequest{}, &metricscollector.ExportMetricsServiceRequest{}
	switch {
	case err != nil:
	case r.URL.Path == "/v1/traces":
		if err = proto.Unmarshal(body, spans); err == nil {
			e.take(spans, r.Header.Get("Authorization"))
		}
	case r.URL.Path == "/v1/metrics":
		if err = proto.Unmarshal(body, metrics); err == nil {
			e.takeMetrics(metrics)
		}
	default:
		err = errors.New("nobody is here")
	}
	if err != nil {
		http.Error(w, fmt.Sprint(r.URL, err), http.StatusBadRequest)
	}
}

// exportedMetrics is a collector of metrics for grpc.
type exportedMetrics struct {
	metricscollector.UnimplementedMetricsServiceServer
	*exported
}

func (e exportedMetrics) Export(_ context.Context, request *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	e.takeMetrics(request)
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

// Export is one for grpc.
func (e *exported) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	e.take(request, strings.Join(sent["authorization"], ""))
	return &collector.ExportTraceServiceResponse{}, nil
}

func values(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = a.Value.GetStringValue()
		if _, isText := a.Value.Value.(*commonpb.AnyValue_StringValue); !isText {
			all[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return all
}

// traced is a worker's surroundings: webhooks that a receiver takes, and a client.
func traced(t *testing.T) (client *queue.Client, job queue.Job) {
	t.Helper()
	server := redistest.Start(t)
	quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	t.Setenv("HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true")
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	payload, err := json.Marshal(map[string]string{"url": receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	return queue.NewClient(server.Client()), queue.Job{Kind: "webhook", Tenant: "acme", Payload: payload, Retention: time.Hour}
}

// TestTraces: a worker that knows of a collector sends it a span of each call,
// linked to the one that enqueued the job, and what it shows at /metrics.
func TestTraces(t *testing.T) {
	for _, protocol := range []string{"", "grpc"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			sent := &exported{}
			url := ""
			if protocol == "grpc" {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				server := grpc.NewServer()
				collector.RegisterTraceServiceServer(server, sent)
				metricscollector.RegisterMetricsServiceServer(server, exportedMetrics{exported: sent})
				go func() { _ = server.Serve(listener) }()
				t.Cleanup(server.Stop)
				url = "http://" + listener.Addr().String()
			} else {
				server := httptest.NewServer(sent)
				t.Cleanup(server.Close)
				url = server.URL
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")

			created := tracetest.NewSpanRecorder()
			var id string
			t.Run("run", func(t *testing.T) { // its end is that of the worker
				client, job := traced(t)
				client.Use(tracing.Enqueue(tracing.Config{Provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(created))}))
				running(t)
				receipt, err := client.Enqueue(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				id = receipt.ID
				if got := ended(t, client, "webhook", id); got.Outcome != lifecycle.Done {
					t.Fatalf("%+v", got)
				}
			})
			if len(sent.spans) != 1 || sent.token != "Bearer token" {
				t.Fatalf("the collector has %v, by %q; want a span of the call", sent.spans, sent.token)
			}
			for _, metric := range []string{"headgate_attempts_total", "headgate_gate_duration_seconds", "headgate_build_info", "go_goroutines"} {
				if sent.metrics[metric] != "headgate-worker" {
					t.Errorf("%s is of %q; the collector has the metrics %v", metric, sent.metrics[metric], sent.metrics)
				}
			}
			span, origin := sent.spans[0], created.Ended()[0].SpanContext()
			if span.Name != "process webhook" || span.Kind != tracepb.Span_SPAN_KIND_CONSUMER {
				t.Errorf("span = %s, %s", span.Name, span.Kind)
			}
			if len(span.Links) != 1 || hex.EncodeToString(span.Links[0].TraceId) != origin.TraceID().String() || hex.EncodeToString(span.Links[0].SpanId) != origin.SpanID().String() {
				t.Errorf("links = %v; want one to %s", span.Links, origin.SpanID())
			}
			got := values(span.Attributes)
			for name, want := range map[string]string{
				"messaging.system": "headgate", "messaging.operation.type": "process", "messaging.destination.name": "webhook",
				"messaging.message.id": id, "headgate.job.kind": "webhook", "headgate.job.outcome": "done",
			} {
				if got[name] != want {
					t.Errorf("%s = %q; want %q", name, got[name], want)
				}
			}
			if !strings.HasPrefix(got["headgate.job.held_seconds"], "double_value:") || got["headgate.tenant"] != "" {
				t.Errorf("attributes = %v", got)
			}
			about := values(sent.resource.Attributes)
			if about["service.name"] != "headgate-worker" || about["deployment.environment.name"] != "test" || about["host.name"] == "" {
				t.Errorf("resource = %v", about)
			}
		})
	}
}

// tracers are the goroutines of OpenTelemetry.
func tracers() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "go.opentelemetry.io/otel/sdk")
}

// TestNoTelemetry: nothing is exported unless OpenTelemetry's variables ask for it.
func TestNoTelemetry(t *testing.T) {
	sent := &exported{}
	server := httptest.NewServer(sent)
	defer server.Close()
	for name, test := range map[string]struct {
		environment map[string]string
		on          bool
	}{
		"no variable":     {},
		"empty ones":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_TRACES_EXPORTER": " "}, false},
		"for metrics":     {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": server.URL + "/v1/metrics"}, true},
		"disabled":        {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_SDK_DISABLED": "TRUE"}, false},
		"none":            {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, false},
		"for traces":      {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": server.URL + "/v1/traces"}, true},
		"by the exporter": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		"sampled, none":   {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_TRACES_SAMPLER": "always_off", "OTEL_METRICS_EXPORTER": "none"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sent.spans, sent.metrics = nil, nil
			for name, value := range test.environment {
				t.Setenv(name, value)
			}
			t.Run("run", func(t *testing.T) {
				client, job := traced(t)
				running(t)
				receipt, err := client.Enqueue(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				ended(t, client, "webhook", receipt.ID)
				if n := tracers(); (n > 0) != test.on {
					t.Errorf("%d goroutines export", n)
				}
			})
			if want := name == "for traces"; (len(sent.spans) > 0) != want {
				t.Errorf("the collector has %d spans", len(sent.spans))
			}
			if want := name == "for metrics"; (len(sent.metrics) > 0) != want {
				t.Errorf("the collector has %d metrics", len(sent.metrics))
			}
		})
	}
}

// TestCollectorAway: jobs do not wait for a collector that does not answer, nor
// does the end of the worker for long.
func TestCollectorAway(t *testing.T) {
	asked, answer := make(chan struct{}, 1000), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done(): // of the connection, once the worker hangs up
		}
	}))
	defer collector.Close()
	defer close(answer)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1") // full with the second job
	t.Run("run", func(t *testing.T) {
		client, job := traced(t)
		running(t)
		var last string
		for range 50 {
			receipt, err := client.Enqueue(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			last = receipt.ID
		}
		if got := ended(t, client, "webhook", last); got.Outcome != lifecycle.Done {
			t.Errorf("%+v", got)
		}
		<-asked
	})
	// The collector has not answered yet, so what has not been cut off would export for ever. What
	// has been ends by itself, a moment later.
	for end := time.Now().Add(time.Minute); tracers() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines still export", tracers())
		}
	}
}

// TestCollectorRefuses: what is wrong with the export is said once, and without
// what our headers say.
func TestCollectorRefuses(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "unknown: %s, %s", r.Header["Authorization"], r.Header["X-Key"])
	}))
	defer refuses.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", strings.Replace(refuses.URL, "http://", "http://me:"+canary+"-url@", 1))
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+canary+"-a,x-key=%20"+canary+"%2Cb")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	path := filepath.Join(t.TempDir(), "log")
	written, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	t.Run("run", func(t *testing.T) {
		client, job := traced(t)
		stderr := os.Stderr
		os.Stderr = written
		t.Cleanup(func() { os.Stderr = stderr })
		running(t)
		for range 5 {
			receipt, err := client.Enqueue(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			ended(t, client, "webhook", receipt.ID)
		}
	})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	told := string(text)
	if strings.Count(told, "telemetry is not exported") != 1 || !strings.Contains(told, "401") || !strings.Contains(told, "(secret)") {
		t.Errorf("want one line that says why:\n%s", told)
	}
	settings, errText, code := command(t.Context(), "config")
	if code != 0 || !strings.Contains(settings, "otlp, http/protobuf to "+refuses.URL+"/v1/traces") ||
		!strings.Contains(settings, "otlp, http/protobuf to "+refuses.URL+"/v1/metrics") {
		t.Errorf("%s\n%s", settings, errText)
	}
	if leaks(told) || leaks(settings) {
		t.Errorf("a secret is told:\n%s\n%s", told, settings)
	}
}

func TestWrongTracing(t *testing.T) {
	for name, test := range map[string]struct {
		environment []string
		want        string
	}{
		"exporter":        {[]string{"OTEL_TRACES_EXPORTER", "zipkin"}, `OTEL_TRACES_EXPORTER: "zipkin" is not one of otlp, console, none`},
		"protocol":        {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "http"}, `OTEL_EXPORTER_OTLP_PROTOCOL: "http" is not one of http/protobuf, http/json, grpc, by which traces can be sent`},
		"metrics":         {[]string{"OTEL_METRICS_EXPORTER", "statsd"}, `OTEL_METRICS_EXPORTER: "statsd" is not one of otlp, console, none`},
		"metrics as JSON": {[]string{"OTEL_METRICS_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"}, `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: "http/json" is not one of http/protobuf, grpc, by which metrics can be sent`},
		"its own":         {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "udp"}, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "udp"`},
		"endpoint":        {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "hush:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL such as http://collector:4318"},
		"grpc's endpoint": {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: not a URL"},
		"headers":         {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_HEADERS", "a=b,hush"}, "OTEL_EXPORTER_OTLP_HEADERS: header 2 is not name=value with a percent-encoded value"},
		"a header's name": {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "hush hush=b"}, "OTEL_EXPORTER_OTLP_TRACES_HEADERS: header 1"},
		"an escape":       {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_HEADERS", "a=hush%zz"}, "OTEL_EXPORTER_OTLP_HEADERS: header 1"},
		"sampler":         {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_TRACES_SAMPLER", "sometimes"}, `OTEL_TRACES_SAMPLER: "sometimes" is not one of`},
		"ratio":           {[]string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "10"}, `OTEL_TRACES_SAMPLER_ARG: "10" is not a ratio from 0 to 1`},
		"two at once":     {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "x", "OTEL_TRACES_SAMPLER", "y"}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
	} {
		t.Run(name, func(t *testing.T) {
			quietly(t, redistest.Shared(t).URL(), "queues: {webhook: {kinds: [webhook]}}")
			for pair := range slices.Chunk(test.environment, 2) {
				t.Setenv(pair[0], pair[1])
			}
			for _, name := range []string{"run", "config"} {
				out, errText, code := command(t.Context(), name)
				if code != 2 || !strings.Contains(errText, test.want) || strings.Contains(out+errText, "hush") {
					t.Errorf("%s: %q, exit %d; want %q", name, errText, code, test.want)
				}
			}
		})
	}
}
