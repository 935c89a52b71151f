package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Request is one call, and the payload of a webhook job.
type Request struct {
	// URL is http or https, without user and password: those belong into a
	// header. Its fragment is not sent.
	URL string `json:"url"`

	// Method is any in capitals, but for CONNECT and TRACE; "" means POST.
	Method string `json:"method,omitempty"`

	// Headers are sent besides those of the call; at most 100, of 16 KiB together.
	// Those that belong to the connection, the call's own and those of its
	// signature are refused.
	Headers map[string]string `json:"headers,omitempty"`

	// Body is sent as it is; absent means none. A GET or HEAD has none. Without a
	// Content-Type among the headers it is application/json.
	Body json.RawMessage `json:"body,omitempty"`

	// Text is a body that is not JSON: a form, XML. Without a Content-Type among
	// the headers it is text/plain; charset=utf-8. "" means that Body is sent.
	Text string `json:"text,omitempty"`
}

const (
	maxURL         = 8 << 10
	maxMethod      = 32
	maxHeaders     = 100
	maxHeaderBytes = 16 << 10
)

// body is what is sent: Body, or Text.
func (r Request) body() []byte {
	if len(r.Body) > 0 {
		return r.Body
	}
	return []byte(r.Text)
}

// Host is where the call goes, the same for all spellings of one URL: in lower
// case, with the port. It is "" when the URL is unusable.
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

// Validate reports everything that makes the request unusable, joined, or nil.
// The texts name what is wrong without repeating it: URLs and headers hold
// secrets.
func (r Request) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := parseURL(r.URL); err != nil {
		wrong("url: %w", err)
	}
	if !usable(r.method()) {
		wrong("method: it is not in capitals, longer than %d, CONNECT or TRACE", maxMethod)
	}
	if len(r.Body) > 0 && r.Text != "" {
		wrong("text: there is a body, too")
	}
	if len(r.body()) > 0 && (r.method() == http.MethodGet || r.method() == http.MethodHead) {
		wrong("body: a %s has none", r.method())
	}
	if len(r.Headers) > maxHeaders {
		wrong("headers: %d are more than %d", len(r.Headers), maxHeaders)
	}
	seen := map[string]bool{}
	size := 0
	for name, value := range r.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			wrong("headers: a name is empty or has characters other than letters, digits and !#$%%&'*+-.^_`|~")
		case reserved(canonical):
			wrong("headers: %s is not the sender's to set", canonical)
		case seen[canonical]:
			wrong("headers: %s stands there twice", canonical)
		case strings.ContainsFunc(value, control):
			wrong("headers: %s has control characters", canonical)
		}
		seen[canonical] = true
		size += len(name) + len(value)
	}
	if size > maxHeaderBytes {
		wrong("headers: %d bytes are more than %d", size, maxHeaderBytes)
	}
	return errors.Join(errs...)
}

func (r Request) method() string {
	if r.Method == "" {
		return http.MethodPost
	}
	return r.Method
}

// usable tells whether a method can be sent. CONNECT asks for a tunnel, and
// TRACE for all headers in the answer.
func usable(method string) bool {
	switch method {
	case http.MethodConnect, http.MethodTrace:
		return false
	}
	return len(method) <= maxMethod && !strings.ContainsFunc(strings.Trim(method, "-"), func(c rune) bool {
		return (c < 'A' || c > 'Z') && c != '-'
	}) && strings.Trim(method, "-") == method
}

// parseURL has errors of its own: those of net/url repeat the text.
func parseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("it is empty")
	}
	if len(text) > maxURL {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("it is neither http nor https")
	case u.User != nil:
		return nil, errors.New("user and password belong into a header")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return nil, errors.New("its host is no name")
	case strings.Contains(u.Hostname(), "%"):
		return nil, errors.New("its host has a zone, which is of this machine alone")
	case oddAddress(u.Hostname()):
		return nil, errors.New("its host is a number and no plain IPv4 address, such as 192.0.2.1")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("its port is not within 1 to 65535")
		}
	}
	return u, nil
}

// oddAddress tells whether a host is a spelling of an IPv4 address that some
// resolvers understand and others take for a name: 127.1, 2130706433, 0x7f.1,
// 0177.0.0.1. Its last part is a number, as that of no name is.
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

// reserved tells whether a header belongs to the connection or to the call.
func reserved(canonical string) bool {
	switch canonical {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Te", "Trailer", "Upgrade", "Expect", "Idempotency-Key",
		"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature":
		return true
	}
	return strings.HasPrefix(canonical, "Proxy-") || strings.HasPrefix(canonical, "Headgate-")
}

// token tells whether text can be the name of a header (RFC 9110, 5.6.2).
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
