package httplimit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const (
	// maxPause bounds what a Transport believes of a provider's answer.
	maxPause = 24 * time.Hour

	// silentPause follows a 429 that does not say how long.
	silentPause = time.Second
)

// pauseFor is how long the sender of an answer wants no further calls, and why;
// 0: it did not say so.
func pauseFor(resp *http.Response) (time.Duration, string) {
	now := time.Now()
	// The sender's moments are held against its own clock, not against ours.
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		now = date
	}
	tooMany := resp.StatusCode == http.StatusTooManyRequests
	if tooMany || resp.StatusCode == http.StatusServiceUnavailable {
		if length, ok := retryAfter(resp.Header.Get("Retry-After"), now); ok {
			return length, fmt.Sprintf("status %d, Retry-After %v", resp.StatusCode, length)
		}
	}
	length, header := exhausted(resp.Header, now)
	if length > 0 {
		return length, fmt.Sprintf("status %d, %s: none left for %v", resp.StatusCode, header, length)
	}
	if tooMany && header == "" {
		return silentPause, "status 429, which says no more"
	}
	return 0, ""
}

// retryAfter reads seconds or a date; false: it is neither. Fractions of a
// second are no standard, but sent.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if n, ok := number(value); ok {
		return inSeconds(n), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return believable(date.Sub(now)), true
	}
	return 0, false
}

// counters are headers that count down, and those that say until when.
var counters = [][2]string{
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"Ratelimit-Remaining", "Ratelimit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// exhausted is the longest time for which a header says that nothing is left,
// and that header.
func exhausted(h http.Header, now time.Time) (longest time.Duration, header string) {
	if age, ok := number(h.Get("Age")); ok && age > 0 {
		return 0, "" // out of a cache: counted at another time, for somebody else
	}
	found := func(name string, length time.Duration) {
		if header == "" || length > longest {
			longest, header = length, name
		}
	}
	for _, counter := range counters {
		remaining, ok := number(h.Get(counter[0]))
		if !ok || remaining != 0 {
			continue
		}
		if length, ok := resetAfter(h.Get(counter[1]), now); ok {
			found(counter[0], length)
		}
	}
	for _, item := range parseRateLimit(h["Ratelimit"]) {
		if item.remaining == 0 && item.window >= 0 {
			found("RateLimit", inSeconds(float64(item.window)))
		}
	}
	return longest, header
}

// resetAfter reads the forms in which a reset is told: seconds from now, seconds
// or milliseconds since 1970, a duration such as 6m0s, or a date.
func resetAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if n, ok := number(value); ok {
		switch {
		case n >= 1e11:
			n /= 1000
			fallthrough
		case n >= 1e9: // as seconds from now these would be decades
			n -= float64(now.UnixMilli()) / 1000
		}
		return inSeconds(n), true
	}
	if length, err := time.ParseDuration(value); err == nil {
		return believable(length), true
	}
	if date, err := time.Parse(time.RFC3339, value); err == nil {
		return believable(date.Sub(now)), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return believable(date.Sub(now)), true
	}
	return 0, false
}

// number reads digits with at most one dot between them, however many.
func number(text string) (float64, bool) {
	whole, fraction, dotted := strings.Cut(text, ".")
	if !digits(whole) || dotted && !digits(fraction) {
		return 0, false
	}
	n, _ := strconv.ParseFloat(text, 64) // its only error is that n is infinite, which is right
	return n, true
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func inSeconds(n float64) time.Duration {
	return believable(time.Duration(min(n, maxPause.Seconds()) * float64(time.Second)))
}

func believable(d time.Duration) time.Duration { return min(max(d, 0), maxPause) }

// serviceLimit is what a RateLimit header says of one limit.
type serviceLimit struct {
	remaining int64
	window    int64 // seconds; -1: not said
}

// parseRateLimit reads a RateLimit header: a list of names with parameters r and
// t; or limit, remaining and reset, as drafts before had it. One that is
// malformed anywhere is no header at all, as the draft demands.
func parseRateLimit(lines []string) (limits []serviceLimit) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		old, err := httpsfv.UnmarshalDictionary(lines)
		if err != nil {
			return nil
		}
		item := httpsfv.NewItem("")
		for parameter, name := range map[string]string{"r": "remaining", "t": "reset"} {
			if member, _ := old.Get(name); member != nil {
				if value, ok := member.(httpsfv.Item); ok {
					item.Params.Add(parameter, value.Value)
				}
			}
		}
		list = httpsfv.List{item}
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			if remaining := amount(item, "r"); remaining >= 0 {
				limits = append(limits, serviceLimit{remaining, amount(item, "t")})
			}
		}
	}
	return limits
}

// amount is a parameter that is a whole number, or -1.
func amount(item httpsfv.Item, parameter string) int64 {
	value, _ := item.Params.Get(parameter)
	if n, ok := value.(int64); ok && n >= 0 {
		return n
	}
	return -1
}
