package payment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// outcome returns what an answer of Stripe other than success means:
//
//	401, an expired account key             the key is refused
//	403                                     postponed for 5 min
//	429 lock_timeout, resource-specific     postponed for 2 s
//	other 429, also without a body          throttled, the account
//	409, idempotency_key_in_use             postponed for 2 s
//	402                                     permanent, with the decline's codes
//	400 idempotency_error                   permanent: the key belongs to another call; if that may
//	                                        be an earlier call of the job, also unknown
//	other 4xx                               permanent
//	4xx with Stripe-Should-Retry: true      retryable
//	4xx that cannot be read, 3xx            retryable
//	5xx that Stripe calls final             permanent and unknown
//	other 5xx                               unknown
//	2xx that cannot be read                 unknown
//
// The operator must fix an invalid account key. It must not archive the payments that come up
// in the meantime, so all calls of the account wait, one per minute tries again, and no attempt is
// spent (see [clients.KeyRefused]). A restricted key may permit charges but not refunds, so 403
// parks only the one job. Both end only with the job's deadline.
//
// Stripe's limits are those of the account. Only resource-specific limits and locks concern a
// single object, so they hold only the one job (https://docs.stripe.com/rate-limits). Stripe
// sends no Retry-After, but one is respected. Stripe-Should-Retry: false with a 429 only means
// not to retry at once.
//
// 409 means that another request with this key is in progress: an attempt whose connection was
// lost. It also concerns only the one job.
//
// A 5xx may or may not have moved money (https://docs.stripe.com/error-low-level). Repeating the
// call with the same key is safe: Stripe executes it if it had not begun, and otherwise returns
// the stored answer, which for a 500 is usually the same 500. A 5xx is final if it has
// Stripe-Should-Retry: false or is itself a replay: the answer to this key will not change, and
// another key could charge twice.
func (s *Sender) outcome(seen *shared.Call, err error, call clients.Call) error {
	status := seen.Status()
	answer, spoke := errors.AsType[*stripe.Error](err)
	after := clients.ParseRetryAfter(seen.Header("Retry-After"), shared.Clock(seen.Header("Date")))
	if !spoke {
		text := fmt.Errorf("stripe answered %d, but the body is incomplete or not from Stripe%s", status, s.request(seen))
		switch {
		case status == http.StatusTooManyRequests:
			return clients.AccountThrottled(after, text)
		case status/100 == 3 || status/100 == 4:
			return clients.Retryable(text)
		}
		return clients.Unknown(text)
	}
	reason := s.reason(answer, seen)
	again := seen.Header("Stripe-Should-Retry")
	switch {
	case status == http.StatusUnauthorized, answer.Code == stripe.ErrorCodeAPIKeyExpired, answer.Code == stripe.ErrorCodePlatformAPIKeyExpired:
		return clients.KeyRefused(after, reason.says("the account key was refused; its jobs wait for a valid one"))
	case status == http.StatusForbidden:
		return clients.PostponeUntil(s.now().Add(max(after, clients.AccessPause)), reason.says("the account key has no permission for this; the job waits for it"))
	case status == http.StatusTooManyRequests, answer.Code == stripe.ErrorCodeLockTimeout:
		limit := s.clean(seen.Header("Stripe-Rate-Limited-Reason"))
		if limit != "" {
			reason.text += ", for " + limit
		}
		if answer.Code == stripe.ErrorCodeLockTimeout || limit == "resource-specific" {
			return s.busy(after, reason)
		}
		return clients.AccountThrottled(after, reason)
	case status == http.StatusConflict, answer.Code == stripe.ErrorCodeIdempotencyKeyInUse:
		return s.busy(after, reason)
	case status/100 == 5:
		if again == "false" || again != "true" && seen.Header("Idempotent-Replayed") == "true" {
			return clients.Undecided(reason.says("Stripe will return the same answer for this key. " + find(call)))
		}
		return clients.Unknown(reason)
	case answer.Type == stripe.ErrorTypeIdempotency:
		return call.OtherParameters(reason, find(call))
	case again == "true":
		return clients.Retryable(reason)
	}
	return clients.Permanent(reason)
}

// busy parks a job whose object or key is locked by another request.
func (s *Sender) busy(after time.Duration, reason error) error {
	return clients.PostponeUntil(s.now().Add(max(after, objectPause)), reason)
}

// lost returns what a call without an answer means: see [shared.Lost].
func (s *Sender) lost(ctx, limited context.Context, sent bool, err error) error {
	if err = shared.Cause(limited, err); err == nil {
		err = errors.New("no answer")
	}
	return shared.Lost(ctx, "Stripe", sent, err, s.clean(err.Error()))
}

// finished checks the status of the result: a confirmed payment that waits for its customer, or
// a failed refund, is not a success, even if the answer was 200.
func (s *Sender) finished(action string, result Result) (Result, error) {
	bad := false
	switch action {
	case Confirm, CreateAndConfirm:
		switch stripe.PaymentIntentStatus(result.Status) {
		case stripe.PaymentIntentStatusSucceeded, stripe.PaymentIntentStatusProcessing, stripe.PaymentIntentStatusRequiresCapture:
		default:
			bad = true
		}
	case Capture:
		bad = result.Status == string(stripe.PaymentIntentStatusCanceled)
	case Refund:
		bad = result.Status == string(stripe.RefundStatusFailed) || result.Status == string(stripe.RefundStatusCanceled)
	}
	if !bad {
		return result, nil
	}
	text := fmt.Sprintf("%s: %s is %s", action, s.clean(result.ID), s.clean(result.Status))
	if result.Status == string(stripe.PaymentIntentStatusRequiresAction) {
		text += ": the customer must act (next_action); set off_session to decline such payments instead"
	}
	return Result{}, clients.Permanent(errors.New(text))
}

const (
	// objectPause is how long a job waits for a lock of another request. Stripe also waits for
	// the lock before it answers.
	objectPause = 2 * time.Second

	// maxReason is the max number of bytes of an answer's text in an error.
	maxReason = 200
)

// find returns advice on where to look.
func find(call clients.Call) string {
	return fmt.Sprintf("Look in Stripe for metadata %s = %s, or for the request with idempotency key %s",
		metadataJob, clients.Printable(clients.EscapeHeader(call.Job), maxReason), clients.Printable(idempotencyKey(call), maxKey))
}

// reason is an answer of Stripe in one line. The library's error prints the whole answer,
// including client secrets.
type reason struct {
	text  string
	error *stripe.Error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.error }

func (r *reason) says(text string) *reason {
	r.text += "; " + text
	return r
}

func (s *Sender) reason(answer *stripe.Error, seen *shared.Call) *reason {
	var b strings.Builder
	fmt.Fprintf(&b, "stripe answered %d", seen.Status())
	for _, word := range []string{string(answer.Type), string(answer.Code), string(answer.DeclineCode)} {
		if word != "" {
			b.WriteString(" " + s.clean(word))
		}
	}
	if answer.Param != "" {
		b.WriteString(", " + s.clean(answer.Param))
	}
	if answer.Msg != "" {
		b.WriteString(": " + s.clean(answer.Msg))
	}
	if answer.PaymentIntent != nil {
		b.WriteString(", " + s.clean(answer.PaymentIntent.ID))
	}
	b.WriteString(s.request(seen))
	// The fields of the library's error that callers may use, without its objects.
	return &reason{b.String(), &stripe.Error{
		Type: stripe.ErrorType(s.clean(string(answer.Type))), Code: stripe.ErrorCode(s.clean(string(answer.Code))),
		DeclineCode: stripe.DeclineCode(s.clean(string(answer.DeclineCode))), Param: s.clean(answer.Param),
		Msg: s.clean(answer.Msg), ChargeID: s.clean(answer.ChargeID),
		HTTPStatusCode: seen.Status(), RequestID: s.clean(seen.Header("Request-Id")),
	}}
}

func (s *Sender) request(seen *shared.Call) string {
	if id := seen.Header("Request-Id"); id != "" {
		return " (" + s.clean(id) + ")"
	}
	return ""
}

// clean makes a foreign text fit for an error. Stripe masks keys that it repeats, but proxies
// may not.
func (s *Sender) clean(text string) string {
	return clients.Printable(strings.ReplaceAll(text, s.config.Key, "…"), maxReason)
}
