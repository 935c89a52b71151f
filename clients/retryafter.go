package clients

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter is the longest time that [ParseRetryAfter] returns.
const MaxRetryAfter = 24 * time.Hour

// ParseRetryAfter parses a Retry-After header: seconds, which may have a fraction, or an HTTP
// date relative to now. The result is in the range 0 to [MaxRetryAfter], and 0 if the value is
// missing, malformed or in the past.
//
// For now, use the provider's own clock, its Date header, if there is one.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, ok := parseSeconds(value); ok {
		if seconds >= MaxRetryAfter.Seconds() {
			return MaxRetryAfter
		}
		return time.Duration(math.Ceil(seconds * float64(time.Second)))
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), MaxRetryAfter)
}

// parseSeconds parses a decimal number without sign or exponent. It accepts any length, so that
// a provider that means "forever" is not treated as one that said nothing.
func parseSeconds(value string) (seconds float64, ok bool) {
	whole, fraction, dotted := strings.Cut(value, ".")
	if whole == "" || dotted && fraction == "" {
		return 0, false
	}
	for _, c := range []byte(whole) {
		if c < '0' || c > '9' {
			return 0, false
		}
		seconds = seconds*10 + float64(c-'0')
	}
	unit := 1.0
	for _, c := range []byte(fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
		unit /= 10
		seconds += float64(c-'0') * unit
	}
	return seconds, true
}
