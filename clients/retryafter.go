package clients

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter bounds what [ParseRetryAfter] believes.
const MaxRetryAfter = 24 * time.Hour

// ParseRetryAfter reads a Retry-After header: seconds (some providers send
// fractions of them) or an HTTP date, which is held against now. The result is
// within 0 and [MaxRetryAfter]; it is 0 for a value that is absent,
// malformed or in the past.
//
// A provider's dates are best held against the provider's own clock: its Date
// header.
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

// parseSeconds reads digits with at most one dot between them. Numbers of any
// length are numbers: a provider that means "for ever" must not be taken for one
// that said nothing.
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
