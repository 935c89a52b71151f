package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/internal/version"
)

// NewRegistry returns a registry with the metrics that every program of Headgate has: those of Go
// and of the process, and which build it is.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	return registry
}

func buildInfo() prometheus.Collector {
	commit, _ := version.Revision()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "headgate", Name: "build_info", Help: "Always 1; its labels say which build the program is.",
		ConstLabels: prometheus.Labels{"version": version.Program(), "revision": commit, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// Handler returns a handler that serves metrics in Prometheus's formats.
func Handler(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}
