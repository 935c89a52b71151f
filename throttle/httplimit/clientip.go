package httplimit

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP finds the address that a request came from. The zero value uses the address of
// the connection, which is right for a server without proxies in front of it.
type ClientIP struct {
	// Trusted are the addresses of your own proxies and load balancers. Only headers
	// that they sent are read. If it is empty, no header is read.
	Trusted []netip.Prefix

	// Header is the header in which proxies record the address that they got a request
	// from; "" means X-Forwarded-For. "Forwarded" is read as RFC 7239 defines it, and any
	// other header as a list of addresses like X-Forwarded-For. Your proxies must append
	// to the header or replace it: clients control a header that proxies do not touch.
	Header string

	// IPv6Bits is how many bits of an IPv6 address identify a client; 0 means 64, which
	// is the smallest network that a customer usually gets. Fewer bits, such as 56 or 48,
	// group more addresses together.
	IPv6Bits int
}

// ByIP limits by the client's address, and for IPv6 by its network: see [ClientIP]. It
// panics if IPv6Bits is not within 0 to 128.
func ByIP(c ClientIP) KeyFunc {
	if c.IPv6Bits < 0 || c.IPv6Bits > 128 {
		panic(fmt.Sprintf("httplimit: ClientIP.IPv6Bits: %d must be 0 to 128", c.IPv6Bits))
	}
	return func(r *http.Request) (string, error) {
		addr, err := c.Addr(r)
		if err != nil {
			return "", err
		}
		if addr.Is4() {
			return addr.String(), nil
		}
		network, err := addr.Prefix(cmp.Or(c.IPv6Bits, 64))
		if err != nil {
			return "", fmt.Errorf("network of %v: %w", addr, err)
		}
		return network.String(), nil
	}
}

// Addr returns the client's address: that of the connection or, if that is a trusted
// proxy, the last address in the header that is not one. If a proxy recorded something
// that is not an address, such as "unknown", Addr returns the proxy's address, because
// clients can invent what comes before. IPv4 in IPv6 is returned as IPv4, and zones are
// removed.
//
// Addr returns an error if the connection has no IP address, as on a Unix socket.
func (c ClientIP) Addr(r *http.Request) (netip.Addr, error) {
	client, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the connection's address %q is not an IP address", r.RemoteAddr)
	}
	if !c.trusts(client) {
		return client, nil
	}
	header := http.CanonicalHeaderKey(cmp.Or(c.Header, "X-Forwarded-For"))
	for _, line := range slices.Backward(r.Header[header]) {
		for more := true; more; {
			var hop string
			if header == "Forwarded" {
				line, hop, more = lastForwarded(line)
			} else {
				line, hop, more = lastComma(line)
			}
			next, ok := parseAddr(hop)
			if !ok {
				return client, nil
			}
			if client = next; !c.trusts(client) {
				return client, nil
			}
		}
	}
	return client, nil
}

func (c ClientIP) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// parseAddr reads an address with or without a port, IPv6 with or without
// brackets.
func parseAddr(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		host, port, err := net.SplitHostPort(text)
		switch {
		case err == nil && strings.Trim(port, "0123456789") != "":
			return netip.Addr{}, false
		case err == nil:
			text = host
		case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
			text = text[1 : len(text)-1]
		}
		if addr, err = netip.ParseAddr(text); err != nil {
			return netip.Addr{}, false
		}
	}
	return addr.Unmap().WithZone(""), true
}

// lastComma cuts the last element off a list.
func lastComma(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.Trim(list[i+1:], " \t"), i >= 0
}

// lastForwarded cuts the last element off a Forwarded header and returns its "for", or ""
// if it does not have exactly one. It reads from the end, where our own proxies write, so
// that a quote that a client never closed cannot hide what they add.
func lastForwarded(list string) (rest, client string, more bool) {
	quoted, end := false, len(list)
	var pairs []string
	i := end - 1
	for ; i >= 0; i-- {
		if list[i] == '"' && !escaped(list[:i]) {
			quoted = !quoted
		}
		if quoted {
			continue
		}
		if list[i] == ';' {
			pairs, end = append(pairs, list[i+1:end]), i
		} else if list[i] == ',' {
			break
		}
	}
	pairs = append(pairs, list[i+1:end])
	found := 0
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "for") {
			continue
		}
		found++
		client = strings.Trim(value, " \t")
		if inner, ok := strings.CutPrefix(client, `"`); ok {
			client, _ = strings.CutSuffix(inner, `"`)
		}
	}
	if found != 1 {
		client = ""
	}
	return list[:max(i, 0)], client, i >= 0
}

// escaped reports whether a backslash at the end of text escapes what follows.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}
