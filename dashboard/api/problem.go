package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// problem is an error in the format of RFC 9457.
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail,omitempty"`
	Code   string       `json:"code"`
	Errors []fieldError `json:"errors,omitempty"`

	// Request is the id of the request, which the log of the server has too.
	Request string `json:"request,omitempty"`

	retryAfter   time.Duration // 0: no Retry-After
	allow        string        // of a 405
	authenticate bool          // of a 401
	refusal      string        // recorded for a lack of permission; "": not recorded
}

func (p *problem) Error() string { return p.Detail }

// fieldError is one error in a request.
type fieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// Codes of problems, by which programs can distinguish them.
const (
	codeInvalid     = "invalid"         // 400: the request can never be accepted
	codeNoQueue     = "unknown_queue"   // 400: no limits were published for the queue
	codeNoKey       = "unauthenticated" // 401
	codeForbidden   = "forbidden"       // 403
	codeReadOnly    = "read_only"       // 403
	codeNotFound    = "not_found"       // 404
	codeMethod      = "method_not_allowed"
	codeConflict    = "conflict"     // 409: another job has this key
	codeWrongState  = "wrong_state"  // 409: the state of the job does not permit the verb
	codeTooSlow     = "too_slow"     // 408: the body did not come in time
	codeTooLarge    = "too_large"    // 413
	codeMediaType   = "media_type"   // 415
	codeBacklogFull = "backlog_full" // 429
	codeBusy        = "busy"         // 429: too many streams, or batches
	codeRateLimited = "rate_limited" // 429: too many requests, or another refusal of the limits
	codeInternal    = "internal"     // 500
	codeRedisFull   = "redis_full"   // 503: Redis has no memory for more jobs
	codeUnavailable = "unavailable"  // 503: Redis does not answer. No job was enqueued; an operator's change may have been made
	codePartly      = "partly"       // 503: an operator's change was made in some partitions of the queue, and others do not answer
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
	fullRetry = time.Second // it is unknown when the backlog will have room
)

// problemOf makes a problem of an error. Unknown errors are not shown to the client, because
// they may contain internal details.
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
		reason := "Redis did not answer in time, so the job may or may not have been enqueued."
		if errors.Is(err, queue.ErrNotReplicated) {
			reason = "Only the primary Redis has the job: no replica acknowledged it in time, as its queue requires. It may be sent, or be lost in a failover."
		}
		p := newProblem(http.StatusGatewayTimeout, codeUnknown, "%s Sending it again with the same key is safe.", reason)
		p.retryAfter = awayRetry
		return p
	case errors.Is(err, queue.ErrRedisFull):
		p := newProblem(http.StatusServiceUnavailable, codeRedisFull, "Redis has no memory for more jobs. Nothing was enqueued: retry later.")
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
		p := fieldsProblem(fields, oneLine(err))
		switch {
		case errors.Is(err, validation.ErrNotFound):
			p.Status, p.Code = http.StatusNotFound, codeNotFound
		case errors.Is(err, queue.ErrUnknownQueue):
			p.Code = codeNoQueue
		case errors.Is(err, operate.ErrState):
			p.Status, p.Code = http.StatusConflict, codeWrongState
		}
		p.Title = http.StatusText(p.Status)
		return p
	}
	if errors.Is(err, context.Canceled) {
		return newProblem(http.StatusServiceUnavailable, codeUnavailable, "The request was cancelled.")
	}
	if away(err) {
		p := newProblem(http.StatusServiceUnavailable, codeUnavailable, "Redis does not answer. This request changed nothing.")
		p.retryAfter = awayRetry
		return p
	}
	return newProblem(http.StatusInternalServerError, codeInternal, "Internal error: see the log of the server.")
}

// unsure returns the error of an operator's change. If Redis does not answer, it may have executed the change, or a part
// of it.
func unsure(err error) error {
	if err == nil || !away(err) {
		return err
	}
	p := problemOf(err)
	if p.Code != codeUnavailable {
		return err
	}
	p.Detail = "Redis does not answer. The change may have been made all the same, or in part: look, or repeat the request."
	if part, ok := errors.AsType[*operate.PartialError](err); ok && part.Away < part.Partitions {
		p.Code = codePartly
		p.Detail = fmt.Sprintf("Redis does not answer for %d of the %d partitions of the queue, which may be as before, or changed in part. The change was made in the others: repeat the request later.", part.Away, part.Partitions)
	}
	return p
}

// together returns one problem that lists the invalid fields of several errors. An error of
// another kind comes before them; nil if there is none.
func together(errs ...error) error {
	var all []fieldError
	var texts []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		p := problemOf(err)
		if p.Code != codeInvalid || len(p.Errors) == 0 {
			return err
		}
		all, texts = append(all, p.Errors...), append(texts, p.Detail)
	}
	if all == nil {
		return nil
	}
	return fieldsProblem(all, strings.Join(texts, "; "))
}

// fieldsProblem returns the problem of invalid fields, of which it lists the first. The detail is
// for all of them.
func fieldsProblem(fields []fieldError, detail string) *problem {
	p := newProblem(http.StatusBadRequest, codeInvalid, "")
	p.Errors, p.Detail = listed(fields, detail, check.MaxErrors)
	return p
}

// listed returns the first errors, and one more if there are others, with the detail that names
// only them.
func listed(fields []fieldError, detail string, most int) (first []fieldError, named string) {
	if len(fields) <= most {
		return fields, detail
	}
	first = append(slices.Clone(fields[:most]), fieldError{fields[most].Field, check.AndMore})
	texts := make([]string, len(first))
	for i, f := range first {
		texts[i] = f.Field + ": " + f.Reason
	}
	return first, strings.Join(texts, "; ")
}

// invalidFields returns the invalid fields that an error names.
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

// oneLine returns an error's text without line breaks.
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
	answer := *p // problems of some limits are shared
	answer.Request = h.Get(requestIDHeader)
	send(w, r, p.Status, "application/problem+json", &answer)
}

// send writes a value as JSON.
func send(w http.ResponseWriter, r *http.Request, status int, contentType string, value any) {
	body := mustJSON(value)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have disconnected
	}
}
