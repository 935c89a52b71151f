package httpcall

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const (
	// MaxPause bounds the pause that a provider's answer can cause.
	MaxPause = 24 * time.Hour

	// silentPause is the pause after a 429 that does not say how long to wait.
	silentPause = time.Second
)

// PauseFor returns for how long the sender of an answer wants no further calls, and why;
// 0 if it does not ask for a pause.
func PauseFor(resp *http.Response) (time.Duration, string) {
	now := time.Now()
	// Moments in the answer are compared with the sender's clock, not with ours.
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		now = date
	}
	tooMany := resp.StatusCode == http.StatusTooManyRequests
	if tooMany || resp.StatusCode == http.StatusServiceUnavailable {
		if length, ok := RetryAfter(resp.Header.Get("Retry-After"), now); ok {
			return length, fmt.Sprintf("status %d, Retry-After %v", resp.StatusCode, length)
		}
	}
	length, header := exhausted(resp.Header, now)
	if length > 0 {
		return length, fmt.Sprintf("status %d, %s: none left for %v", resp.StatusCode, header, length)
	}
	if tooMany && header == "" {
		return silentPause, "status 429 without a time to wait"
	}
	return 0, ""
}

// RetryAfter reads a Retry-After header: seconds, or a date relative to now. The result is in
// the range 0 to [MaxPause]; false means that the value is missing or malformed. Fractions of
// a second are not in the standard, but providers send them.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if n, ok := number(value); ok {
		return inSeconds(n), true
	}
	if date, err := http.ParseTime(value); err == nil {
		return believable(date.Sub(now)), true
	}
	return 0, false
}

// counters are headers with what remains, and those that say when it is reset.
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

// exhausted returns the longest time for which a header says that nothing is left, and
// the name of that header.
func exhausted(h http.Header, now time.Time) (longest time.Duration, header string) {
	if age, ok := number(h.Get("Age")); ok && age > 0 {
		return 0, "" // from a cache: counted at another time, for another client
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
		if length, ok := ResetAfter(h.Get(counter[1]), now); ok {
			found(counter[0], length)
		}
	}
	for _, item := range ParseRateLimit(h["Ratelimit"]) {
		if item.Remaining == 0 && item.Window >= 0 {
			found("RateLimit", inSeconds(float64(item.Window)))
		}
	}
	return longest, header
}

// ResetAfter reads the forms that providers use for a reset: seconds from now, seconds or
// milliseconds since 1970, a duration such as 6m0s, or a date. The result is in the range 0 to
// [MaxPause]; false means that the value is missing or malformed.
func ResetAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if n, ok := number(value); ok {
		switch {
		case n >= 1e11:
			n /= 1000
			fallthrough
		case n >= 1e9: // seconds from now would be decades
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

// number reads any number of digits with at most one dot between them.
func number(text string) (float64, bool) {
	whole, fraction, dotted := strings.Cut(text, ".")
	if !digits(whole) || dotted && !digits(fraction) {
		return 0, false
	}
	n, _ := strconv.ParseFloat(text, 64) // the only possible error is that n is infinite, which is fine
	return n, true
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func inSeconds(n float64) time.Duration {
	return believable(time.Duration(math.Ceil(min(n, MaxPause.Seconds()) * float64(time.Second)))) // rounded up: never too early
}

func believable(d time.Duration) time.Duration { return min(max(d, 0), MaxPause) }

// ServiceLimit is what a RateLimit header says about one limit.
type ServiceLimit struct {
	Name      string // "": an earlier draft has none
	Remaining int64
	Window    int64 // seconds until it is reset; -1: unknown
}

// ParseRateLimit reads a RateLimit header: a list of names with parameters r and t or, as
// in earlier drafts, a dictionary of limit, remaining and reset. A malformed header is
// ignored as a whole, as the draft requires.
func ParseRateLimit(lines []string) (limits []ServiceLimit) {
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
				limits = append(limits, ServiceLimit{fmt.Sprint(item.Value), remaining, amount(item, "t")})
			}
		}
	}
	return limits
}

// amount returns a parameter that is a whole number, or -1.
func amount(item httpsfv.Item, parameter string) int64 {
	value, _ := item.Params.Get(parameter)
	if n, ok := value.(int64); ok && n >= 0 {
		return n
	}
	return -1
}
