package store

import (
	"encoding/json"
	"maps"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/limits"
)

// The attributes that are derived from the payloads of Headgate's own kinds, so that limits
// can be per receiver and no job can pretend to go elsewhere; and [limits.EndpointAttribute], by
// which each receiver of webhooks has lanes of its own.
const (
	// hostAttribute is the host of a webhook's URL, without the port.
	hostAttribute = "host"

	// domainAttribute is the domain of an email's first recipient.
	domainAttribute = "domain"

	maxEndpoint = 260 // a DNS name with a port
)

// DerivedNames returns the names of the attributes that jobs of a kind cannot choose.
func DerivedNames(kind string) []string {
	switch kind {
	case "webhook":
		return []string{limits.EndpointAttribute, hostAttribute}
	case "email":
		return []string{domainAttribute}
	}
	return nil
}

// Derived returns the attributes that are derived from the payload of a job. A payload that is
// not valid has none: its job ends without a call.
func Derived(kind string, payload []byte) map[string]string {
	derived := map[string]string{}
	add := func(name, value string) {
		if value != "" && check.Text(value, maxEndpoint) == "" {
			derived[name] = value
		}
	}
	switch kind {
	case "webhook":
		var request struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(payload, &request) != nil {
			return nil
		}
		u, err := url.Parse(request.URL)
		if err != nil || u.Hostname() == "" {
			return nil
		}
		port := strings.TrimLeft(u.Port(), "0")
		if port == "" {
			port = "80"
			if u.Scheme == "https" {
				port = "443"
			}
		}
		host := hostName(u.Hostname())
		add(limits.EndpointAttribute, net.JoinHostPort(host, port))
		add(hostAttribute, host)
	case "email":
		var message struct {
			To, CC, BCC json.RawMessage
		}
		if json.Unmarshal(payload, &message) != nil {
			return nil
		}
		for _, list := range []json.RawMessage{message.To, message.CC, message.BCC} {
			if address := firstAddress(list); address != "" {
				add(domainAttribute, hostName(address[strings.LastIndexByte(address, '@')+1:]))
				break
			}
		}
	}
	return derived
}

// hostName returns a name or an address in the one spelling of all: in lower case, without a
// dot at its end, in ASCII, and IP addresses as package netip writes them.
func hostName(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		return strings.TrimSuffix(ascii, ".")
	}
	return host
}

// firstAddress returns the first address of a field of a mail, which is a text or a list of
// texts; "" if there is none.
func firstAddress(field json.RawMessage) string {
	var list []string
	if json.Unmarshal(field, &list) != nil {
		var one string
		if json.Unmarshal(field, &one) != nil {
			return ""
		}
		list = []string{one}
	}
	if len(list) == 0 {
		return ""
	}
	address, err := mail.ParseAddress(list[0])
	if err != nil {
		return ""
	}
	return address.Address
}

// WithDerived adds derived attributes to encoded ones, see [EncodeAttributes], that do not have
// them.
func WithDerived(attributes string, derived map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(derived)) {
		if !strings.Contains(";"+attributes, ";"+name+"=") {
			parts = append(parts, name+"="+rediskey.Escape(derived[name]))
		}
	}
	if attributes != "" {
		parts = append(parts, attributes)
	}
	return strings.Join(parts, ";")
}

// EndpointIn returns the escaped endpoint in encoded attributes; "" if there is none.
func EndpointIn(attributes string) string {
	for part := range strings.SplitSeq(attributes, ";") {
		if endpoint, ok := strings.CutPrefix(part, limits.EndpointAttribute+"="); ok {
			return endpoint
		}
	}
	return ""
}
