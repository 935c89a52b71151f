// Package metrics exports metrics of workers and queues to Prometheus.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Metrics has the metrics of a worker. It is a [queue.Observer]. Labels are names from limits
// files and from the code (queue, kind, limit, outcome). To keep the number of series small, jobs
// are never labels, and tenants only if [Metrics.Queues] says so. docs/metrics.md lists all
// metrics.
type Metrics struct {
	registry *prometheus.Registry

	// The jobs of this worker.
	finished, attempts, answers, gated, missed, parked *prometheus.CounterVec
	hold, wait, runnable, gate, call                   *prometheus.HistogramVec

	// The dispatch of this worker.
	released, starved *prometheus.CounterVec
	dispatch          *prometheus.HistogramVec
	held, calls       prometheus.Gauge
	concurrency       prometheus.Gauge

	// Round trips of this worker to Redis.
	trips, tripErrors *prometheus.CounterVec
	trip              prometheus.Histogram

	begun sync.Map // queues and kinds whose counters exist
}

// Buckets, in seconds. Jobs are held only for the fraction of a second by which slots are granted in
// advance, but can wait for days.
var (
	shortBuckets    = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	runnableBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	callBuckets     = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
	waitBuckets     = []float64{.05, .1, .25, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
)

// histogram returns options with classic buckets, and with native ones for a Prometheus that
// requests them. The number of native buckets is limited, so that extreme values do not fill the
// memory.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: "headgate", Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// New registers the metrics of a worker.
func New(registry *prometheus.Registry) *Metrics {
	var all []prometheus.Collector
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headgate", Name: name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	times := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(histogram(name, help, buckets), labels)
		all = append(all, h)
		return h
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "headgate", Name: name, Help: help})
		all = append(all, g)
		return g
	}
	m := &Metrics{
		registry: registry,

		finished: counter("jobs_finished_total", "Runs of jobs in this worker, by outcome.", "queue", "kind", "outcome"),
		attempts: counter("attempts_total", "Calls that this worker made; one that a breaker refused is none.", "queue", "kind"),
		answers:  counter("provider_answers_total", "Providers' answers to this worker's calls, by what they meant.", "queue", "kind", "answer"),
		gated:    counter("gate_decisions_total", "Decisions of the gate: sent at its slot, missed the slot, or parked.", "queue", "decision"),
		missed:   counter("slots_missed_total", "Slots that a job reached too late; the job got another.", "queue"),
		parked:   counter("jobs_parked_total", "Jobs that went from this worker back to their lane without a call, by why, and by the limit whose next slot was far.", "queue", "reason", "limit"),

		hold:     times("hold_seconds", "Time for which a worker held a call until its slot.", shortBuckets, "queue"),
		wait:     times("wait_seconds", "Time from when a job was accepted, or came due, to its call, of first attempts.", waitBuckets, "queue"),
		runnable: times("runnable_latency_seconds", "Time from when a job could have gone (it had its slot, or lacked only a worker with room) to its call. Scale workers by it.", runnableBuckets, "queue"),
		gate:     times("gate_duration_seconds", "Time that a decision of the gate took in Redis.", shortBuckets, "queue"),
		call:     times("call_duration_seconds", "Time that a call took.", callBuckets, "queue", "kind"),

		released: counter("jobs_released_total", "Jobs that this worker's dispatch released from their lanes.", "queue"),
		starved:  counter("dispatch_starved_seconds_total", "Time during which jobs could go and found no room in this worker.", "queue"),
		dispatch: times("dispatch_duration_seconds", "Round trip of one round of dispatch.", shortBuckets, "queue"),

		held:        gauge("worker_jobs", "Jobs in this worker's hands: held for their slot, or being sent."),
		calls:       gauge("worker_calls", "Calls that this worker has under way."),
		concurrency: gauge("worker_concurrency", "Jobs that this worker can hold at once."),

		trips:      counter("redis_round_trips_total", "Round trips of this worker to Redis, by command, by script, or as one pipeline.", "command"),
		tripErrors: counter("redis_errors_total", "Round trips that brought no answer, or one that refused them.", "command"),
		trip:       prometheus.NewHistogram(histogram("redis_round_trip_seconds", "Time that a round trip to Redis took.", shortBuckets)),
	}
	registry.MustRegister(append(all, m.trip)...)
	return m
}

// Breakers exports how often a provider or receiver of a kind was held back after repeated
// failures, read at each scrape; the first one for a kind counts. The only label is the kind, because
// the hosts of webhooks are chosen by strangers and unlimited in number.
func (m *Metrics) Breakers(kind string, opened func() uint64) {
	_ = m.registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "headgate", Name: "breaker_opened_total",
		Help:        "Times that calls of this worker failed so often that their provider or receiver was held back.",
		ConstLabels: prometheus.Labels{"kind": kind},
	}, func() float64 { return float64(opened()) }))
}

// LimitsFile exports whether the current limits file is in effect. failed returns why it is not,
// or nil. Without a limits file there is no such series.
func (m *Metrics) LimitsFile(failed func() error) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "headgate", Name: "limits_file_failed",
		Help: "1 when the limits file as it stands was not put in effect, and the earlier limits still apply; else 0.",
	}, func() float64 { return truth(failed() != nil) }))
}

// begin creates the counters of a queue with the value 0, because Prometheus can compute a rate
// only from a counter that it has scraped before. Those of a kind are created with its first run.
func (m *Metrics) begin(name string) {
	for _, decision := range []string{"sent", "missed", "parked"} {
		m.gated.WithLabelValues(name, decision)
	}
	for _, reason := range queue.ParkReasons() {
		m.parked.WithLabelValues(name, string(reason), "")
	}
	m.missed.WithLabelValues(name)
	m.released.WithLabelValues(name)
	m.starved.WithLabelValues(name)
}

// beginKind does the same for a kind in a queue.
func (m *Metrics) beginKind(name, kind string) {
	if _, begun := m.begun.LoadOrStore([2]string{name, kind}, true); begun {
		return
	}
	m.attempts.WithLabelValues(name, kind)
	for _, answer := range lifecycle.Answers() {
		m.answers.WithLabelValues(name, kind, string(answer))
	}
	for _, outcome := range lifecycle.Outcomes() {
		m.finished.WithLabelValues(name, kind, string(outcome))
	}
}

// Finished counts a run of a job.
func (m *Metrics) Finished(name, kind string, outcome lifecycle.Outcome) {
	if kind == "" {
		kind = "unhandled"
	}
	m.beginKind(name, kind)
	m.finished.WithLabelValues(name, kind, string(outcome)).Inc()
}

// Gated counts a decision of the gate.
func (m *Metrics) Gated(name string, g queue.Gating) {
	m.gated.WithLabelValues(name, g.Decision).Inc()
	m.gate.WithLabelValues(name).Observe(g.Asked.Seconds())
	switch g.Decision {
	case "sent":
		m.hold.WithLabelValues(name).Observe(g.Held.Seconds())
		m.runnable.WithLabelValues(name).Observe(g.Runnable.Seconds())
		if g.Waited > 0 {
			m.wait.WithLabelValues(name).Observe(g.Waited.Seconds())
		}
	case "missed":
		m.missed.WithLabelValues(name).Inc()
	case "parked":
		m.parked.WithLabelValues(name, string(g.Reason), g.Limit).Inc()
	}
}

// Called counts a call.
func (m *Metrics) Called(name string, call queue.Called) {
	m.beginKind(name, call.Kind)
	m.attempts.WithLabelValues(name, call.Kind).Inc()
	m.call.WithLabelValues(name, call.Kind).Observe(call.Took.Seconds())
	m.answers.WithLabelValues(name, call.Kind, string(call.Answer)).Inc()
}

// Dispatched counts a round of dispatch.
func (m *Metrics) Dispatched(name string, round queue.Round) {
	m.dispatch.WithLabelValues(name).Observe(round.Took.Seconds())
	m.released.WithLabelValues(name).Add(float64(round.Released))
	m.starved.WithLabelValues(name).Add(round.Starved.Seconds())
	m.held.Set(float64(round.Held))
	m.calls.Set(float64(round.Sending))
	m.concurrency.Set(float64(round.Concurrency))
}

// RoundTrip counts a round trip to Redis.
func (m *Metrics) RoundTrip(trip queue.RoundTrip) {
	m.trips.WithLabelValues(trip.Command).Inc()
	m.trip.Observe(trip.Took.Seconds())
	errors := m.tripErrors.WithLabelValues(trip.Command) // at 0 until there is one
	if trip.Failed {
		errors.Inc()
	}
}
