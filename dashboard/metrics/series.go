package metrics

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/queue/inspect"
)

// series writes the series of one queue.
type series struct {
	out  chan<- prometheus.Metric
	name string
}

func (s series) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.labels(labels)...)
}

func (s series) counter(desc *prometheus.Desc, value int64, labels ...string) {
	s.out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), s.labels(labels)...)
}

// labels returns labels in valid UTF-8, as required by Prometheus; a foreign task may have other
// bytes.
func (s series) labels(labels []string) []string {
	all := append([]string{s.name}, labels...)
	for i, label := range all {
		if !utf8.ValidString(label) {
			all[i] = strconv.QuoteToASCII(label)
		}
	}
	return all
}

func (s series) queue(g inspect.Gauges) {
	s.gauge(backlogJobs, float64(g.Waiting))
	for _, of := range []struct {
		state string
		n     int64
	}{
		{"scheduled", g.Scheduled}, {"retry", g.Retry}, {"pending", g.Pending}, {"active", g.Active},
		{"archived", g.Archived}, {"completed", g.Completed},
	} {
		s.gauge(queueJobs, float64(of.n), of.state)
	}
	s.counter(jobsEnqueued, g.Enqueued)
	s.counter(directCalls, g.Direct)
	s.gauge(storedJobs, float64(g.Stored))
	s.gauge(storedBytes, float64(g.StoredBytes))
	s.gauge(tenantsWait, float64(g.Tenants))
	s.gauge(scriptFaults, float64(g.Faults))
	whole := false
	for _, pause := range g.Pauses {
		scope, until := "queue", math.Inf(1)
		if pause.Kind != "" {
			scope = "kind:" + pause.Kind
			if pause.Tried {
				scope = "account:" + pause.Kind
			}
		} else {
			whole = true
		}
		if !pause.Until.IsZero() {
			until = float64(pause.Until.UnixMilli()) / 1000
		}
		s.gauge(pausedUntil, until, scope)
	}
	if !whole {
		s.gauge(pausedUntil, 0, "queue")
	}
}

func (s series) limits(g inspect.Gauges) {
	for _, limit := range g.Limits {
		labels := []string{limit.Name, limit.Scope, limit.Unit}
		if limit.PerSecond > 0 {
			s.gauge(limitRate, limit.PerSecond, labels...)
		}
		if limit.Buckets > 0 {
			s.gauge(limitCapacity, limit.Capacity, labels...)
			s.gauge(limitUsed, limit.Used, labels...)
		}
		if limit.Scope == "queue" {
			s.gauge(limitAdapted, limit.Adapted, labels...)
		}
	}
}

func (s series) forecast(g inspect.Gauges, f forecast, known bool) {
	switch {
	case g.Waiting == 0:
		s.gauge(drainSeconds, 0)
	case known && f.drain >= 0:
		s.gauge(drainSeconds, f.drain.Seconds())
	}
	if known {
		s.gauge(allowedRate, f.allowed)
	}
	waiting := int64(0)
	for _, t := range f.tenants {
		s.gauge(tenantBacklog, float64(t.Waiting), t.Tenant)
		s.counter(tenantDone, t.Done, t.Tenant)
		s.gauge(tenantStored, float64(t.Stored), t.Tenant)
		s.gauge(tenantBytes, float64(t.StoredBytes), t.Tenant)
		if t.Waiting > 0 {
			waiting++
		}
	}
	// The tenants were read at another time than their number, so more of them may wait.
	s.gauge(tenantsSuppressed, float64(max(g.Tenants-waiting, 0)))
}

func (s series) asynq(g inspect.Gauges) {
	size := g.Waiting
	for _, of := range []struct {
		state string
		n     int64
	}{
		{"active", g.Active}, {"pending", g.Pending}, {"scheduled", g.Scheduled}, {"retry", g.Retry},
		{"archived", g.Asynq.Archived}, {"completed", g.Completed},
	} {
		s.gauge(asynqTasks, float64(of.n), of.state)
		size += of.n
	}
	s.gauge(asynqSize, float64(size))
	s.gauge(asynqLatency, g.Asynq.Latency.Seconds())
	s.gauge(asynqMemory, float64(g.Asynq.Bytes))
	s.counter(asynqProcessed, g.Asynq.Processed)
	s.counter(asynqFailed, g.Asynq.Failed)
	s.gauge(asynqPaused, truth(g.Asynq.Paused))
}
