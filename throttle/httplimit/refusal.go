package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/throttle"
)

// quotaExceeded is the problem type of draft-ietf-httpapi-ratelimit-headers.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// awayRetry is the Retry-After of requests that are refused because Redis fails.
const awayRetry = 5 * time.Second

// Refusal is why a [Middleware] does not let a request through.
type Refusal struct {
	// Status of the response: 429 over a limit; 413 for a cost that a limit never
	// admits; 503 if Redis did not answer or the context of the request ended; the
	// status of a [KeyError], such as 401; 500 if a [KeyFunc] failed.
	Status int

	// Detail is a sentence for the sender of the request. It names no key.
	Detail string

	// Decision of the limiter; the zero value if there was none. Its Paused is for
	// operators and is not sent.
	Decision throttle.Decision

	// Err is why the limits were not asked or did not answer; nil over a limit. Use
	// [errors.As] to find a [KeyError] or a [throttle.CostError] in it.
	Err error
}

// ServeHTTP writes the refusal as a problem+json document (RFC 9457), without a body for
// HEAD. A Refuse func may call it.
func (f *Refusal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	problem := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail,omitempty"`
		Violated []string `json:"violated-policies,omitempty"`
	}{"about:blank", http.StatusText(f.Status), f.Status, f.Detail, nil}
	if f.Status == http.StatusTooManyRequests {
		problem.Type = quotaExceeded
		problem.Title = "Request cannot be satisfied as assigned quota has been exceeded"
		// Spelled as in the headers, so that clients can compare them.
		problem.Violated = []string{policyName(f.Decision.Limit)}
	}
	body, err := json.Marshal(problem)
	if err != nil { // impossible: strings and numbers can always be marshaled
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

func overLimit(d throttle.Decision, limit throttle.Limit) *Refusal {
	after := retrySeconds(d, limit)
	detail := fmt.Sprintf("Limit %q admits this request in %d s.", policyName(limit.Name), after)
	switch {
	case d.Paused != "":
		detail = fmt.Sprintf("Limit %q is paused for another %d s.", policyName(limit.Name), after)
	case limit.Algorithm == throttle.Concurrency:
		detail = fmt.Sprintf("Limit %q admits %d requests at a time.", policyName(limit.Name), limit.Concurrency)
	}
	return &Refusal{Status: http.StatusTooManyRequests, Detail: detail, Decision: d}
}

// tooCostly is not a 429: clients repeat those, and this request never succeeds.
func tooCostly(err *throttle.CostError) *Refusal {
	return &Refusal{
		Status: http.StatusRequestEntityTooLarge,
		Detail: fmt.Sprintf("The request costs %d, and limit %q never admits more than %d at once.", err.Cost, policyName(err.Limit), err.Max),
		Err:    err,
	}
}

func away(w http.ResponseWriter, err error) *Refusal {
	w.Header().Set("Retry-After", strconv.FormatInt(seconds(awayRetry), 10))
	return &Refusal{Status: http.StatusServiceUnavailable, Detail: "Limits cannot be checked at the moment.", Err: err}
}
