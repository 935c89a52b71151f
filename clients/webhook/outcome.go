package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// outcome returns what an answer other than 2xx means:
//
//	429, and 502, 503, 504
//	with Retry-After                 the endpoint is throttled for that time, at most
//	                                 Config.MaxRetryAfter
//	other 5xx                        unavailable
//	408, 409, 425                    retryable
//	410                              permanent, with a [GoneError]
//	404                              see [Sender.notFound]
//	3xx                              permanent: redirects are not followed
//	other 4xx, and all others        permanent
//
// With 409, a receiver that supports idempotency keys says that an earlier attempt is still in
// progress.
func (s *Sender) outcome(response *http.Response, body string) error {
	status := response.StatusCode
	text := fmt.Sprintf("%s answered %d", response.Request.URL.Host, status)
	if status/100 == 3 {
		text += ", and redirects are not followed"
	}
	if body != "" {
		text += ": " + strconv.Quote(body) // a stranger's words
	}
	err := errors.New(text)
	// Limited, because a stranger must not delay the tenant's jobs for a day.
	after := min(clients.ParseRetryAfter(response.Header.Get("Retry-After"), shared.Clock(response.Header.Get("Date"))), s.config.MaxRetryAfter)
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if response.Header.Get("Retry-After") == "" {
			return clients.Unavailable(err)
		}
		return clients.EndpointThrottled(after, err)
	case http.StatusTooManyRequests:
		return clients.EndpointThrottled(after, err)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		return clients.Retryable(err)
	case http.StatusGone:
		return clients.Permanent(&GoneError{Host: response.Request.URL.Host, Body: body})
	}
	if status/100 == 5 {
		return clients.Unavailable(err)
	}
	return clients.Permanent(err)
}

// GoneError reports that a receiver answered 410: it wants no more calls to this URL. The job is
// archived with that reason. A Sender has no memory of it, so the owner of the URL should disable
// it and stop enqueueing jobs for it. The program worker holds the endpoint by itself.
type GoneError struct {
	Host string
	Body string // of the answer, as one short line; "": none
}

func (e *GoneError) Error() string {
	text := e.Host + " answered 410: the endpoint is permanently gone; disable it"
	if e.Body != "" {
		text += ": " + strconv.Quote(e.Body)
	}
	return text
}

// PrivateError reports that no call was made because the receiver's address is not a public
// internet address and [Config].AllowPrivate is off. The setting may be wrong instead of the
// job, so the endpoint's jobs are held until a worker allows the address or their deadline
// passes.
type PrivateError struct {
	Host string // with its port
}

func (e *PrivateError) Error() string { return e.Host + " is not a public internet address" }

// lost returns what a call without an answer means:
//
//	the request was sent             unknown
//	the worker is shutting down      ctx's error
//	the worker lacks files or ports  postponed for a second
//	a private address                the endpoint is throttled, with a [PrivateError]
//	a certificate for another name   permanent: the URL is wrong
//	no address, no connection, no
//	TLS, or a broken connection or
//	a timeout before it was sent     unreachable
//
// The receiver must fix other problems with certificates (expired, unknown authority); until
// then it is unreachable.
func lost(ctx, limited context.Context, host string, hidden secrets, sent bool, err error) error {
	err = shared.Cause(limited, err)
	reason := hidden.cut([]byte(err.Error()))
	if !sent && ctx.Err() == nil {
		if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
			return clients.EndpointThrottled(clients.KeyPause, clients.NotCalled(&PrivateError{Host: host}))
		}
		if _, other := errors.AsType[x509.HostnameError](err); other {
			return clients.Permanent(fmt.Errorf("call %s: %s", host, reason))
		}
	}
	return shared.Lost(ctx, host, sent, err, reason)
}

// maxReason is the max number of bytes of a receiver's text in an error.
const maxReason = 200

// printable is an error with a text that can be logged. The text of the wrapped error may have
// unprintable characters.
type printable struct {
	err  error
	text string
}

func (p *printable) Error() string { return p.text }
func (p *printable) Unwrap() error { return p.err }

// secrets are the parts of a request that must not be in an error. Longer ones come first,
// because a shorter one may be a part of them.
type secrets []string

// secretsOf returns the values of headers, the URL's path and query, and parts of all these,
// because a receiver may repeat a token without the word before it.
func secretsOf(r *http.Request) secrets {
	const (
		shortest = 6 // shorter values are not secret, and occur in many words
		minPart  = 8
	)
	values := []string{r.URL.RawQuery, r.URL.EscapedPath(), r.URL.Path}
	for name, all := range r.Header {
		switch name {
		case "User-Agent", "Content-Type", clients.HeaderJob, clients.HeaderTenant, clients.HeaderAttempt, "Webhook-Id", "Webhook-Timestamp":
			continue
		}
		if !strings.EqualFold(name, clients.HeaderIdempotencyKey) {
			values = append(values, all...)
		}
	}
	for _, of := range r.URL.Query() {
		values = append(values, of...)
	}
	var list secrets
	for _, value := range values {
		if len(value) >= shortest {
			list = append(list, value)
		}
		for part := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(" \t/?&=,;:\"", c) }) {
			if len(part) >= minPart {
				list = append(list, part)
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// cut returns the beginning of an answer or of an error's text as one line, without secrets:
// some receivers repeat what they were sent.
func (s secrets) cut(text []byte) string {
	text = text[:min(len(text), 8<<10)]
	for _, secret := range s {
		text = bytes.ReplaceAll(text, []byte(secret), []byte("…"))
	}
	return clients.Printable(string(text), maxReason)
}
