// Package limitmetrics counts what limiters decide, for Prometheus:
//
//	counts := limitmetrics.New(prometheus.DefaultRegisterer)
//	limiter = limiter.WithObserver(counts.Observe)
//
// One Metrics serves any number of limiters. Those of package httplimit have an Observe in
// their configurations, and a queue.Client has one for the calls without a job. The only
// label is the name of the limit, never a key, so there are as many series as limits.
//
//	headgate_limiter_decisions_total{limit, decision}
//	    Calls, by outcome: allowed; refused by this limit; unknown, because Redis
//	    did not answer; or unlimited, which went without an answer. A call that is allowed
//	    counts for all limits that were asked.
//	headgate_limiter_wait_seconds{limit}
//	    For how long calls waited for their slots, without those that did not wait.
//	headgate_limiter_remaining_ratio{limit}
//	    What part of the limit its bucket had left after each answer, without those of blocks,
//	    which do not know it.
//	headgate_limiter_answer_seconds{limit}
//	    How long answers of Redis took.
package limitmetrics

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/throttle"
)

// Metrics has the metrics of all limiters that it observes.
type Metrics struct {
	decisions          *prometheus.CounterVec
	wait, left, answer *prometheus.HistogramVec

	begun sync.Map // names of limits whose counters exist
}

// The decisions.
const (
	allowed   = "allowed"
	refused   = "refused"
	unknown   = "unknown"
	unlimited = "unlimited"
)

// New returns Metrics that are registered with registerer. If it was called with the same one
// before, both count the same metrics, as those of a worker program and of its own limiters.
// It panics if a metric of another kind has one of their names.
func New(registerer prometheus.Registerer) *Metrics {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "headgate", Subsystem: "limiter", Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"limit"})
	}
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "headgate", Subsystem: "limiter", Name: "decisions_total",
			Help: "Calls, by outcome: allowed, refused by this limit, unknown because Redis did not answer, or unlimited, which went without an answer.",
		}, []string{"limit", "decision"}),
		wait:   histogram("wait_seconds", "Time for which calls waited for their slots, without those that did not wait.", []float64{.001, .005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 3600}),
		left:   histogram("remaining_ratio", "Part of the limit that its bucket had left after an answer.", []float64{0, .01, .05, .1, .2, .3, .5, .7, .8, .9, 1}),
		answer: histogram("answer_seconds", "Time that an answer of Redis took.", []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}),
	}
	m.decisions = register(registerer, m.decisions)
	m.wait, m.left, m.answer = register(registerer, m.wait), register(registerer, m.left), register(registerer, m.answer)
	return m
}

// register returns the collector that is registered.
func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) C {
	err := registerer.Register(collector)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return known.ExistingCollector.(C)
	}
	if err != nil {
		panic(err)
	}
	return collector
}

// Observe counts an observation. It is for [throttle.Limiter.WithObserver], and safe for
// concurrent use.
func (m *Metrics) Observe(seen throttle.Observation) {
	for _, limit := range seen.Limits {
		m.begin(limit)
		switch {
		case seen.Unlimited:
			m.decisions.WithLabelValues(limit, unlimited).Inc()
		case seen.Err != nil:
			m.decisions.WithLabelValues(limit, unknown).Inc()
		case seen.Decision.Allowed:
			m.decisions.WithLabelValues(limit, allowed).Inc()
		}
	}
	d := seen.Decision
	if seen.Err != nil {
		return
	}
	if !d.Allowed {
		m.decisions.WithLabelValues(d.Limit, refused).Inc()
	}
	if d.Quota > 0 {
		m.left.WithLabelValues(d.Limit).Observe(float64(d.Remaining) / float64(d.Quota))
	}
	if seen.Waited > 0 {
		m.wait.WithLabelValues(d.Limit).Observe(seen.Waited.Seconds())
	}
	if !d.Local {
		m.answer.WithLabelValues(d.Limit).Observe(seen.Took.Seconds())
	}
}

// begin creates the counters of a limit with the value 0, because Prometheus can compute a rate
// only from a counter that it has scraped before.
func (m *Metrics) begin(limit string) {
	if _, begun := m.begun.Load(limit); begun {
		return
	}
	for _, decision := range []string{allowed, refused, unknown, unlimited} {
		m.decisions.WithLabelValues(limit, decision)
	}
	m.begun.Store(limit, true)
}
