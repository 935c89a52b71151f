package clients

import (
	"time"

	"github.com/headgate/headgate/internal/httpcall"
)

// MaxRetryAfter is the longest time that [ParseRetryAfter] returns.
const MaxRetryAfter = httpcall.MaxPause

// ParseRetryAfter parses a Retry-After header: seconds, which may have a fraction, or an HTTP
// date relative to now. The result is in the range 0 to [MaxRetryAfter], and 0 if the value is
// missing, malformed or in the past.
//
// For now, use the provider's own clock, its Date header, if there is one.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	after, _ := httpcall.RetryAfter(value, now)
	return after
}
