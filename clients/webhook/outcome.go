package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"code.dny.dev/ssrf"

	"github.com/headgate/headgate/clients"
)

// outcome is what an answer other than 2xx means:
//
//	429, and 503 with Retry-After    throttled for that long
//	408, 425, other 5xx              retryable
//	3xx                              permanent: redirects are not followed
//	other 4xx, and what is left      permanent
func outcome(response *http.Response, body string) error {
	status := response.StatusCode
	text := fmt.Sprintf("%s answered %d", response.Request.URL.Host, status)
	if status/100 == 3 {
		text += ", and redirects are not followed"
	}
	if body != "" {
		text += ": " + body
	}
	err := errors.New(text)
	after := response.Header.Get("Retry-After")
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && after != "":
		return clients.Throttled(clients.ParseRetryAfter(after, clock(response)), err)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status/100 == 5:
		return clients.Retryable(err)
	}
	return clients.Permanent(err)
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
//	time was up before it was sent   retryable
//
// Other troubles with certificates (expired, unknown authority) are the
// receiver's to mend, and retryable.
func lost(ctx, limited context.Context, host string, sent bool, err error) error {
	if limited.Err() != nil {
		err = context.Cause(limited)
	}
	switch {
	case sent:
		// As text: an error that matches context.Canceled would be taken for a call
		// that was never made, and be repeated without a thought.
		return clients.Unknown(fmt.Errorf("no answer of %s after the request was sent: %s", host, clients.Printable(err.Error(), mostReason)))
	case ctx.Err() != nil:
		return fmt.Errorf("call %s: %w", host, ctx.Err())
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return clients.Permanent(fmt.Errorf("%s is not an address of the public internet", host))
	}
	reason := fmt.Errorf("call %s: %w", host, &printable{err})
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return clients.Permanent(reason)
	}
	return clients.Retryable(reason)
}

// mostReason bounds what a receiver can make an error say, in bytes.
const mostReason = 200

// printable is an error whose text may hold what the receiver sent.
type printable struct{ err error }

func (p *printable) Error() string { return clients.Printable(p.err.Error(), mostReason) }
func (p *printable) Unwrap() error { return p.err }

// redact is the beginning of an answer, as one line. Some receivers repeat in it
// what they were sent, so the values of headers and the URL's query are cut out.
func redact(body []byte, request Request, u *url.URL) string {
	const shortest = 6 // shorter ones are no secrets, and stand in many words
	body = body[:min(len(body), 8<<10)]
	secrets := []string{u.RawQuery, u.EscapedPath()}
	for _, value := range request.Headers {
		secrets = append(secrets, value)
	}
	for _, secret := range secrets {
		if len(secret) >= shortest {
			body = bytes.ReplaceAll(body, []byte(secret), []byte("…"))
		}
	}
	return clients.Printable(string(body), mostReason)
}
