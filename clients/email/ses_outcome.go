package email

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/smithy-go"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

const sesName = "Amazon SES"

// judge returns the outcome of a call that returned err.
func (s *SES) judge(ctx, limited context.Context, seen *shared.Call, err error) error {
	if err == nil {
		return nil
	}
	if none, ok := errors.AsType[*credentialsError](err); ok {
		reason := clients.Printable(without(shared.Cause(limited, innermost(none)).Error(), s.known.secrets()...), maxReason)
		if ctx.Err() != nil || shared.Short(err) {
			return shared.Lost(ctx, sesName, false, err, reason)
		}
		return clients.KeyRefused(0, clients.NotCalled(fmt.Errorf("%s: %s", sesName, reason)))
	}
	status := seen.Status()
	if status == 0 {
		return lost(ctx, limited, sesName, seen.Sent(), seen.Tried(), err, without(innermost(err).Error(), s.known.secrets()...))
	}
	a := sesAnswer{status: status}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		a.code, a.message = e.ErrorCode(), without(e.ErrorMessage(), s.known.secrets()...)
		if a.message == e.ErrorMessage() {
			a.err = e // an error with a secret is dropped
		}
	}
	if status/100 == 2 {
		return clients.Unknown(fmt.Errorf("%s answered %d, but the answer cannot be read", sesName, status))
	}
	return sesOutcome(s.now(), a)
}

// innermost returns the cause without the SDK's text about the operation.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// sesAnswer is an answer other than 2xx.
type sesAnswer struct {
	status        int
	code, message string          // code is "" or UnknownError if the answer is not from SES
	err           smithy.APIError // may be nil
}

// sesOutcome returns what an answer of SES means:
//
//	daily quota                              the account is exhausted
//	TooManyRequests, Throttling, other 429   throttled, the whole account
//	SendingPaused, "sending paused"          the account is exhausted
//	AccountSuspended                         the account is exhausted
//	credentials                              the key is refused
//	AccessDenied, NotAuthorized              postponed for 5 min
//	UnknownOperation, InvalidAction          retryable
//	LimitExceeded, 408                       retryable
//	500, 503                                 unavailable
//	other 5xx                                unknown
//	not in SES's format                      retryable
//	MessageRejected, MailFromDomainNotVerified,
//	NotFound, BadRequest, other 4xx          permanent
//
// The daily quota covers the last 24 hours at any time. SES does not say when there will be room,
// or when a pause or a suspension ends, so one job tries from time to time. To avoid refusals, use
// the limits of [SES.Quota]. SES's documentation calls a suspension permanent, but it concerns the
// account and Amazon lifts it on appeal; archiving the whole backlog would lose it.
//
// The operator must fix credentials, see [clients.KeyRefused]. Permissions may concern one sender
// address, so a lack of them parks only the one job.
//
// SES says to repeat calls after its 5xx. 502 and 504 come from machines in front of SES, which
// do not know whether SES accepted the message.
func sesOutcome(now time.Time, a sesAnswer) error {
	code := strings.TrimSuffix(a.code, "Exception")
	words := strings.ToLower(a.message)
	text := clients.Printable(strings.TrimSpace(fmt.Sprintf("%s answered %d %s: %s", sesName, a.status, a.code, a.message)), 2*maxReason)
	reason := error(&sesError{text, a.err})
	limited := a.status == http.StatusTooManyRequests
	switch code {
	case "TooManyRequests", "Throttling", "ThrottledRequest", "RequestLimitExceeded", "SlowDown":
		limited = true
	}
	foreign := a.code == "" || a.code == "UnknownError"
	switch {
	case (limited || code == "LimitExceeded") && (strings.Contains(words, "daily") || strings.Contains(words, "24-hour")):
		return clients.AccountExhausted(0, reason)
	case limited:
		return clients.AccountThrottled(0, reason) // SES does not say how long
	case code == "SendingPaused", code == "AccountSendingPaused", code == "ConfigurationSetSendingPaused",
		code == "MessageRejected" && strings.Contains(words, "sending paused"):
		return clients.AccountExhausted(0, reason)
	case code == "AccountSuspended":
		return clients.AccountExhausted(0, reason)
	case sesOperators(code):
		// The message about an invalid signature repeats the signed text, which may include the
		// session token.
		text := fmt.Errorf("%s answered %d %s: check the credentials, their permissions, and this machine's clock", sesName, a.status, clients.Printable(a.code, 60))
		switch code {
		case "UnknownOperation", "InvalidAction": // of another service
			return clients.Retryable(text)
		case "AccessDenied", "NotAuthorized":
			return clients.PostponeUntil(now.Add(clients.AccessPause), text)
		}
		return clients.KeyRefused(0, text)
	case code == "LimitExceeded", a.status == http.StatusRequestTimeout:
		return clients.Retryable(reason)
	case a.status == http.StatusInternalServerError, a.status == http.StatusServiceUnavailable:
		return clients.Unavailable(reason)
	case a.status/100 == 5:
		return clients.Unknown(reason)
	case foreign:
		return clients.Retryable(fmt.Errorf("the %d is not an answer of %s; check the endpoint", a.status, sesName))
	}
	return clients.Permanent(reason)
}

// sesOperators reports whether an error concerns credentials or permissions, not the message:
// the common errors of all Amazon services.
func sesOperators(code string) bool {
	switch code {
	case "AccessDenied", "ExpiredToken", "IncompleteSignature", "InvalidSignature", "SignatureDoesNotMatch", "InvalidClientTokenId",
		"InvalidAccessKeyId", "InvalidToken", "UnrecognizedClient", "MissingAuthenticationToken", "NotAuthorized", "OptInRequired",
		"RequestExpired", "RequestTimeTooSkewed", "AuthFailure", "UnknownOperation", "InvalidAction":
		return true
	}
	return false
}

// sesError wraps the SDK's error, without the request and the response that the SDK keeps with
// it.
type sesError struct {
	text string
	err  smithy.APIError
}

func (e *sesError) Error() string { return e.text }
func (e *sesError) Unwrap() error { return e.err }
