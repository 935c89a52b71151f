package email

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
)

// problem is a refusal of Resend. Name is "" if the answer is not in Resend's format.
type problem struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

func resendProblem(body []byte, apiKey string) problem {
	var p problem
	if json.Unmarshal(body, &p) != nil {
		return problem{}
	}
	p.Name = clients.Printable(without(p.Name, apiKey), 60)
	p.Message = clients.Printable(without(p.Message, apiKey), maxReason)
	return p
}

// resendOutcome returns what an answer other than 2xx means, first by its name:
//
//	daily_quota_exceeded, monthly_quota_exceeded      the account is exhausted
//	rate_limit_exceeded, other 429                    throttled, the whole account
//	missing_, invalid_, suspended_api_key             the key is refused
//	restricted_api_key                                postponed for 5 min
//	not_found, method_not_allowed                     retryable
//	concurrent_idempotent_requests                    retryable
//	invalid_idempotent_request                        permanent; if an earlier call of the job may
//	                                                  have used its key, also unknown
//	5xx                                               unavailable
//	408, 425                                          retryable
//	not in Resend's format                            retryable
//	validation_error, invalid_…, missing_…,
//	security_error, other 4xx                         permanent
//
// The limits are those of the team, for all of its keys. The operator must fix invalid keys, see
// [clients.KeyRefused], and wrong addresses of the API. After a 5xx the message may have been
// accepted: Resend says to try again, and the idempotency key makes that safe for 24 hours.
func resendOutcome(now time.Time, call clients.Call, advice string, response *http.Response, p problem) error {
	status := response.StatusCode
	text := fmt.Sprintf("Resend answered %d", status)
	if p.Name != "" {
		text += " " + p.Name
	}
	if p.Message != "" {
		text += ": " + p.Message
	}
	reason := errors.New(text)
	switch p.Name {
	case "daily_quota_exceeded", "monthly_quota_exceeded":
		return clients.AccountExhausted(0, reason) // Resend does not say when the quota is renewed
	case "missing_api_key", "invalid_api_key", "invalid_api_Key", "suspended_api_key":
		return clients.KeyRefused(0, fmt.Errorf("%w; its jobs wait for a valid key", reason))
	case "restricted_api_key":
		return clients.PostponeUntil(now.Add(clients.AccessPause), fmt.Errorf("%w; the job waits for the permission", reason))
	case "invalid_idempotent_request":
		return call.OtherParameters(reason, advice)
	case "not_found", "method_not_allowed", "concurrent_idempotent_requests":
		return clients.Retryable(reason)
	}
	switch {
	case status == http.StatusTooManyRequests, p.Name == "rate_limit_exceeded":
		return clients.AccountThrottled(resendWait(now, response.Header), reason)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return clients.Retryable(reason)
	case status/100 == 5:
		return clients.Unavailable(reason)
	case p.Name == "" || status/100 != 4:
		return clients.Retryable(fmt.Errorf("the %d is not an answer of Resend; check the URL", status))
	}
	return clients.Permanent(reason)
}

// resendWait returns how long to send less. Both headers concern the rate limit.
func resendWait(now time.Time, header http.Header) time.Duration {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date // dates are relative to Resend's clock
	}
	for _, name := range []string{"Retry-After", "Ratelimit-Reset"} {
		if value := strings.TrimSpace(header.Get(name)); value != "" {
			return clients.ParseRetryAfter(value, now)
		}
	}
	return 0
}
