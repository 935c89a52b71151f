package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Request is the payload of a webhook job.
type Request struct {
	URL     string            `json:"url"`               // http or https, absolute
	Method  string            `json:"method,omitempty"`  // "" means POST
	Headers map[string]string `json:"headers,omitempty"` // besides those that every call carries
	Body    json.RawMessage   `json:"body,omitempty"`    // sent as it is
}

// reserved headers are the transport's or ours.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Trailer": true,
	"Upgrade": true, "Te": true, "Keep-Alive": true, "Proxy-Connection": true, "Idempotency-Key": true,
}

// Validate reports every reason why the request could never be sent, or nil.
func (r Request) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	u, err := url.Parse(r.URL)
	switch {
	case r.URL == "":
		wrong("url: it is empty")
	case err != nil:
		wrong("url: it is not a URL") // the text may hold a secret
	case u.Scheme != "http" && u.Scheme != "https":
		wrong("url: scheme %q is neither http nor https", u.Scheme)
	case u.Hostname() == "":
		wrong("url: it names no host")
	case u.User != nil:
		wrong("url: credentials in a URL end up in logs; use headers")
	}
	if r.Method != "" && (strings.ToUpper(r.Method) != r.Method || !httpguts.ValidHeaderFieldName(r.Method)) {
		wrong("method: %.20q is not an HTTP method", r.Method)
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		wrong("method: %s is not sent", r.Method)
	}
	for name, value := range r.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			wrong("headers: %.40q is not a header's name", name)
		case reserved[canonical] || strings.HasPrefix(canonical, "Headgate-"):
			wrong("headers: %s is set by the sender", canonical)
		case !httpguts.ValidHeaderFieldValue(value):
			wrong("headers: the value of %s has control characters", canonical)
		}
	}
	return errors.Join(errs...)
}
