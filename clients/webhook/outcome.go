package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// outcome is what an answer other than 2xx means:
//
//	429, and 502, 503, 504
//	with Retry-After                 the endpoint is throttled for that long, at most
//	                                 for Config.MaxRetryAfter
//	other 5xx                        unavailable
//	408, 409, 425                    retryable
//	410                              permanent, with a [GoneError]
//	404                              see [Sender.notFound]
//	3xx                              permanent: redirects are not followed
//	other 4xx, and what is left      permanent
//
// 409 is how a receiver that knows idempotency keys says that it is still busy
// with an earlier attempt.
func (s *Sender) outcome(response *http.Response, body string) error {
	status := response.StatusCode
	text := fmt.Sprintf("%s answered %d", response.Request.URL.Host, status)
	if status/100 == 3 {
		text += ", and redirects are not followed"
	}
	if body != "" {
		text += ": " + body
	}
	err := errors.New(text)
	// A stranger says how long, and must not put the tenant's jobs off for a day.
	after := min(clients.ParseRetryAfter(response.Header.Get("Retry-After"), clock(response)), s.config.MaxRetryAfter)
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

// GoneError reports that a receiver answered 410: it wants no calls to this URL
// any more. Its job is archived with that reason. A Sender remembers nothing, so
// whoever chose the URL should disable it and make no more jobs for it; the worker
// leaves it alone by itself.
type GoneError struct {
	Host string
	Body string // of the answer, one short line; "" when there was none
}

func (e *GoneError) Error() string {
	text := e.Host + " answered 410: the endpoint is gone for good and is to be disabled"
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// clock is the receiver's own, against which its dates are to be held.
func clock(response *http.Response) time.Time {
	if now, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		return now
	}
	return time.Now()
}

// lost is what a call without an answer means:
//
//	the request was sent             unknown
//	the worker ends                  ctx's error
//	a private address                permanent
//	a certificate for another name   permanent: the URL is wrong
//	no address, no connection, no
//	TLS, a broken connection, the
//	time was up before it was sent   unreachable
//
// Other troubles with certificates (expired, unknown authority) are the
// receiver's to mend: until then it is unreachable.
func lost(ctx, limited context.Context, host string, hidden secrets, sent bool, err error) error {
	err = shared.Cause(limited, err)
	reason := hidden.cut([]byte(err.Error()))
	if !sent && ctx.Err() == nil {
		if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
			return clients.Permanent(clients.NotCalled(fmt.Errorf("%s is not an address of the public internet", host)))
		}
		if _, other := errors.AsType[x509.HostnameError](err); other {
			return clients.Permanent(fmt.Errorf("call %s: %s", host, reason))
		}
	}
	return shared.Lost(ctx, host, sent, reason)
}

// maxReason bounds what a receiver can make an error say, in bytes.
const maxReason = 200

// printable is an error with a text that is fit for a log: its own may hold what
// the receiver sent.
type printable struct {
	err  error
	text string
}

func (p *printable) Error() string { return p.text }
func (p *printable) Unwrap() error { return p.err }

// secrets are what of a request must not stand in an error. Longer ones come
// first, for a shorter one may be a part of them.
type secrets []string

// secretsOf lists the values of headers, the URL's path and query, and the parts
// of all of these: a receiver may name a token without the word before it.
func secretsOf(r *http.Request) secrets {
	const (
		shortest = 6 // shorter ones are no secrets, and stand in many words
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

// cut is the beginning of an answer or of an error's text, as one line. Some
// receivers repeat in it what they were sent, so the secrets are cut out.
func (s secrets) cut(text []byte) string {
	text = text[:min(len(text), 8<<10)]
	for _, secret := range s {
		text = bytes.ReplaceAll(text, []byte(secret), []byte("…"))
	}
	return clients.Printable(string(text), maxReason)
}
