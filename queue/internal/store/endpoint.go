package store

import (
	"encoding/json"
	"net"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
)

const (
	// webhookKind is the kind of jobs that call a URL of their own. What one receiver
	// answers concerns only its own jobs, so each receiver has lanes of its own.
	webhookKind = "webhook"

	// EndpointAttribute is the attribute of webhook jobs that holds the host:port of
	// their URL.
	EndpointAttribute = "endpoint"

	maxEndpoint = 260 // a DNS name with a port
)

// endpointOf returns where a job calls, the same for all spellings of a URL: in lower
// case, with the port. It returns "" for other kinds, and if the URL is not valid.
func endpointOf(kind string, payload []byte) string {
	if kind != webhookKind {
		return ""
	}
	var request struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(payload, &request) != nil {
		return ""
	}
	u, err := url.Parse(request.URL)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	endpoint := net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
	if check.Text(endpoint, maxEndpoint) != "" {
		return ""
	}
	return endpoint
}

// WithEndpoint adds a job's endpoint to its attributes, as [EncodeAttributes] writes them.
func WithEndpoint(attributes, kind string, payload []byte) string {
	endpoint := endpointOf(kind, payload)
	if endpoint == "" {
		return attributes
	}
	own := EndpointAttribute + "=" + rediskey.Escape(endpoint)
	if attributes == "" {
		return own
	}
	return own + ";" + attributes
}

// EndpointIn returns the escaped endpoint in encoded attributes; "" if there is none.
func EndpointIn(attributes string) string {
	for part := range strings.SplitSeq(attributes, ";") {
		if endpoint, ok := strings.CutPrefix(part, EndpointAttribute+"="); ok {
			return endpoint
		}
	}
	return ""
}
