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

// ClientIP finds the address that a request came from. The zero value is the
// address of the connection, and right for a server without proxies in front.
type ClientIP struct {
	// Trusted are the addresses of your own proxies and load balancers. Only
	// what they say about others is believed; the header of anybody else is not
	// even read. None: no header is.
	Trusted []netip.Prefix

	// Header is where the proxies note whom they got a request from; "" means
	// X-Forwarded-For. "Forwarded" is read as RFC 7239 has it, any other as a
	// list of addresses, as X-Forwarded-For is. Your proxies must append to it or
	// replace it. There is one, because one that they do not touch is the client's.
	Header string

	// IPv6Bits is how much of an IPv6 address tells clients apart; 0 means 64,
	// which is what one customer is given at least. Less groups more together:
	// 56, 48.
	IPv6Bits int
}

// ByIP limits by the client's address, IPv6 by network: see [ClientIP]. It
// panics if IPv6Bits is not within 0 to 128.
func ByIP(c ClientIP) KeyFunc {
	if c.IPv6Bits < 0 || c.IPv6Bits > 128 {
		panic(fmt.Sprintf("httplimit: ClientIP.IPv6Bits: %d is not within 0 to 128", c.IPv6Bits))
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

// Addr is the client's address: the connection's own, unless that is a trusted
// proxy; then the last one in the header that is none. Where a proxy noted no
// address but something else ("unknown"), it is the proxy's: what stands before
// may be anybody's invention. IPv4 in IPv6 is IPv4, and zones are left out.
//
// The error says that the connection has no IP address, as on a Unix socket.
func (c ClientIP) Addr(r *http.Request) (netip.Addr, error) {
	client, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the connection's address %q is no IP address", r.RemoteAddr)
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

// lastForwarded cuts the last element off a Forwarded header and returns its
// "for"; "" if it has none that is certain. It reads from the end, where our own
// proxies write: a quote that a client never closed cannot swallow what they add.
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

// escaped reports whether what follows text is escaped by a backslash.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}
