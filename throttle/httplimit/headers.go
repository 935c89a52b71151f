package httplimit

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/throttle"
)

// policyHeader is the RateLimit-Policy of limits: what each holds when full, and
// in how many seconds so much comes back.
func policyHeader(limits []throttle.Limit) string {
	list := make(httpsfv.List, len(limits))
	for i, limit := range limits {
		item := httpsfv.NewItem(policyName(limit.Name))
		list[i] = item
		if limit.Algorithm == throttle.Concurrency {
			item.Params.Add("q", limit.Concurrency)
			item.Params.Add("qu", "concurrent-requests")
			continue
		}
		quota, window := limit.Quota(), limit.Rate.Period
		if limit.Algorithm == throttle.TokenBucket || limit.Algorithm == throttle.LeakyBucket {
			window = scaled(window, quota, limit.Rate.Count)
		}
		item.Params.Add("q", sfInteger(quota))
		// The draft knows whole seconds alone, and no months.
		if window >= time.Second {
			item.Params.Add("w", sfInteger(seconds(window)))
		}
	}
	return field(list)
}

// field spells a structured field. Its values are ours, and can be spelled.
func field(value httpsfv.StructuredFieldValue) string {
	text, err := httpsfv.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("httplimit: a header of %v: %v", value, err))
	}
	return text
}

// scaled is the time that so many permits take at a rate.
func scaled(period time.Duration, permits, count int64) time.Duration {
	return time.Duration(min(float64(period)*float64(permits)/float64(count), math.MaxInt64/2))
}

// WriteHeaders tells what a limit decided as a [Middleware] does, for handlers
// that ask a [throttle.Limiter] of one limit themselves.
func WriteHeaders(h http.Header, d throttle.Decision, limit throttle.Limit) {
	h.Add("RateLimit-Policy", policyHeader([]throttle.Limit{limit}))
	writeDecision(h, d, limit)
}

// writeDecision sets the headers that say what a decision left.
func writeDecision(h http.Header, d throttle.Decision, limit throttle.Limit) {
	inFlight := limit.Algorithm == throttle.Concurrency
	item := httpsfv.NewItem(policyName(limit.Name))
	item.Params.Add("r", sfInteger(d.Remaining))
	h.Set("X-RateLimit-Limit", strconv.FormatInt(d.Quota, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Del("X-RateLimit-Reset")
	if !inFlight {
		// Nobody can say when calls in flight will end.
		reset := seconds(d.ResetAfter)
		if !d.Allowed {
			// Both speak of one moment: Retry-After must not be the earlier.
			reset = retrySeconds(d, limit)
		}
		item.Params.Add("t", sfInteger(reset))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
	}
	h.Add("RateLimit", field(item))
	if !d.Allowed {
		h.Set("Retry-After", strconv.FormatInt(retrySeconds(d, limit), 10))
	}
}

// retrySeconds is when a refused request may come again.
func retrySeconds(d throttle.Decision, limit throttle.Limit) int64 {
	if limit.Algorithm == throttle.Concurrency {
		return 1 // RetryAfter is when its holders must have died; mostly one is done far earlier
	}
	return max(seconds(d.RetryAfter), 1)
}

// seconds rounds up: a client that comes a little early is refused again.
func seconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Second - 1) / time.Second)
}

// policyName is a limit's name in the letters that a header can hold: bytes
// other than printable ASCII become %xx, and so does '%'.
func policyName(name string) string {
	odd := func(c byte) bool { return c < ' ' || c > '~' || c == '%' }
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; odd(c) {
			const hex = "0123456789abcdef"
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// sfInteger bounds n to the 15 digits of an integer in RFC 9651.
func sfInteger(n int64) int64 { return min(max(n, 0), 999_999_999_999_999) }
