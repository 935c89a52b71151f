package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/payloads"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/version"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

// HTTP is what the servers of our programs have in common.
type HTTP struct {
	HTTPAddr    string `env:"HTTP_ADDR" envDefault:"127.0.0.1:9090" flag:"http" help:"address of the page and the API, and of /metrics, /livez and /readyz if there is no admin address"`
	AdminAddr   string `env:"ADMIN_ADDR" flag:"admin" help:"address of /metrics, /livez, /readyz and /debug/pprof. Empty: they are served at the HTTP address, without pprof"`
	AdminPprof  bool   `env:"ADMIN_PPROF" flag:"admin-pprof" help:"serve /debug/pprof even if the admin address is not loopback"`
	APIKeysFile string `env:"API_KEYS_FILE" flag:"keys" help:"file of API keys; reloaded when it changes. Empty: no key is needed, and only this machine has access"`
	TLSCert     string `env:"TLS_CERT" flag:"tls-cert" help:"certificate file of the page and the API; reloaded when it changes. Empty: no TLS"`
	TLSKey      string `env:"TLS_KEY" flag:"tls-key" help:"key file of the certificate"`
	AuditFile   string `env:"AUDIT_FILE" flag:"audit-file" help:"file to which changes by operators are appended as JSON lines, or stdout. They are logged and in Redis as well"`
	ReadOnly    bool   `env:"READ_ONLY" flag:"read-only" help:"reject enqueueing and changes over HTTP"`

	Enqueue

	Redact         []string       `env:"REDACT" flag:"redact" help:"additional payload fields whose values are hidden"`
	RatePerKey     throttle.Rate  `env:"API_RATE_PER_KEY" envDefault:"10000/s" flag:"api-rate-per-key" help:"API requests of a key without a rate of its own"`
	RatePerIP      throttle.Rate  `env:"API_RATE_PER_IP" envDefault:"10000/s" flag:"api-rate-per-ip" help:"API requests from an IP address"`
	RatePerRoute   throttle.Rate  `env:"API_RATE_PER_ROUTE" envDefault:"20000/s" flag:"api-rate-per-route" help:"API requests to one method and path"`
	TrustedProxies []netip.Prefix `env:"TRUSTED_PROXIES" flag:"trusted-proxies" help:"networks of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8"`
}

// Check says what is wrong, under the names of the settings.
func (h HTTP) Check(wrong func(name, format string, args ...any)) {
	h.Enqueue.Check(wrong)
	if _, _, err := net.SplitHostPort(h.HTTPAddr); err != nil {
		wrong("HTTP_ADDR", "%q is not host:port", h.HTTPAddr)
	}
	if _, _, err := net.SplitHostPort(h.AdminAddr); h.AdminAddr != "" && err != nil {
		wrong("ADMIN_ADDR", "%q is not host:port", h.AdminAddr)
	}
	if h.AdminPprof && h.AdminAddr == "" {
		wrong("ADMIN_PPROF", "it needs "+Prefix+"ADMIN_ADDR")
	}
	if h.TLSCert != "" && h.TLSKey == "" {
		wrong("TLS_CERT", "it needs "+Prefix+"TLS_KEY")
	}
	if h.TLSKey != "" && h.TLSCert == "" {
		wrong("TLS_KEY", "it needs "+Prefix+"TLS_CERT")
	}
}

// Server is the configuration of a server on a Redis, whose client stays the caller's to
// close. It serves the metrics of registry, to which those of its own limits are added;
// nil: it serves none.
func (h HTTP) Server(client redis.UniversalClient, logger *slog.Logger, registry *prometheus.Registry, ready func() error) server.Config {
	config := server.Config{
		Addr: h.HTTPAddr, AdminAddr: h.AdminAddr, Pprof: h.AdminPprof, CertFile: h.TLSCert, KeyFile: h.TLSKey, KeysFile: h.APIKeysFile, AuditFile: h.AuditFile,
		Ready: ready, Logger: logger,
		API: api.Config{
			Redis: client, FullAt: h.FullAt(), ReadOnly: h.ReadOnly, Redact: h.Redact, Version: version.Program(),
			Requests:     api.RequestLimits{PerKey: h.RatePerKey, PerIP: h.RatePerIP, PerRoute: h.RatePerRoute, Trusted: h.TrustedProxies},
			CheckPayload: payloads.Check, PayloadCosts: payloads.Costs, PrivateHost: payloads.PrivateHost, SenderDomain: payloads.SenderDomain,
		},
	}
	if registry != nil {
		config.Metrics, config.API.Observe = metrics.Handler(registry), limitmetrics.New(registry).Observe
	}
	return config
}

// HealthURL is where a server on this machine says whether it is ready.
func (h HTTP) HealthURL() (string, error) {
	scheme, addr := "http", h.HTTPAddr
	switch {
	case h.AdminAddr != "":
		addr = h.AdminAddr
	case h.TLSCert != "":
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", errors.New("port 0 is a free one, and nobody knows which")
	}
	// A server that listens everywhere is asked where it is for certain.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return fmt.Sprintf("%s://%s/readyz", scheme, net.JoinHostPort(host, port)), nil
}
