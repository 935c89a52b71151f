package ai

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/httpcall"
)

// meters are the limits of an account from response headers, by name: "requests", "tokens",
// "input-tokens".
type meters map[string]meter

type meter struct {
	remaining *int64        // nil: not reported
	limit     int64         // the maximum; 0: not reported
	reset     time.Duration // until it is full again; 0: not reported
	minutely  bool          // the limit is for a minute, as the provider documents
}

// window returns in which time a meter flows back from empty to full; 0: it is not known. The headers do not say it:
// what was used comes back evenly until the reset. All known limits are for a minute, an hour or a day.
func (m meter) window() time.Duration {
	if m.minutely {
		return time.Minute
	}
	if m.remaining == nil || m.reset == 0 || *m.remaining >= m.limit {
		return 0
	}
	found := time.Duration(float64(m.reset) * float64(m.limit) / float64(m.limit-*m.remaining))
	for _, window := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		if found > window*4/5 && found < window*5/4 {
			return window
		}
	}
	return 0
}

// metersOf reads the headers x-ratelimit-limit-NAME, -remaining-NAME and -reset-NAME
// of OpenAI, whose resets are durations, and anthropic-ratelimit-NAME-limit,
// -remaining and -reset, whose resets are times. Invalid values are ignored.
//
// Sources: the rate limit guides of both, and ratelimit.go of go-openai.
func metersOf(header http.Header, now time.Time) meters {
	all := meters{}
	for key, values := range header {
		if len(values) == 0 {
			continue
		}
		key, value := strings.ToLower(key), strings.TrimSpace(values[0])
		name, what, minutely := "", "", false
		if rest, ok := strings.CutPrefix(key, "x-ratelimit-"); ok {
			what, name, _ = strings.Cut(rest, "-")
		} else if rest, ok := strings.CutPrefix(key, "anthropic-ratelimit-"); ok {
			if at := strings.LastIndexByte(rest, '-'); at > 0 {
				name, what, minutely = rest[:at], rest[at+1:], true
			}
		}
		if name == "" {
			continue
		}
		m := all[name]
		m.minutely = minutely
		switch what {
		case "remaining":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				m.remaining = new(max(n, 0))
			}
		case "limit":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				m.limit = max(n, 0)
			}
		case "reset":
			m.reset, _ = httpcall.ResetAfter(value, now)
		default:
			continue
		}
		all[name] = m
	}
	return all
}

func (m meter) empty() bool { return m.remaining != nil && *m.remaining == 0 }

// empty returns how long until all empty meters are full again.
func (all meters) empty() (longest time.Duration) {
	for _, m := range all {
		if m.empty() {
			longest = max(longest, m.reset)
		}
	}
	return longest
}

// room returns how long until all empty meters have room for another call with that many tokens.
// Both providers document that meters refill evenly. If a limit is not reported, room returns
// how long until its meter is full.
func (all meters) room(tokens int64) (longest time.Duration) {
	for name, m := range all {
		if !m.empty() {
			continue
		}
		wait := m.reset
		if m.limit > 0 {
			need := int64(1)
			if strings.HasSuffix(name, "tokens") {
				need = max(tokens, 1)
			}
			wait = time.Duration(float64(wait) * min(1, float64(need)/float64(m.limit)))
		}
		longest = max(longest, wait)
	}
	return longest
}

// reset returns the reset of the meter that an error names: OpenAI's error type is a meter.
func (all meters) reset(name string) time.Duration { return all[name].reset }

// milliseconds parses Retry-After-Ms, which Azure sends in addition to Retry-After.
func milliseconds(value string) time.Duration {
	ms, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(ms > 0) {
		return 0
	}
	return time.Duration(math.Ceil(min(ms*1e6, float64(clients.MaxRetryAfter))))
}

// waitWords matches "Please try again in 6m0s." (OpenAI) and "Please retry after 9
// seconds." (Azure).
var waitWords = regexp.MustCompile(`(?i)\b(?:try again|retry) (?:in|after) (\d[\d.hmsuµn]*)(?: (second|minute|hour)s?\b)?`)

// waitIn returns the wait that a message asks for; 0 if none.
func waitIn(message string) time.Duration {
	m := waitWords.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	number, unit := strings.TrimRight(m[1], "."), strings.ToLower(m[2])
	if unit != "" {
		number += unit[:1] // "9 seconds" is 9s
	}
	wait, _ := httpcall.ResetAfter(number, time.Time{})
	return wait
}
