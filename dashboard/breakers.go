package dashboard

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// BreakerStats is what the circuit breakers of one kind of call count.
type BreakerStats struct {
	Down    int    // providers or receivers that are not called now, or only to try them
	Opened  uint64 // times that one went down
	Refused uint64 // calls that were not made
}

// Breakers shows what read tells of a kind, at each scrape. The label is the kind
// alone: the hosts of webhooks are strangers' choice and without number.
func (m *Metrics) Breakers(kind string, read func() BreakerStats) {
	m.breakers.mu.Lock()
	defer m.breakers.mu.Unlock()
	m.breakers.read[kind] = read
}

type breakers struct {
	down, opened, refused *prometheus.Desc

	mu   sync.Mutex
	read map[string]func() BreakerStats
}

func newBreakers() *breakers {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_breaker_"+name, help, []string{"kind"}, nil)
	}
	return &breakers{
		down:    desc("down", "Providers or receivers that are down: not called, or one call at a time."),
		opened:  desc("opened_total", "Times that a provider or a receiver went down."),
		refused: desc("refused_total", "Calls that were not made because the provider or the receiver was down."),
		read:    map[string]func() BreakerStats{},
	}
}

// Describe is part of prometheus.Collector.
func (b *breakers) Describe(out chan<- *prometheus.Desc) {
	out <- b.down
	out <- b.opened
	out <- b.refused
}

// Collect is part of prometheus.Collector.
func (b *breakers) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	read := maps.Clone(b.read)
	b.mu.Unlock()
	for kind, read := range read {
		stats := read()
		out <- prometheus.MustNewConstMetric(b.down, prometheus.GaugeValue, float64(stats.Down), kind)
		out <- prometheus.MustNewConstMetric(b.opened, prometheus.CounterValue, float64(stats.Opened), kind)
		out <- prometheus.MustNewConstMetric(b.refused, prometheus.CounterValue, float64(stats.Refused), kind)
	}
}
