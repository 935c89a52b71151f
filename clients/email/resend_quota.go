package email

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
)

// Quotas returns the account's rate limit, as last reported in an answer. It counts calls, not recipients.
func (s *Resend) Quotas() []clients.Quota {
	if quota := s.quota.Load(); quota != nil {
		return []clients.Quota{*quota}
	}
	return nil
}

// resendQuota reads the rate limit from an answer's headers; nil if they do not say any. Resend documents it as a number
// of requests in a second (https://resend.com/docs/api-reference/rate-limit).
func resendQuota(header http.Header, now time.Time) *clients.Quota {
	number := func(name string) (int64, bool) {
		n, err := strconv.ParseInt(strings.TrimSpace(header.Get(name)), 10, 64)
		return n, err == nil && n >= 0 && n <= maxResendQuota
	}
	limit, ok := number("Ratelimit-Limit")
	if !ok || limit == 0 {
		return nil
	}
	quota := &clients.Quota{Name: "requests", Limit: limit, Window: time.Second, At: now}
	if left, ok := number("Ratelimit-Remaining"); ok {
		quota.Remaining = &left
	}
	if reset, ok := number("Ratelimit-Reset"); ok && reset > 0 {
		quota.ResetsAt = now.Add(min(time.Duration(reset)*time.Second, clients.MaxRetryAfter))
	}
	return quota
}

const maxResendQuota = 1_000_000
