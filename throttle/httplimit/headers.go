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

// policyHeader returns the RateLimit-Policy of limits: what each holds when full, and in
// how many seconds that comes back.
func policyHeader(limits []throttle.Limit) string {
	list := make(httpsfv.List, len(limits))
	for i, limit := range limits {
		limit.Shards = 0 // clients know nothing of shards
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
		// The draft has only whole seconds, and no months.
		if window >= time.Second {
			item.Params.Add("w", sfInteger(seconds(window)))
		}
	}
	return field(list)
}

// field marshals a structured field. Our values can always be marshaled.
func field(value httpsfv.StructuredFieldValue) string {
	text, err := httpsfv.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("httplimit: a header of %v: %v", value, err))
	}
	return text
}

// scaled returns the time that permits take at a rate of count per period.
func scaled(period time.Duration, permits, count int64) time.Duration {
	return time.Duration(min(float64(period)*float64(permits)/float64(count), math.MaxInt64/2))
}

// WriteHeaders adds the headers that a [Middleware] adds for a decision. It is for
// handlers that ask a [throttle.Limiter] of one limit themselves.
func WriteHeaders(h http.Header, d throttle.Decision, limit throttle.Limit) {
	h.Add("RateLimit-Policy", policyHeader([]throttle.Limit{limit}))
	writeDecision(h, d, limit)
}

// writeDecision sets the headers that describe a decision.
func writeDecision(h http.Header, d throttle.Decision, limit throttle.Limit) {
	inFlight := limit.Algorithm == throttle.Concurrency
	item := httpsfv.NewItem(policyName(limit.Name))
	item.Params.Add("r", sfInteger(d.Remaining))
	quota := d.Quota
	if limit.Shards > 1 { // it is of the shard that answered
		limit.Shards = 0
		quota = limit.Quota()
	}
	h.Set("X-RateLimit-Limit", strconv.FormatInt(quota, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
	h.Del("X-RateLimit-Reset")
	if !inFlight {
		// Nobody can say when calls in flight will end.
		reset := seconds(d.ResetAfter)
		if !d.Allowed {
			// Both name the same moment: Retry-After must not be earlier.
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

// retrySeconds returns in how many seconds a refused request may be repeated.
func retrySeconds(d throttle.Decision, limit throttle.Limit) int64 {
	if limit.Algorithm == throttle.Concurrency {
		return 1 // RetryAfter is when permits lapse, but usually a call ends far earlier
	}
	return max(seconds(d.RetryAfter), 1)
}

// seconds rounds up, because a client that comes a little early is refused again.
func seconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Second - 1) / time.Second)
}

// policyName escapes a limit's name for headers: bytes other than printable ASCII, and
// '%', become %xx.
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

// sfInteger bounds n to the 15 digits that an integer has in RFC 9651.
func sfInteger(n int64) int64 { return min(max(n, 0), 999_999_999_999_999) }
