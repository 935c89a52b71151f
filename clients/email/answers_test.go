package email

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
)

const (
	sesSendEmail = "docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html"
	sesCommon    = "docs.aws.amazon.com/ses/latest/APIReference-V2/CommonErrors.html"
	sesQuotas    = "docs.aws.amazon.com/ses/latest/dg/manage-sending-quotas-errors.html"
	sesMessages  = "docs.aws.amazon.com/ses/latest/dg/troubleshoot-error-messages.html"
	sesCodes     = "docs.aws.amazon.com/ses/latest/DeveloperGuide/api-error-codes.html"
	sesRateBody  = "github.com/pm-pmaas/etailors_amazon_ses/issues/117"
	sesPausedSay = "github.com/GoodDollar/GoodServer/issues/419"
	resendErrors = "resend.com/docs/api-reference/errors"
	resendRates  = "resend.com/docs/api-reference/rate-limit"
	resendKeys   = "resend.com/docs/dashboard/emails/idempotency-keys"
	resendNode   = "github.com/resend/resend-node src/interfaces.ts"
	rfc5321      = "RFC 5321, 4.2.3"
	rfc3463      = "RFC 3463, 3"
	notDocs      = "not the provider's: a proxy, or a wrong address"
)

// answer is what a provider says over HTTP.
type answer struct {
	status  int
	kind    string // X-Amzn-ErrorType, or Resend's name
	message string
	headers map[string]string
	raw     string // in place of the provider's own body
}

func (a answer) serve(w http.ResponseWriter, resend bool) {
	for name, value := range a.headers {
		w.Header().Set(name, value)
	}
	var body any = map[string]string{"message": a.message}
	if resend {
		body = map[string]any{"statusCode": a.status, "name": a.kind, "message": a.message}
	} else if a.kind != "" {
		w.Header().Set("X-Amzn-ErrorType", a.kind)
	}
	if a.raw != "" {
		w.WriteHeader(a.status)
		io.WriteString(w, a.raw)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	json.NewEncoder(w).Encode(body)
}

// Every answer of every provider, through what a job goes through.
func TestAnswers(t *testing.T) {
	const account = "account throttled"
	tests := []struct {
		provider string
		answer   answer
		want     string
		wait     time.Duration
		source   string
	}{
		{"ses", answer{status: 200, raw: `{"MessageId":"0100"}`}, "ok", 0, sesSendEmail},
		{"ses", answer{status: 200, raw: `<html>`}, "unknown", 0, notDocs},
		{"ses", answer{status: 429, kind: "TooManyRequestsException", message: "Maximum sending rate exceeded."}, account, 0, sesRateBody},
		{"ses", answer{status: 429, kind: "TooManyRequestsException", message: "Too many requests have been made to the operation."}, account, 0, sesSendEmail},
		{"ses", answer{status: 400, kind: "ThrottlingException", message: "Rate exceeded"}, account, 0, sesCommon},
		{"ses", answer{status: 400, kind: "Throttling", message: "Maximum sending rate exceeded."}, account, 0, sesQuotas},
		{"ses", answer{status: 429, raw: "slow down"}, account, 0, notDocs},
		{"ses", answer{status: 429, kind: "TooManyRequestsException", message: "Daily message quota exceeded."}, "account exhausted", 0, sesQuotas},
		{"ses", answer{status: 400, kind: "ThrottlingException", message: "Daily message quota exceeded."}, "account exhausted", 0, sesQuotas},
		{"ses", answer{status: 400, kind: "LimitExceededException", message: "Daily message quota exceeded."}, "account exhausted", 0, sesQuotas},
		{"ses", answer{status: 400, kind: "LimitExceededException", message: "There are too many instances of the specified resource type."}, "retryable", 0, sesSendEmail},
		{"ses", answer{status: 400, kind: "SendingPausedException", message: "Sending paused for this account."}, "account exhausted", 0, sesSendEmail},
		{"ses", answer{status: 400, kind: "MessageRejected", message: "Sending paused for this account. For more information, please check the inbox of the email address associated with your AWS account."}, "account exhausted", 0, sesPausedSay},
		{"ses", answer{status: 400, kind: "AccountSuspendedException", message: "Account is suspended."}, "account exhausted", 0, sesSendEmail},
		{"ses", answer{status: 400, kind: "MessageRejected", message: "Email address is not verified. The following identities failed the check in region US-EAST-1: a@b.c"}, "permanent", 0, sesMessages},
		{"ses", answer{status: 400, kind: "MailFromDomainNotVerifiedException", message: "not verified"}, "permanent", 0, sesSendEmail},
		{"ses", answer{status: 400, kind: "BadRequestException", message: "Missing final '@domain'"}, "permanent", 0, sesSendEmail},
		{"ses", answer{status: 404, kind: "NotFoundException", message: "Configuration set <x> does not exist."}, "permanent", 0, sesSendEmail},
		{"ses", answer{status: 413, kind: "RequestEntityTooLargeException"}, "permanent", 0, sesCommon},
		{"ses", answer{status: 400, kind: "ValidationError", message: "x"}, "permanent", 0, sesCommon},
		{"ses", answer{status: 403, kind: "AccessDeniedException", message: "not authorized to perform: ses:SendEmail"}, "postponed", clients.AccessPause, sesCommon},
		{"ses", answer{status: 403, kind: "ExpiredTokenException", message: "x"}, "account exhausted", clients.KeyPause, sesCommon},
		{"ses", answer{status: 403, kind: "InvalidSignatureException:http://internal.amazon.com/coral/", message: "x"}, "account exhausted", clients.KeyPause, sesCommon},
		{"ses", answer{status: 403, kind: "UnrecognizedClientException", message: "The security token included in the request is invalid."}, "account exhausted", clients.KeyPause, sesCommon},
		{"ses", answer{status: 400, kind: "InvalidAction", message: "x"}, "retryable", 0, sesCommon},
		{"ses", answer{status: 408, kind: "RequestTimeoutException"}, "retryable", 0, sesCommon},
		{"ses", answer{status: 500, kind: "InternalFailure"}, "retryable", 0, sesCodes},
		{"ses", answer{status: 503, kind: "ServiceUnavailable"}, "retryable", 0, sesCodes},
		{"ses", answer{status: 502, raw: "<html>bad gateway"}, "unknown", 0, notDocs},
		{"ses", answer{status: 504, raw: "<html>timeout"}, "unknown", 0, notDocs},
		{"ses", answer{status: 404, raw: "<html>nothing here"}, "retryable", 0, notDocs},
		{"ses", answer{status: 302, raw: "x", headers: map[string]string{"Location": "http://127.0.0.1:1/"}}, "retryable", 0, notDocs},

		{"resend", answer{status: 200, raw: `{"id":"49a3999c"}`}, "ok", 0, "resend.com/docs/api-reference/emails/send-email"},
		{"resend", answer{status: 429, kind: "rate_limit_exceeded", message: "Too many requests.", headers: map[string]string{"retry-after": "1"}}, account, time.Second, resendRates},
		{"resend", answer{status: 429, kind: "rate_limit_exceeded", headers: map[string]string{"ratelimit-reset": "2"}}, account, 2 * time.Second, resendRates},
		{"resend", answer{status: 429, kind: "rate_limit_exceeded", headers: map[string]string{"date": "Wed, 02 Jan 2030 03:04:05 GMT", "retry-after": "Wed, 02 Jan 2030 03:05:35 GMT"}}, account, 90 * time.Second, resendRates},
		{"resend", answer{status: 429, kind: "rate_limit_exceeded"}, account, 0, resendErrors},
		{"resend", answer{status: 429, raw: "slow down", headers: map[string]string{"retry-after": "3"}}, account, 3 * time.Second, notDocs},
		{"resend", answer{status: 429, kind: "daily_quota_exceeded", message: "You have reached your daily email sending quota.", headers: map[string]string{"retry-after": "1"}}, "account exhausted", 0, resendErrors},
		{"resend", answer{status: 429, kind: "monthly_quota_exceeded"}, "account exhausted", 0, resendErrors},
		{"resend", answer{status: 400, kind: "validation_error", message: "x"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 400, kind: "invalid_idempotency_key"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 403, kind: "validation_error", message: "The domain.com domain is not verified."}, "permanent", 0, resendErrors},
		{"resend", answer{status: 422, kind: "missing_required_field"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 422, kind: "invalid_attachment"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 422, kind: "invalid_from_address"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 451, kind: "security_error"}, "permanent", 0, resendErrors},
		{"resend", answer{status: 401, kind: "missing_api_key"}, "account exhausted", clients.KeyPause, resendErrors},
		{"resend", answer{status: 401, kind: "restricted_api_key"}, "postponed", clients.AccessPause, resendErrors},
		{"resend", answer{status: 403, kind: "invalid_api_key"}, "account exhausted", clients.KeyPause, resendErrors},
		{"resend", answer{status: 403, kind: "suspended_api_key"}, "account exhausted", clients.KeyPause, resendNode},
		{"resend", answer{status: 404, kind: "not_found"}, "retryable", 0, resendErrors},
		{"resend", answer{status: 405, kind: "method_not_allowed"}, "retryable", 0, resendErrors},
		{"resend", answer{status: 409, kind: "concurrent_idempotent_requests"}, "retryable", 0, resendKeys},
		{"resend", answer{status: 409, kind: "invalid_idempotent_request"}, "undecided", 0, resendKeys},
		{"resend", answer{status: 500, kind: "application_error"}, "retryable", 0, resendErrors},
		{"resend", answer{status: 500, kind: "internal_server_error"}, "retryable", 0, resendErrors},
		{"resend", answer{status: 503, raw: "<html>"}, "retryable", 0, notDocs},
		{"resend", answer{status: 403, raw: "<html>blocked"}, "retryable", 0, notDocs},
		{"resend", answer{status: 307, raw: "x", headers: map[string]string{"Location": "http://127.0.0.1:1/"}}, "retryable", 0, notDocs},

		{"smtp", answer{status: 421, message: "4.7.0 too many messages"}, "throttled", 0, rfc3463},
		{"smtp", answer{status: 421, message: "4.3.2 shutting down"}, "retryable", 0, rfc3463},
		{"smtp", answer{status: 450, message: "4.7.1 slow down, try again in 30 seconds"}, "throttled", 30 * time.Second, rfc3463},
		{"smtp", answer{status: 450, message: "mailbox unavailable"}, "retryable", 0, rfc5321},
		{"smtp", answer{status: 451, message: "4.3.0 local error in processing"}, "retryable", 0, rfc5321},
		{"smtp", answer{status: 451, message: "4.7.500 access denied, please try again later"}, "throttled", 0, rfc3463},
		{"smtp", answer{status: 452, message: "4.3.1 insufficient system storage"}, "retryable", 0, rfc5321},
		{"smtp", answer{status: 452, message: "4.5.3 too many recipients"}, "retryable", 0, "RFC 5321, 4.5.3.1.10"},
		{"smtp", answer{status: 452, message: "4.7.0 too many emails per hour"}, "throttled", 0, rfc3463},
		{"smtp", answer{status: 454, message: "Throttling failure: Maximum sending rate exceeded."}, account, 0, sesQuotas},
		{"smtp", answer{status: 454, message: "Throttling failure: Daily message quota exceeded."}, "account exhausted", 0, sesQuotas},
		{"smtp", answer{status: 550, message: "5.1.1 no such user"}, "permanent", 0, rfc5321},
		{"smtp", answer{status: 552, message: "5.3.4 message too big"}, "permanent", 0, rfc5321},
		{"smtp", answer{status: 554, message: "5.7.1 spam"}, "permanent", 0, rfc5321},
		{"smtp", answer{status: 554, message: "Message rejected: Email address is not verified."}, "permanent", 0, sesMessages},
	}
	sent := time.Now()
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %d %s %s", tt.provider, tt.answer.status, tt.answer.kind, tt.answer.message), func(t *testing.T) {
			if tt.source == "" {
				t.Error("where is that from?")
			}
			err := tt.answer.give(t, tt.provider)
			if got := outcomes.Of(err); got != tt.want {
				t.Errorf("%s; want %s: %v", got, tt.want, err)
			}
			if postponed, ok := errors.AsType[*clients.PostponedError](err); ok {
				if wait := postponed.PostponeUntil().Sub(sent); wait < tt.wait || wait > tt.wait+time.Minute {
					t.Errorf("postponed for %v; want %v", wait, tt.wait)
				}
			}
			if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok && exhausted.After != tt.wait {
				t.Errorf("for %v; want %v", exhausted.After, tt.wait)
			}
			if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.RetryAfter() != tt.wait {
				t.Errorf("after %v; want %v", throttled.RetryAfter(), tt.wait)
			}
			if err == nil {
				return
			}
			// The reason is kept, with the words that a person would look for.
			text := err.Error()
			if !strings.Contains(text, fmt.Sprint(tt.answer.status)) || strings.ContainsAny(text, "\r\n") || len(text) > 500 {
				t.Errorf("%q", text)
			}
			if tt.want == "permanent" && !strings.Contains(text, tt.answer.message) {
				t.Errorf("%q has lost %q", text, tt.answer.message)
			}
		})
	}
}

// give sends a message to a provider that answers so.
func (a answer) give(t *testing.T, provider string) error {
	if provider == "smtp" {
		return outcome("mx.example", &stepError{stepAnswer, &textproto.Error{Code: a.status, Msg: a.message}})
	}
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		io.Copy(io.Discard, r.Body)
		a.serve(w, provider == "resend")
	}))
	defer server.Close()
	defer func() {
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls: the queue alone tries again", n)
		}
	}()
	if provider == "resend" {
		s, err := NewResend(ResendConfig{URL: server.URL, APIKey: "re_123"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Send(t.Context(), call, plain())
	}
	s, err := NewSES(SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Send(t.Context(), call, plain())
}

// Before a sender was named, a server means all of them.
func TestThrottledAtTheGreeting(t *testing.T) {
	err := outcome("mx.example", &stepError{stepConnect, &textproto.Error{Code: 421, Msg: "4.7.0 too many connections"}})
	if got := outcomes.Of(err); got != "account throttled" {
		t.Errorf("%s: %v", got, err)
	}
}
