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

// outcome is what an answer of Stripe's other than success means:
//
//	401, an expired account key             throttled, the account, for 1 min
//	403                                     parked for 5 min
//	429 lock_timeout, resource-specific     parked for 2 s
//	other 429, also without a body          throttled, the account
//	409, idempotency_key_in_use             parked for 2 s
//	402                                     permanent, with the decline's codes
//	400 idempotency_error                   permanent: the key is another call's
//	other 4xx                               permanent
//	4xx with Stripe-Should-Retry: true      retryable
//	4xx that cannot be read, 3xx            retryable
//	5xx that Stripe calls final             permanent and unknown
//	other 5xx                               unknown
//	2xx that cannot be read                 unknown
//
// A wrong account key is the operator's to mend, and says nothing about the
// payments: it must not archive all that come by while it is wrong. So the whole
// queue pauses, one call a minute looks whether it was mended, and no attempt is
// spent. A restricted key may allow charges and no refunds, so 403 parks the one
// job. Neither has an end but the job's deadline.
//
// Stripe's limits are the account's, of which its reasons name different parts;
// only resource-specific and the locks are about one object, so they hold the one
// job and say nothing about the tenant's others
// (https://docs.stripe.com/rate-limits). It sends no Retry-After; one is honoured
// if it comes. Stripe-Should-Retry: false with a 429 is no more than this: not at
// once.
//
// 409 is another request with this key that is still under way: an attempt whose
// connection was lost. That, too, concerns the one job.
//
// A 5xx may have moved money or not; Stripe says to take it for neither
// (https://docs.stripe.com/error-low-level). The same key asks again without
// harm: Stripe does what it had not begun, and otherwise gives the answer that it
// kept, which for a 500 is usually the same 500. Final is a 5xx with
// Stripe-Should-Retry: false, or one that was a replay already: this key gives no
// other answer any more, and another key could be another charge.
func (s *Sender) outcome(seen *progress, err error, call clients.Call) error {
	status := seen.status()
	answer, spoke := errors.AsType[*stripe.Error](err)
	after := clients.ParseRetryAfter(seen.header("Retry-After"), clock(seen))
	if !spoke {
		text := fmt.Errorf("stripe answered %d, and the rest was cut off or is not Stripe's%s", status, s.request(seen))
		switch {
		case status == http.StatusTooManyRequests:
			return clients.AccountThrottled(after, text)
		case status/100 == 3 || status/100 == 4:
			return clients.Retryable(text)
		}
		return clients.Unknown(text)
	}
	reason := s.reason(answer, seen)
	again := seen.header("Stripe-Should-Retry")
	switch {
	case status == http.StatusUnauthorized, answer.Code == stripe.ErrorCodeAPIKeyExpired, answer.Code == stripe.ErrorCodePlatformAPIKeyExpired:
		return clients.AccountThrottled(max(after, clients.KeyPause), reason.says("the account key is refused; its jobs wait for another"))
	case status == http.StatusForbidden:
		return clients.ParkUntil(s.now().Add(max(after, clients.AccessPause)), reason.says("the account key may not do that; the job waits until it may"))
	case status == http.StatusTooManyRequests, answer.Code == stripe.ErrorCodeLockTimeout:
		limit := s.clean(seen.header("Stripe-Rate-Limited-Reason"))
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
		if again == "false" || again != "true" && seen.header("Idempotent-Replayed") == "true" {
			return clients.Undecided(reason.says("Stripe gives no other answer to this key. " + find(call)))
		}
		return clients.Unknown(reason)
	case answer.Type == stripe.ErrorTypeIdempotency:
		// Loud: either two jobs share a key, or a payload changed under its job.
		return clients.Permanent(reason.says("THE IDEMPOTENCY KEY BELONGS TO ANOTHER CALL, nothing was done for this one; the key is " + clients.Printable(idempotencyKey(call), maxKey)))
	case again == "true":
		return clients.Retryable(reason)
	}
	return clients.Permanent(reason)
}

// busy parks a job whose object, or whose key, another request holds.
func (s *Sender) busy(after time.Duration, reason error) error {
	return clients.ParkUntil(s.now().Add(max(after, objectPause)), reason)
}

// lost is what a call without an answer means: see [shared.Lost].
func (s *Sender) lost(ctx, limited context.Context, sent bool, err error) error {
	if err = shared.Cause(limited, err); err == nil {
		err = errors.New("no answer")
	}
	return shared.Lost(ctx, "Stripe", sent, s.clean(err.Error()))
}

// finished judges what Stripe did: a confirmed payment that waits for its
// customer, or a refund that failed, is no success though the answer was 200.
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
		text += ": its customer has to act (next_action); off_session declines such payments instead"
	}
	return Result{}, clients.Permanent(errors.New(text))
}

const (
	// objectPause is how long a job waits for what another request holds. Stripe
	// has waited for it, too, before it answered.
	objectPause = 2 * time.Second

	// maxReason bounds what an answer can make an error say, in bytes.
	maxReason = 200
)

// find tells the person where to look.
func find(call clients.Call) string {
	return fmt.Sprintf("Look in Stripe for metadata %s = %s, or for the request with idempotency key %s",
		metadataJob, clients.Printable(clients.EscapeHeader(call.Job), maxReason), clients.Printable(idempotencyKey(call), maxKey))
}

// reason is an answer of Stripe's in one line. The library's error prints the
// whole answer, with the client secrets in it.
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

func (s *Sender) reason(answer *stripe.Error, seen *progress) *reason {
	var b strings.Builder
	fmt.Fprintf(&b, "stripe answered %d", seen.status())
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
	// What a caller may ask the library's error for, without the objects in it.
	return &reason{b.String(), &stripe.Error{
		Type: stripe.ErrorType(s.clean(string(answer.Type))), Code: stripe.ErrorCode(s.clean(string(answer.Code))),
		DeclineCode: stripe.DeclineCode(s.clean(string(answer.DeclineCode))), Param: s.clean(answer.Param),
		Msg: s.clean(answer.Msg), ChargeID: s.clean(answer.ChargeID),
		HTTPStatusCode: seen.status(), RequestID: s.clean(seen.header("Request-Id")),
	}}
}

func (s *Sender) request(seen *progress) string {
	if id := seen.header("Request-Id"); id != "" {
		return " (" + s.clean(id) + ")"
	}
	return ""
}

// clean makes a text of others fit for an error. Stripe masks keys that it
// repeats; who else answers may not.
func (s *Sender) clean(text string) string {
	return clients.Printable(strings.ReplaceAll(text, s.config.Key, "…"), maxReason)
}

// clock is Stripe's own, against which its dates are to be held.
func clock(seen *progress) time.Time {
	if now, err := http.ParseTime(seen.header("Date")); err == nil {
		return now
	}
	return time.Now()
}
