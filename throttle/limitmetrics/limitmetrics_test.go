package limitmetrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/throttle"
)

// TestObserve: every answer counts for the limits that it is about, and only for these.
func TestObserve(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := New(registry)
	both := []string{"user", "all"}
	m.Observe(throttle.Observation{Limits: both, Decision: throttle.Decision{Allowed: true, Limit: "user", Quota: 10, Remaining: 5}, Took: time.Millisecond})
	m.Observe(throttle.Observation{Limits: both, Decision: throttle.Decision{Allowed: true, Limit: "all", Quota: 4, Remaining: 0}, Took: time.Millisecond, Waited: 2 * time.Second})
	m.Observe(throttle.Observation{Limits: both, Decision: throttle.Decision{Limit: "user", Quota: 10}, Took: time.Millisecond})
	m.Observe(throttle.Observation{Limits: both, Decision: throttle.Decision{Limit: "user", Quota: 10, Local: true}, Took: time.Microsecond})
	m.Observe(throttle.Observation{Limits: both, Err: errors.New("no answer"), Took: time.Second})
	New(registry).Observe(throttle.Observation{Limits: both[:1], Err: errors.New("no answer"), Unlimited: true})

	const want = `
# HELP headgate_limiter_decisions_total Calls, by outcome: allowed, refused by this limit, unknown because Redis did not answer, or unlimited, which went without an answer.
# TYPE headgate_limiter_decisions_total counter
headgate_limiter_decisions_total{decision="allowed",limit="all"} 2
headgate_limiter_decisions_total{decision="allowed",limit="user"} 2
headgate_limiter_decisions_total{decision="refused",limit="all"} 0
headgate_limiter_decisions_total{decision="refused",limit="user"} 2
headgate_limiter_decisions_total{decision="unknown",limit="all"} 1
headgate_limiter_decisions_total{decision="unknown",limit="user"} 1
headgate_limiter_decisions_total{decision="unlimited",limit="all"} 0
headgate_limiter_decisions_total{decision="unlimited",limit="user"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_limiter_decisions_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil {
				name := family.GetName() + " " + metric.GetLabel()[0].GetValue()
				got[name+" count"], got[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	for name, want := range map[string]float64{
		"headgate_limiter_remaining_ratio user count": 3, "headgate_limiter_remaining_ratio user sum": 0.5,
		"headgate_limiter_remaining_ratio all count": 1, "headgate_limiter_remaining_ratio all sum": 0,
		"headgate_limiter_wait_seconds all count": 1, "headgate_limiter_wait_seconds all sum": 2,
		"headgate_limiter_answer_seconds user count": 2, "headgate_limiter_answer_seconds all count": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v; want %v", name, got[name], want)
		}
	}
	if n := got["headgate_limiter_wait_seconds user count"]; n != 0 {
		t.Errorf("%v calls waited for a limit that held none back", n)
	}
}
