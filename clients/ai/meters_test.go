package ai

import (
	"net/http"
	"testing"
	"time"
)

// TestRoom: an account that is used up has room again when it has filled up by
// what a call takes, and not only when it is full.
func TestRoom(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		header map[string]string
		want   time.Duration
	}{
		"nothing said": {nil, 0},
		"some left":    {map[string]string{"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "59s"}, 0},
		"no call left": {map[string]string{"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "1m0s"}, time.Second},
		"no token left": {map[string]string{
			"X-Ratelimit-Limit-Tokens": "60000", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1m0s",
			"X-Ratelimit-Limit-Requests": "60", "X-Ratelimit-Remaining-Requests": "0", "X-Ratelimit-Reset-Requests": "60ms",
		}, 2 * time.Second}, // of 2,000 tokens
		"a call of more than there can be": {map[string]string{"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1m0s"}, time.Minute},
		"no limit said":                    {map[string]string{"X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1m0s"}, time.Minute},
		"a limit that is none":             {map[string]string{"X-Ratelimit-Limit-Tokens": "-5", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1s"}, time.Second},
		"anthropic": {map[string]string{
			"Anthropic-Ratelimit-Output-Tokens-Limit": "8000", "Anthropic-Ratelimit-Output-Tokens-Remaining": "0",
			"Anthropic-Ratelimit-Output-Tokens-Reset": "2026-05-01T12:00:40Z",
		}, 10 * time.Second},
	} {
		header := http.Header{}
		for key, value := range test.header {
			header.Set(key, value)
		}
		if got := metersOf(header, now).room(2000); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}

// TestWindow: a limit's window is known from how what was used comes back, unless it may be another.
func TestWindow(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	of := func(limit, remaining, reset string) map[string]string {
		return map[string]string{"X-Ratelimit-Limit-Requests": limit, "X-Ratelimit-Remaining-Requests": remaining, "X-Ratelimit-Reset-Requests": reset}
	}
	for name, test := range map[string]struct {
		header map[string]string
		want   time.Duration
	}{
		"one of 60 a minute":     {of("60", "59", "1s"), time.Minute},
		"some of 5000 a minute":  {of("5000", "4000", "12.1s"), time.Minute},
		"one of 3600 an hour":    {of("3600", "3599", "1s"), time.Hour},
		"one of 10000 a day":     {of("10000", "9999", "8.64s"), 24 * time.Hour},
		"all are left":           {of("60", "60", "0s"), 0},
		"no reset":               {of("60", "59", ""), 0},
		"more than all are left": {of("60", "61", "1s"), 0},
		"of 90 minutes":          {of("60", "59", "90s"), 0},
		"anthropic": {map[string]string{
			"Anthropic-Ratelimit-Requests-Limit": "50", "Anthropic-Ratelimit-Requests-Remaining": "49", "Anthropic-Ratelimit-Requests-Reset": "2026-05-01T12:00:09Z",
		}, time.Minute},
	} {
		header := http.Header{}
		for key, value := range test.header {
			header.Set(key, value)
		}
		if got := metersOf(header, now)["requests"].window(); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}
