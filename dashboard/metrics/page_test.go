package metrics

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// everyMetric is all that a worker shows of Headgate, each with a value.
func everyMetric(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	client, name := redistest.Shared(t).Client(), redistest.Queue(t)
	publish(t, client, name)
	enqueue(t, client, name, map[string]int{"a": 3})
	registry, m := filled()
	m.Queues(Queues{
		Inspector: inspect.New(client), Names: []string{name}, Tenants: Tenants{Top: 1}, Logger: slog.New(slog.DiscardHandler),
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestNothingIsLeftOut: what is registered has a value in everyMetric.
func TestNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	descs := make(chan *prometheus.Desc, 1000)
	_, m := filled()
	m.Queues(Queues{Inspector: inspect.New(redistest.Shared(t).Client()), Logger: slog.New(slog.DiscardHandler)})
	m.registry.Describe(descs)
	close(descs)
	families := everyMetric(t)
	for desc := range descs {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return strings.Contains(desc.String(), fmt.Sprintf("fqName: %q", f.GetName()))
		}) {
			t.Errorf("%v has no value", desc)
		}
	}
}

// TestMetricsPage holds the table of docs/metrics.md against the registry;
// with -update it writes it.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, family := range everyMetric(t) {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		help := strings.ReplaceAll(family.GetHelp(), "|", `\|`)
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), help)
	}
	table.WriteString("\n")
	golden.Part(t, "../../docs/metrics.md", "metrics", table.String())
}

// TestCountersBeginAtZero: before there is anything to count, rates have something to begin at.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.begin("email")
	m.Called("email", queue.Called{Kind: "email", Took: time.Second, Answer: lifecycle.AnswerOK})
	got := page(t, registry)
	for _, series := range []string{
		`headgate_gate_decisions_total{decision="missed",queue="email"}`,
		`headgate_slots_missed_total{queue="email"}`,
		`headgate_jobs_parked_total{limit="",queue="email",reason="pause"}`,
		`headgate_provider_answers_total{answer="throttled",kind="email",queue="email"}`,
		`headgate_jobs_finished_total{kind="email",outcome="unknown",queue="email"}`,
	} {
		if n, ok := got[series]; !ok || n != 0 {
			t.Errorf("%s is %v, %v", series, n, ok)
		}
	}
}
