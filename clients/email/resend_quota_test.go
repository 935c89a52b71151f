package email

import (
	"net/http"
	"testing"
	"time"
)

// TestResendQuota: the rate limit is what the headers say, and nothing if they say what cannot be.
func TestResendQuota(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	of := func(limit, left, reset string) http.Header {
		h := http.Header{}
		h.Set("Ratelimit-Limit", limit)
		h.Set("Ratelimit-Remaining", left)
		h.Set("Ratelimit-Reset", reset)
		return h
	}
	for name, header := range map[string]http.Header{"nothing": {}, "zero": of("0", "0", "1"), "less": of("-2", "1", "1"), "no number": of("2;w=1", "1", "1"), "too many": of("99999999999999999999", "1", "1")} {
		if quota := resendQuota(header, now); quota != nil {
			t.Errorf("%s: %+v", name, quota)
		}
	}
	if q := resendQuota(of("5", "0", "3"), now); q == nil || q.Name != "requests" || q.Limit != 5 || q.Window != time.Second || q.Remaining == nil || *q.Remaining != 0 || !q.ResetsAt.Equal(now.Add(3*time.Second)) {
		t.Errorf("%+v", q)
	}
	if q := resendQuota(of("5", "-1", "soon"), now); q == nil || q.Remaining != nil || !q.ResetsAt.IsZero() {
		t.Errorf("%+v", q)
	}
}
