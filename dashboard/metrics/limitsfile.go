package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// LimitsFile exports whether the current limits file is in force. failed returns why it is not,
// or nil. Without a limits file there is no such series.
func (m *Metrics) LimitsFile(failed func() error) {
	m.limitsFile.mu.Lock()
	defer m.limitsFile.mu.Unlock()
	m.limitsFile.failed = failed
}

type limitsFile struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	failed func() error
}

func newLimitsFile() *limitsFile {
	return &limitsFile{desc: prometheus.NewDesc("headgate_limits_file_failed", "1 when the limits file as it stands was not put in force, and the limits of before hold; else 0.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (l *limitsFile) Describe(out chan<- *prometheus.Desc) { out <- l.desc }

// Collect implements prometheus.Collector.
func (l *limitsFile) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if failed != nil {
		out <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, truth(failed() != nil))
	}
}
