package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Breakers exports how often a provider or receiver of a kind was held back after repeated
// failures, read at each scrape. The only label is the kind, because the hosts of webhooks are
// chosen by strangers and unlimited in number.
func (m *Metrics) Breakers(kind string, opened func() uint64) {
	m.breakers.mu.Lock()
	defer m.breakers.mu.Unlock()
	m.breakers.opened[kind] = opened
}

type breakers struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	opened map[string]func() uint64
}

func newBreakers() *breakers {
	return &breakers{
		desc: prometheus.NewDesc("headgate_breaker_opened_total",
			"Times that calls of this worker failed so often that their provider or receiver was held back.", []string{"kind"}, nil),
		opened: map[string]func() uint64{},
	}
}

// Describe implements prometheus.Collector.
func (b *breakers) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

// Collect implements prometheus.Collector.
func (b *breakers) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	opened := maps.Clone(b.opened)
	b.mu.Unlock()
	for kind, read := range opened {
		out <- prometheus.MustNewConstMetric(b.desc, prometheus.CounterValue, float64(read()), kind)
	}
}
