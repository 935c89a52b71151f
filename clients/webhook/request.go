package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"
)

// Request is one call, and the payload of a webhook job.
type Request struct {
	// URL is an http or https URL without user and password, which belong in a header. Its
	// fragment is not sent.
	URL string `json:"url"`

	// Method is any method in capitals, except CONNECT and TRACE. "" means POST.
	Method string `json:"method,omitempty"`

	// Headers are sent in addition to those of the call: at most 100, with 16 KiB in total.
	// Headers of the connection, of the call and of its signature are refused.
	Headers map[string]string `json:"headers,omitempty"`

	// Body is sent unchanged. A GET or HEAD must not have one. The default Content-Type is
	// application/json.
	Body json.RawMessage `json:"body,omitempty"`

	// Text is a body that is not JSON, such as a form or XML. The default Content-Type is
	// text/plain; charset=utf-8. If it is "", Body is sent.
	Text string `json:"text,omitempty"`
}

const (
	maxURL         = 8 << 10
	maxHost        = 253 // of a DNS name
	maxMethod      = 32
	maxHeaders     = 100
	maxHeaderBytes = 16 << 10
)

// body returns the body to send: Body or Text.
func (r Request) body() []byte {
	if len(r.Body) > 0 {
		return r.Body
	}
	return []byte(r.Text)
}

// Host returns the host of the URL in lower case with its port, the same for all spellings, or
// "" if the URL is invalid.
func (r Request) Host() string {
	u, err := parseURL(r.URL)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port)
}

// publicOnly rejects addresses that are not public internet addresses.
var publicOnly = ssrf.New(ssrf.WithAnyPort()).Safe

// PrivateHost returns the host of the URL, with its port, if it is certainly not a public
// internet address: an IP address that is not public, or localhost. It returns "" for other
// names, which a [Sender] resolves and checks when it calls them.
func (r Request) PrivateHost() string {
	u, err := parseURL(r.URL)
	if err != nil {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return r.Host()
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	addr = addr.Unmap() // as it is dialled
	network := "tcp4"
	if addr.Is6() {
		network = "tcp6"
	}
	if publicOnly(network, netip.AddrPortFrom(addr, 443).String(), nil) == nil {
		return ""
	}
	return r.Host()
}

// Validate returns all errors of the request, joined, or nil. Their texts do not repeat values,
// because URLs and headers can have secrets.
func (r Request) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := parseURL(r.URL); err != nil {
		wrong("url: %w", err)
	}
	if !usable(r.method()) {
		wrong("method: it must be in capitals, at most %d long, and not CONNECT or TRACE", maxMethod)
	}
	if len(r.Body) > 0 && r.Text != "" {
		wrong("text: set body or text, not both")
	}
	if len(r.body()) > 0 && (r.method() == http.MethodGet || r.method() == http.MethodHead) {
		wrong("body: a %s must not have one", r.method())
	}
	if len(r.Headers) > maxHeaders {
		wrong("headers: %d; the maximum is %d", len(r.Headers), maxHeaders)
	}
	seen := map[string]bool{}
	size := 0
	for name, value := range r.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			wrong("headers: a name is empty or has characters other than letters, digits and !#$%%&'*+-.^_`|~")
		case reserved(canonical):
			wrong("headers: %s is reserved", canonical)
		case seen[canonical]:
			wrong("headers: %s: duplicate header", canonical)
		case strings.ContainsFunc(value, control):
			wrong("headers: %s has control characters", canonical)
		}
		seen[canonical] = true
		size += len(name) + len(value)
	}
	if size > maxHeaderBytes {
		wrong("headers: %d bytes; the maximum is %d", size, maxHeaderBytes)
	}
	return errors.Join(errs...)
}

func (r Request) method() string { return cmp.Or(r.Method, http.MethodPost) }

// usable reports whether a method can be sent. CONNECT requests a tunnel, and TRACE returns all
// headers in the answer.
func usable(method string) bool {
	switch method {
	case http.MethodConnect, http.MethodTrace:
		return false
	}
	return len(method) <= maxMethod && !strings.ContainsFunc(strings.Trim(method, "-"), func(c rune) bool {
		return (c < 'A' || c > 'Z') && c != '-'
	}) && strings.Trim(method, "-") == method
}

// parseURL parses a URL. Its errors do not repeat the text, unlike those of net/url.
func parseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("it is empty")
	}
	if len(text) > maxURL {
		return nil, fmt.Errorf("%d bytes; the maximum is %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it is not http or https")
	case u.User != nil:
		return nil, errors.New("it must not have a user or password: send them in a header")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case len(u.Hostname()) > maxHost:
		return nil, fmt.Errorf("its host has %d bytes; the maximum is %d", len(u.Hostname()), maxHost)
	case strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return nil, errors.New("its host is not a name")
	case strings.Contains(u.Hostname(), "%"):
		return nil, errors.New("its host has a zone, which is valid only on one machine")
	case oddAddress(u.Hostname()):
		return nil, errors.New("its host is a number: write an IPv4 address as 192.0.2.1")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("its port is not in the range 1 to 65535")
		}
	}
	return u, nil
}

// oddAddress reports whether a host is a spelling of an IPv4 address that some resolvers accept
// and others treat as a name: 127.1, 2130706433, 0x7f.1, 0177.0.0.1. Its last part is a number,
// which the last part of a name never is.
func oddAddress(host string) bool {
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	} else if last == "" {
		return false
	}
	if strings.Trim(last, digits) != "" {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err != nil
}

// reserved reports whether a header belongs to the connection or to the call.
func reserved(canonical string) bool {
	switch canonical {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Te", "Trailer", "Upgrade", "Expect", "Idempotency-Key",
		"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature":
		return true
	}
	return strings.HasPrefix(canonical, "Proxy-") || strings.HasPrefix(canonical, "Headgate-")
}

// token reports whether a text can be the name of a header (RFC 9110, 5.6.2).
func token(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func control(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
