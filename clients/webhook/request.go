package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Request is one call, and the payload of a webhook job.
type Request struct {
	// URL is http or https, without user and password: those belong into a
	// header. Its fragment is not sent.
	URL string `json:"url"`

	// Method is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS; "" means POST.
	Method string `json:"method,omitempty"`

	// Headers are sent besides those of the call. Those that belong to the
	// connection, and the call's own, are refused.
	Headers map[string]string `json:"headers,omitempty"`

	// Body is sent as it is; absent means none. A GET or HEAD has none. Without a
	// Content-Type among the headers it is application/json.
	Body json.RawMessage `json:"body,omitempty"`
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

const mostURL = 8 << 10

// Validate reports everything that makes the request unusable, joined, or nil.
// The texts name what is wrong without repeating it: URLs and headers hold
// secrets.
func (r Request) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := parseURL(r.URL); err != nil {
		wrong("url: %w", err)
	}
	if !slices.Contains(methods, r.method()) {
		wrong("method: it is none of %s", strings.Join(methods, ", "))
	}
	if len(r.Body) > 0 && (r.method() == http.MethodGet || r.method() == http.MethodHead) {
		wrong("body: a %s has none", r.method())
	}
	seen := map[string]bool{}
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
	}
	return errors.Join(errs...)
}

func (r Request) method() string {
	if r.Method == "" {
		return http.MethodPost
	}
	return r.Method
}

// parseURL has errors of its own: those of net/url repeat the text.
func parseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("it is empty")
	}
	if len(text) > mostURL {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), mostURL)
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
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("its port is not within 1 to 65535")
		}
	}
	return u, nil
}

// reserved tells whether a header belongs to the connection or to the call.
func reserved(canonical string) bool {
	switch canonical {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Te", "Trailer", "Upgrade", "Expect", "Idempotency-Key":
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
