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
