package httplimit

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestClientIP(t *testing.T) {
	private := prefixes("10.0.0.0/8", "fd00::/8")
	xff := func(lines ...string) http.Header { return http.Header{"X-Forwarded-For": lines} }
	forwarded := func(lines ...string) http.Header { return http.Header{"Forwarded": lines} }
	type test struct {
		ip     ClientIP
		remote string
		header http.Header
		want   string
	}
	trusting := ClientIP{Trusted: private}
	rfc7239 := ClientIP{Trusted: private, Header: "forwarded"}
	tests := map[string]test{
		"no proxies":                          {ClientIP{}, "192.0.2.1:1234", nil, "192.0.2.1"},
		"no proxies: header ignored":          {ClientIP{}, "192.0.2.1:1234", xff("198.51.100.7"), "192.0.2.1"},
		"stranger: header ignored":            {trusting, "192.0.2.1:1234", xff("198.51.100.7"), "192.0.2.1"},
		"stranger claims a proxy":             {trusting, "192.0.2.1:1234", xff("10.0.0.1"), "192.0.2.1"},
		"one proxy":                           {trusting, "10.0.0.1:1234", xff("198.51.100.7"), "198.51.100.7"},
		"one proxy, client lied before":       {trusting, "10.0.0.1:1234", xff("203.0.113.9, 198.51.100.7"), "198.51.100.7"},
		"client pretends to be a proxy's":     {trusting, "10.0.0.1:1234", xff("203.0.113.9, 10.0.0.9, 198.51.100.7"), "198.51.100.7"},
		"two proxies":                         {trusting, "10.0.0.1:1234", xff("198.51.100.7, 10.1.1.1"), "198.51.100.7"},
		"two header lines":                    {trusting, "10.0.0.1:1234", xff("203.0.113.9", "198.51.100.7"), "198.51.100.7"},
		"two header lines, proxy in the last": {trusting, "10.0.0.1:1234", xff("203.0.113.9, 198.51.100.7", "10.2.2.2"), "198.51.100.7"},
		"all trusted":                         {trusting, "10.0.0.1:1234", xff("10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		"no header":                           {trusting, "10.0.0.1:1234", nil, "10.0.0.1"},
		"empty header":                        {trusting, "10.0.0.1:1234", xff(""), "10.0.0.1"},
		"garbage":                             {trusting, "10.0.0.1:1234", xff("<script>"), "10.0.0.1"},
		"garbage after the client":            {trusting, "10.0.0.1:1234", xff("198.51.100.7, unknown"), "10.0.0.1"},
		"empty element after the client":      {trusting, "10.0.0.1:1234", xff("198.51.100.7,"), "10.0.0.1"},
		"garbage before the client":           {trusting, "10.0.0.1:1234", xff(",, x\x00, 198.51.100.7"), "198.51.100.7"},
		"garbage before a proxy":              {trusting, "10.0.0.1:1234", xff("x, 10.0.0.2"), "10.0.0.2"},
		"spaces":                              {trusting, "10.0.0.1:1234", xff(" \t198.51.100.7 \t"), "198.51.100.7"},
		"port":                                {trusting, "10.0.0.1:1234", xff("198.51.100.7:5555"), "198.51.100.7"},
		"port that is none":                   {trusting, "10.0.0.1:1234", xff("198.51.100.7:http"), "10.0.0.1"},
		"leading zeros are no address":        {trusting, "10.0.0.1:1234", xff("198.051.100.7"), "10.0.0.1"},
		"IPv6":                                {trusting, "10.0.0.1:1234", xff("2001:db8::7"), "2001:db8::7"},
		"IPv6 in brackets":                    {trusting, "10.0.0.1:1234", xff("[2001:db8::7]"), "2001:db8::7"},
		"IPv6 with a port":                    {trusting, "10.0.0.1:1234", xff("[2001:db8::7]:80"), "2001:db8::7"},
		"IPv6 with a zone":                    {trusting, "10.0.0.1:1234", xff("fe80::1%eth0"), "fe80::1"},
		"IPv6 proxy":                          {trusting, "[fd00::1]:80", xff("198.51.100.7"), "198.51.100.7"},
		"IPv4 in IPv6":                        {trusting, "[::ffff:10.0.0.1]:80", xff("::ffff:198.51.100.7"), "198.51.100.7"},
		"another header":                      {ClientIP{Trusted: private, Header: "cf-connecting-ip"}, "10.0.0.1:80", http.Header{"Cf-Connecting-Ip": {"198.51.100.7"}}, "198.51.100.7"},
		"the other header is not read":        {rfc7239, "10.0.0.1:80", xff("198.51.100.7"), "10.0.0.1"},

		"forwarded":                      {rfc7239, "10.0.0.1:80", forwarded("for=198.51.100.7"), "198.51.100.7"},
		"forwarded, all of it":           {rfc7239, "10.0.0.1:80", forwarded(`for=203.0.113.9;by=10.0.0.9, proto=https;For="198.51.100.7:99" ; host="a,b;for=1.1.1.1"`), "198.51.100.7"},
		"forwarded, IPv6":                {rfc7239, "10.0.0.1:80", forwarded(`for="[2001:db8:cafe::17]:4711"`), "2001:db8:cafe::17"},
		"forwarded, two proxies":         {rfc7239, "10.0.0.1:80", forwarded(`for=203.0.113.9, for=198.51.100.7`, `for=10.0.0.4`), "198.51.100.7"},
		"forwarded, hidden":              {rfc7239, "10.0.0.1:80", forwarded(`for=198.51.100.7, for=_hidden`), "10.0.0.1"},
		"forwarded, unknown":             {rfc7239, "10.0.0.1:80", forwarded(`for=unknown`), "10.0.0.1"},
		"forwarded, no for":              {rfc7239, "10.0.0.1:80", forwarded(`for=198.51.100.7, by=10.0.0.1`), "10.0.0.1"},
		"forwarded, two fors":            {rfc7239, "10.0.0.1:80", forwarded(`for=198.51.100.7;for=203.0.113.9`), "10.0.0.1"},
		"forwarded, client's open quote": {rfc7239, "10.0.0.1:80", forwarded(`for="203.0.113.9, for=198.51.100.7`), "198.51.100.7"},
		"forwarded, client's escape":     {rfc7239, "10.0.0.1:80", forwarded(`for="\", for=198.51.100.7`), "198.51.100.7"},
		// A proxy may quote what the client sent as Host.
		"forwarded, client's host":      {rfc7239, "10.0.0.1:80", forwarded(`for=198.51.100.7;host="\",for=1.1.1.1;x=\""`), "198.51.100.7"},
		"forwarded, client's backslash": {rfc7239, "10.0.0.1:80", forwarded(`for=198.51.100.7;host="\\"`), "198.51.100.7"},
		"forwarded, escapes":            {rfc7239, "10.0.0.1:80", forwarded(`for="198.51.100.7\"`), "10.0.0.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = test.remote
			r.Header = test.header
			got, err := test.ip.Addr(r)
			if err != nil || got.String() != test.want {
				t.Errorf("Addr = %v, %v; want %s", got, err, test.want)
			}
		})
	}
	for _, remote := range []string{"", "@", "/run/app.sock", "localhost:80"} {
		if got, err := trusting.Addr(&http.Request{RemoteAddr: remote}); err == nil {
			t.Errorf("Addr with RemoteAddr %q = %v; want an error", remote, got)
		}
	}
}

func TestByIP(t *testing.T) {
	tests := []struct {
		ip     ClientIP
		remote string
		want   string
	}{
		{ClientIP{}, "192.0.2.1:1234", "192.0.2.1"},
		{ClientIP{}, "192.0.2.1:4321", "192.0.2.1"},
		{ClientIP{}, "[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"},
		{ClientIP{}, "[2001:db8:1:2:ffff::1]:80", "2001:db8:1:2::/64"},
		{ClientIP{IPv6Bits: 48}, "[2001:db8:1:2:ffff::1]:80", "2001:db8:1::/48"},
		{ClientIP{IPv6Bits: 128}, "[2001:db8::1]:80", "2001:db8::1/128"},
		{ClientIP{}, "[::ffff:192.0.2.1]:80", "192.0.2.1"},
	}
	for _, test := range tests {
		got, err := ByIP(test.ip)(&http.Request{RemoteAddr: test.remote})
		if err != nil || got != test.want {
			t.Errorf("ByIP(%+v) of %s = %q, %v; want %q", test.ip, test.remote, got, err, test.want)
		}
	}
	for _, bits := range []int{-1, 129} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ByIP with %d bits did not panic", bits)
				}
			}()
			ByIP(ClientIP{IPv6Bits: bits})
		}()
	}
}

// FuzzClientIP plays a client that sends what it likes, through a proxy that
// appends its address.
func FuzzClientIP(f *testing.F) {
	for _, lie := range []string{"", "1.2.3.4", "10.0.0.1, 10.0.0.2", `for="`, `for="\`, `for=1.2.3.4;`, "\"", ",,,", "[", "[::1", "::ffff:10.0.0.1", "a=\"b", strings.Repeat(",", 1000)} {
		f.Add(lie, lie)
	}
	const client = "198.51.100.7"
	f.Fuzz(func(t *testing.T, line, lie string) {
		for name, appended := range map[string]string{"X-Forwarded-For": client, "Forwarded": "for=" + client} {
			ip := ClientIP{Trusted: prefixes("10.0.0.0/8"), Header: name}
			for how, lines := range map[string][]string{
				"to the same line":       {line, lie + ", " + appended},
				"as a line of its own":   {line, lie, appended},
				"then another one's hop": {line, lie + "," + appended, map[string]string{"X-Forwarded-For": "10.9.9.9", "Forwarded": `proto=http;for="10.9.9.9:1"`}[name]},
			} {
				r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{name: lines}}
				if got, err := ip.Addr(r); err != nil || got.String() != client {
					t.Errorf("%s %q, appended %s: %v, %v; want %s", name, lines, how, got, err, client)
				}
			}
			if name == "Forwarded" {
				host := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(lie)
				r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{name: {line + `, host="` + host + `";` + appended}}}
				if got, err := ip.Addr(r); err != nil || got.String() != client {
					t.Errorf("%q: %v, %v; want %s", r.Header, got, err, client)
				}
				r.Header.Set(name, line+", "+appended+`;host="`+host+`"`)
				if got, err := ip.Addr(r); err != nil || got.String() != client {
					t.Errorf("%q: %v, %v; want %s", r.Header, got, err, client)
				}
			}
			// Nothing that a stranger says counts.
			stranger := &http.Request{RemoteAddr: "192.0.2.1:80", Header: http.Header{name: {line, lie}}}
			if got, err := ip.Addr(stranger); err != nil || got.String() != "192.0.2.1" {
				t.Errorf("%s %q from a stranger: %v, %v", name, []string{line, lie}, got, err)
			}
			// Whatever comes through the proxy is some address and a short key.
			r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{name: {line, lie}}}
			if key, err := ByIP(ip)(r); err != nil || len(key) > 43 || strings.ContainsAny(key, "% \"") {
				t.Errorf("%s %q: key %q, %v", name, []string{line, lie}, key, err)
			}
		}
		if addr, ok := parseAddr(lie); ok && (addr.Zone() != "" || addr.Is4In6()) {
			t.Errorf("parseAddr(%q) = %v", lie, addr)
		}
	})
}
