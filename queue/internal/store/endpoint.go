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
	// says concerns the jobs for it and no others, so each has lanes of its own.
	webhookKind = "webhook"

	// EndpointAttribute is the attribute of such jobs, made of their URL: host:port.
	EndpointAttribute = "endpoint"

	maxEndpoint = 260 // a name of DNS with a port
)

// endpointOf is where a job calls, the same for all spellings of one URL: in lower case,
// with the port. It is "" for other kinds, and for a URL that is none.
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

// EndpointIn reads the escaped endpoint of encoded attributes; "" where there is none.
func EndpointIn(attributes string) string {
	for part := range strings.SplitSeq(attributes, ";") {
		if endpoint, ok := strings.CutPrefix(part, EndpointAttribute+"="); ok {
			return endpoint
		}
	}
	return ""
}
