package ai

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// outcome returns what an answer other than 2xx means. Billing has precedence over the status:
// providers send it as 400, 402, 403 and 429.
//
//	no credit, spend or usage limit, quota,
//	account not active, 402                   the account is exhausted: until the time that is
//	                                          stated, or the next month
//	                                          (enforced_spend_limit_reached)
//	the same for an end user                  the tenant's account is exhausted
//	429, the request alone exceeds the limit  permanent
//	429, with a wait of more than an hour     postponed until then: this is not a rate
//	429, daily limit without a time           postponed until the next day, UTC
//	429, for an end user                      throttled
//	429, 503 slow_down                        the account is throttled
//	401                                       the key is refused
//	403                                       postponed for 5 min
//	403 for the content of a prompt           permanent
//	529, other 5xx                            unavailable
//	408, 409, 425                             retryable
//	404 with a page, as from a proxy during
//	a deployment                              retryable
//	400, 404, 413, 422, other 4xx,
//	context length or policy exceeded         permanent
//	3xx                                       permanent: redirects are not followed
//
// All tenants share one key, so a 429 concerns the account unless it names a user, as gateways
// do. A prompt that is refused for its content is permanent; a completion that was cut off for
// its content is a success, see [Result.StopReason].
//
// The operator must fix an invalid key, see [clients.KeyRefused]. A key can be valid for some
// models and not for others, so 403 parks only the one job.
func (c *Client) outcome(a answer) error {
	reason := c.reason("%s answered %s", c.host, a)
	switch {
	case a.billing():
		if endUser.MatchString(a.message) {
			return clients.Exhausted(a.paidAgain(), reason)
		}
		return clients.AccountExhausted(a.paidAgain(), reason)
	case a.status == http.StatusTooManyRequests && tooLarge.MatchString(a.message):
		return clients.Permanent(reason)
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable && a.code == "slow_down":
		wait := a.wait()
		switch {
		case wait > maxPause:
			return clients.PostponeUntil(time.Now().Add(wait), reason)
		case wait == 0 && daily.MatchString(a.message):
			return clients.PostponeUntil(midnight(time.Now()), reason)
		case endUser.MatchString(a.message):
			return clients.Throttled(wait, reason)
		}
		return clients.AccountThrottled(wait, reason)
	case a.status == http.StatusUnauthorized:
		return clients.KeyRefused(a.wait(), c.reason("%s refused the key, and its jobs wait for a valid one: it answered %s", c.host, a))
	case a.status == http.StatusForbidden && !content.MatchString(a.String()):
		return clients.PostponeUntil(time.Now().Add(clients.AccessPause), c.reason("the key has no permission for this, and the job waits for it: %s answered %s", c.host, a))
	case a.status == http.StatusRequestTimeout, a.status == http.StatusConflict, a.status == http.StatusTooEarly,
		a.status == http.StatusNotFound && a.isPage:
		return clients.Retryable(reason)
	case a.status/100 == 5:
		return clients.Unavailable(reason)
	case a.status/100 == 3:
		return clients.Permanent(c.reason("%s answered %s, and redirects are not followed", c.host, a))
	}
	return clients.Permanent(reason)
}

// lost returns what a call without a complete answer means:
//
//	sent, and no answer or a part of one     unknown
//	a completion of more than 8 MiB          permanent: another would be as long
//	worker shutdown before it was sent       ctx's error
//	the worker lacks files or ports          postponed for a second
//	no connection, no TLS, timeout before    unreachable
//
// A repeated completion costs twice but does no harm, so callers may choose to repeat unknown
// outcomes.
func (c *Client) lost(ctx, limited context.Context, x *exchange) (Result, error) {
	if errors.Is(x.err, errTooLarge) {
		return Result{}, clients.Permanent(c.reason("%s: %v", c.host, x.err))
	}
	sent, result := x.status != 0 || x.progress.Sent(), free()
	if sent {
		result = Result{}
	}
	err := shared.Cause(limited, x.err)
	return result, shared.Lost(ctx, c.host, sent, err, c.reason("%v", err).Error())
}

// unreadable returns what a 2xx without a completion means:
//
//	an error object, as from gateways        the outcome of the error's own status
//	not JSON, as from a proxy                retryable
//	other JSON                               permanent: it was charged, and another
//	                                         would be the same
func (c *Client) unreadable(x *exchange, err error) (Result, error) {
	a := answerOf(x)
	switch {
	case a.isError:
		if code, err := strconv.Atoi(a.code); err == nil && code >= 400 && code <= 599 {
			a.status = code
		} else {
			a.status = http.StatusBadGateway
		}
		return Result{}, c.outcome(a)
	case !isObject(x.answer):
		return Result{}, clients.Retryable(c.reason("%s answered %d, but not with JSON", c.host, x.status))
	}
	return Result{}, clients.Permanent(c.reason("%s answered %d, but not with a completion: %v", c.host, x.status, err))
}

const (
	// maxPause is the longest wait that is treated as that of a rate limit. Pausing a queue for a
	// day because of one job would be worse than an additional call.
	maxPause = time.Hour

	maxPark = 32 * 24 * time.Hour // a calendar month and a day
)

var (
	tooLarge = regexp.MustCompile(`(?i)request too large|must be reduced in order to run`)
	daily    = regexp.MustCompile(`(?i)\bper[ -]day\b|\bdaily\b|\((RPD|TPD)\)`)
	endUser  = regexp.MustCompile(`(?i)\bfor (end[_ -]?)?(user|customer|tenant)\b|\btype = (end_user|customer|user)\b`)
	content  = regexp.MustCompile(`(?i)flagged|moderation|content[ _-]?(policy|filter)|safety`)
	unpaid   = regexp.MustCompile(`(?i)credit balance is too low|exceeded your current quota|api usage limits|insufficient (balance|credits|funds)|billing hard limit`)
	regained = regexp.MustCompile(`(?i)regain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d) UTC)?`)

	// A partly masked invalid key in a provider's text: sk-proj-****abcd, or ****abcd.
	maskedKey = regexp.MustCompile(`\bsk-[\w*-]*[\w*]{4}|[\w-]*\*{3,}\w*`)
)

// billing reports whether money or a budget is used up, rather than a rate.
func (a answer) billing() bool {
	switch a.status {
	case http.StatusPaymentRequired:
		return true
	case http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests:
	default:
		return false
	}
	for _, word := range [...]string{a.code, a.kind} {
		switch word {
		case "insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached", "budget_exceeded", "usage_limit_reached",
			"credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded",
			enforcedSpendLimit:
			return true
		}
	}
	return unpaid.MatchString(a.message)
}

const enforcedSpendLimit = "enforced_spend_limit_reached"

// paidAgain returns how long the account cannot be used; 0: not stated.
func (a answer) paidAgain() time.Duration {
	now := time.Now()
	if m := regained.FindStringSubmatch(a.message); m != nil {
		if t, err := time.Parse("2006-01-02 15:04", m[1]+" "+cmp.Or(m[2], "00:00")); err == nil && t.After(now) {
			return min(t.Sub(now), maxPark)
		}
	}
	if a.code == enforcedSpendLimit {
		year, month, _ := now.UTC().Date()
		return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Sub(now)
	}
	return a.stated()
}

// midnight returns the next midnight, UTC.
func midnight(now time.Time) time.Time {
	year, month, day := now.UTC().Date()
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
}

// String returns the status and the provider's text.
func (a answer) String() string {
	text := strconv.Itoa(a.status)
	for _, word := range [...]string{a.kind, a.code} {
		if word != "" && !strings.Contains(text, word) {
			text += " " + word
		}
	}
	if a.message != "" {
		text += ": " + a.message
	}
	return text
}
