// Package dashboard shows operators what is going on: metrics now, and later
// the pages that are built on them.
package dashboard

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/queue"
)

// Metrics counts what workers do. It is a [queue.Observer]; labels are queue,
// kind and outcome, never a tenant or a job, so that series stay few.
type Metrics struct {
	registry *prometheus.Registry

	finished *prometheus.CounterVec
	gated    *prometheus.CounterVec
	missed   *prometheus.CounterVec
	parked   *prometheus.CounterVec
	released *prometheus.CounterVec
	backlog  *prometheus.GaugeVec
	dispatch *prometheus.HistogramVec
	enqueued *enqueued
	breakers *breakers
}

// NewMetrics makes the metrics of a process, on the given registry.
func NewMetrics(registry *prometheus.Registry) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headgate", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: registry,
		finished: counter("jobs_finished_total", "Runs of jobs in this worker, by what came of them.", "queue", "kind", "outcome"),
		gated:    counter("gate_decisions_total", "Decisions of the gate: sent at its slot, missed the slot, or parked.", "queue", "decision"),
		missed:   counter("slots_missed_total", "Slots that a job reached too late; the job got another.", "queue"),
		parked:   counter("jobs_parked_total", "Jobs that went back to their lane without a call.", "queue"),
		released: counter("jobs_released_total", "Jobs that this worker's dispatch released from their lanes.", "queue"),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "headgate", Name: "backlog_jobs", Help: "Jobs that wait in lanes.",
		}, []string{"queue"}),
		dispatch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "headgate", Name: "dispatch_duration_seconds", Help: "Round trip of one round of dispatch.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .5},
		}, []string{"queue"}),
		enqueued: &enqueued{
			desc: prometheus.NewDesc("headgate_jobs_enqueued_total", "Jobs accepted by the queue from all clients, as Redis counts them.", []string{"queue"}, nil),
			last: map[string]int64{},
		},
		breakers: newBreakers(),
	}
	registry.MustRegister(m.finished, m.gated, m.missed, m.parked, m.released, m.backlog, m.dispatch, m.enqueued, m.breakers)
	return m
}

// Handler serves the metrics in Prometheus's formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Finished counts a run of a job.
func (m *Metrics) Finished(name, kind string, outcome queue.Outcome) {
	m.finished.WithLabelValues(name, kind, string(outcome)).Inc()
	if outcome == queue.Parked {
		m.parked.WithLabelValues(name).Inc()
	}
}

// Gated counts a decision of the gate.
func (m *Metrics) Gated(name, decision string) {
	m.gated.WithLabelValues(name, decision).Inc()
	if decision == "missed" {
		m.missed.WithLabelValues(name).Inc()
	}
}

// Dispatched counts a round of dispatch.
func (m *Metrics) Dispatched(name string, round queue.Round) {
	m.dispatch.WithLabelValues(name).Observe(round.Took.Seconds())
	m.released.WithLabelValues(name).Add(float64(round.Released))
	m.backlog.WithLabelValues(name).Set(float64(round.Waiting))
	m.enqueued.set(name, round.Enqueued)
}

// enqueued shows a count that lives in Redis, where all clients add to it.
type enqueued struct {
	desc *prometheus.Desc

	mu   sync.Mutex
	last map[string]int64
}

func (e *enqueued) set(name string, n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last[name] = n
}

// Describe is part of prometheus.Collector.
func (e *enqueued) Describe(out chan<- *prometheus.Desc) { out <- e.desc }

// Collect is part of prometheus.Collector.
func (e *enqueued) Collect(out chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, n := range e.last {
		out <- prometheus.MustNewConstMetric(e.desc, prometheus.CounterValue, float64(n), name)
	}
}
