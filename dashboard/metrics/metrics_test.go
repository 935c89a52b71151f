package metrics

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

// filled is a registry with a value for every metric that needs no Redis.
func filled() (*prometheus.Registry, *Metrics) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(buildInfo())
	limiters := limitmetrics.New(registry)
	limiters.Observe(throttle.Observation{Limits: []string{"key"}, Decision: throttle.Decision{Allowed: true, Limit: "key", Quota: 10, Remaining: 9}, Took: time.Millisecond, Waited: time.Second})
	m := New(registry)
	var observer queue.Observer = m
	observer.Finished("email", "email", lifecycle.Done)
	observer.Gated("email", queue.Gating{Kind: "email", Decision: "sent", Asked: 2 * time.Millisecond, Held: 30 * time.Millisecond, Runnable: 4 * time.Millisecond, Waited: 3 * time.Second})
	observer.Gated("email", queue.Gating{Kind: "email", Decision: "missed"})
	observer.Gated("email", queue.Gating{Kind: "email", Decision: "parked", Reason: queue.ParkedByLimit, Limit: "daily"})
	observer.Called("email", queue.Called{Kind: "email", Attempt: 1, Took: 40 * time.Millisecond, Answer: lifecycle.AnswerOK})
	observer.Called("email", queue.Called{Kind: "email", Attempt: 1, Took: 40 * time.Millisecond, Answer: lifecycle.AnswerUnknown})
	observer.Dispatched("email", queue.Round{
		Took: time.Millisecond, Released: 3, Waiting: 40, Enqueued: 50, Held: 7, Sending: 2, Concurrency: 1000, Starved: 2 * time.Second,
	})
	observer.RoundTrip(queue.RoundTrip{Command: "script:settle", Took: time.Millisecond, Failed: true})
	m.Breakers("ai", func() uint64 { return 2 })
	m.LimitsFile(func() error { return errors.New("line 3") })
	return registry, m
}

func TestMetrics(t *testing.T) {
	registry, _ := filled()
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	page := httptest.NewRecorder()
	Handler(registry).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`headgate_jobs_finished_total{kind="email",outcome="done",queue="email"} 1`,
		`headgate_attempts_total{kind="email",queue="email"} 2`,
		`headgate_provider_answers_total{answer="ok",kind="email",queue="email"} 1`,
		`headgate_gate_decisions_total{decision="sent",queue="email"} 1`,
		`headgate_slots_missed_total{queue="email"} 1`,
		`headgate_jobs_parked_total{limit="daily",queue="email",reason="limit"} 1`,
		`headgate_hold_seconds_sum{queue="email"} 0.03`,
		`headgate_wait_seconds_sum{queue="email"} 3`,
		`headgate_runnable_latency_seconds_sum{queue="email"} 0.004`,
		`headgate_gate_duration_seconds_sum{queue="email"} 0.002`,
		`headgate_call_duration_seconds_count{kind="email",queue="email"} 2`,
		`headgate_jobs_released_total{queue="email"} 3`,
		`headgate_dispatch_starved_seconds_total{queue="email"} 2`,
		`headgate_dispatch_duration_seconds_count{queue="email"} 1`,
		`headgate_worker_jobs 7`,
		`headgate_worker_calls 2`,
		`headgate_worker_concurrency 1000`,
		`headgate_redis_round_trips_total{command="script:settle"} 1`,
		`headgate_redis_errors_total{command="script:settle"} 1`,
		`headgate_redis_round_trip_seconds_count 1`,
		`headgate_breaker_opened_total{kind="ai"} 2`,
		`headgate_limits_file_failed 1`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

// Native histograms go to a Prometheus that asks in protobuf, beside the classic ones.
func TestHistogramsAreNativeToo(t *testing.T) {
	registry, _ := filled()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			h := metric.GetHistogram()
			if h == nil {
				continue
			}
			seen++
			if h.Schema == nil || len(h.GetPositiveSpan())+len(h.GetNegativeSpan()) == 0 && h.GetZeroCount() == 0 {
				t.Errorf("%s has no native buckets", family.GetName())
			}
			if len(h.GetBucket()) < 10 {
				t.Errorf("%s has %d classic buckets", family.GetName(), len(h.GetBucket()))
			}
		}
	}
	if seen != 10 {
		t.Errorf("%d histograms, want 10", seen)
	}
}
