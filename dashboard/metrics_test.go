package dashboard

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/queue"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	var observer queue.Observer = m
	observer.Finished("email", "email", queue.Done)
	observer.Finished("email", "email", queue.Parked)
	observer.Gated("email", "sent")
	observer.Gated("email", "missed")
	observer.Dispatched("email", queue.Round{Took: time.Millisecond, Released: 3, Waiting: 40, Enqueued: 50})

	m.Breakers("ai", func() BreakerStats { return BreakerStats{Down: 1, Opened: 2, Refused: 30} })

	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`headgate_jobs_enqueued_total{queue="email"} 50`,
		`headgate_jobs_finished_total{kind="email",outcome="done",queue="email"} 1`,
		`headgate_gate_decisions_total{decision="sent",queue="email"} 1`,
		`headgate_slots_missed_total{queue="email"} 1`,
		`headgate_jobs_parked_total{queue="email"} 1`,
		`headgate_jobs_released_total{queue="email"} 3`,
		`headgate_breaker_down{kind="ai"} 1`,
		`headgate_breaker_opened_total{kind="ai"} 2`,
		`headgate_breaker_refused_total{kind="ai"} 30`,
		`headgate_backlog_jobs{queue="email"} 40`,
		`headgate_dispatch_duration_seconds_count{queue="email"} 1`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}
