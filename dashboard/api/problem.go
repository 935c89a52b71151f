package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// problem is an error as RFC 9457 has it.
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Code   string       `json:"code"`
	Errors []fieldError `json:"errors,omitempty"`

	retryAfter   time.Duration // 0: not said
	allow        string        // of a 405
	authenticate bool          // of a 401
	refusal      string        // what the audit is told of one who may not; "": nothing
}

func (p *problem) Error() string { return p.Detail }

// fieldError is one mistake in a request.
type fieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// Codes of problems: what a program can tell them apart by.
const (
	codeInvalid     = "invalid"         // 400: the request can never be accepted
	codeNoKey       = "unauthenticated" // 401
	codeForbidden   = "forbidden"       // 403
	codeReadOnly    = "read_only"       // 403
	codeNotFound    = "not_found"       // 404
	codeMethod      = "method_not_allowed"
	codeConflict    = "conflict"     // 409: another job has this key
	codeWrongState  = "wrong_state"  // 409: the verb is not for this job, as it is
	codeTooLarge    = "too_large"    // 413
	codeMediaType   = "media_type"   // 415
	codeBacklogFull = "backlog_full" // 429
	codeBusy        = "busy"         // 429: too many streams, or batches
	codeRateLimited = "rate_limited" // 429: too many requests, or another refusal of the limits
	codeInternal    = "internal"     // 500
	codeUnavailable = "unavailable"  // 503: Redis does not answer; certainly nothing was done
	codeUnknown     = "unknown"      // 504: it may have been done
)

func newProblem(status int, code, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

func invalid(field, format string, args ...any) *problem {
	reason := fmt.Sprintf(format, args...)
	p := newProblem(http.StatusBadRequest, codeInvalid, "%s: %s", field, reason)
	p.Errors = []fieldError{{field, reason}}
	return p
}

const (
	awayRetry = 5 * time.Second
	fullRetry = time.Second // where nobody knows when the backlog has room
)

// problemOf tells an error to the client. What it does not know is not told: it
// may name what is no business of the client's.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	switch {
	case errors.Is(err, queue.ErrConflict):
		return newProblem(http.StatusConflict, codeConflict, "%s", oneLine(err))
	case errors.Is(err, queue.ErrBacklogFull):
		p := newProblem(http.StatusTooManyRequests, codeBacklogFull, "%s", oneLine(err))
		p.retryAfter = fullRetry
		return p
	case errors.Is(err, queue.ErrUnknown):
		p := newProblem(http.StatusGatewayTimeout, codeUnknown,
			"Redis did not answer in time, so the job may have been enqueued or not. Sending it again with the same key is safe: it is enqueued once.")
		p.retryAfter = awayRetry
		return p
	case errors.Is(err, queue.ErrEvicts):
		p := newProblem(http.StatusServiceUnavailable, codeUnavailable, "%s", oneLine(err))
		p.retryAfter = awayRetry
		return p
	case errors.Is(err, lifecycle.ErrNoJob):
		return newProblem(http.StatusNotFound, codeNotFound, "%s", oneLine(err))
	}
	if fields := invalidFields(err); len(fields) > 0 {
		p := newProblem(http.StatusBadRequest, codeInvalid, "%s", oneLine(err))
		p.Errors = fields
		switch {
		case errors.Is(err, validation.ErrNotFound):
			p.Status, p.Code = http.StatusNotFound, codeNotFound
		case errors.Is(err, operate.ErrState):
			p.Status, p.Code = http.StatusConflict, codeWrongState
		}
		p.Title = http.StatusText(p.Status)
		return p
	}
	if errors.Is(err, context.Canceled) {
		return newProblem(http.StatusServiceUnavailable, codeUnavailable, "The request ended before it was answered.")
	}
	if away(err) {
		p := newProblem(http.StatusServiceUnavailable, codeUnavailable, "Redis does not answer. Nothing was changed by this request, unless it acts on many jobs: then some may have been.")
		p.retryAfter = awayRetry
		return p
	}
	return newProblem(http.StatusInternalServerError, codeInternal, "Something is wrong in the server; its log says what.")
}

// invalidFields are the fields that an error complains of.
func invalidFields(err error) []fieldError {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []fieldError
		for _, err := range joined.Unwrap() {
			all = append(all, invalidFields(err)...)
		}
		return all
	}
	if wrong, ok := err.(*validation.Error); ok {
		return []fieldError{{wrong.Field, wrong.Reason}}
	}
	return invalidFields(errors.Unwrap(err))
}

// oneLine is an error's text without line breaks.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// write sends a problem.
func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.authenticate {
		h.Set("WWW-Authenticate", "Bearer")
	}
	send(w, r, p.Status, "application/problem+json", p)
}

// send writes a value as JSON.
func send(w http.ResponseWriter, r *http.Request, status int, contentType string, value any) {
	body, err := json.Marshal(value)
	if err != nil { // of types that are ours
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone wants no answer
	}
}
