package ai

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestQuotas: the latest answer counts, of each meter that it names, and a
// provider cannot fill a client's memory, nor put words into its quotas.
func TestQuotas(t *testing.T) {
	c := &Client{}
	note := func(pairs ...string) {
		header := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			header.Set(pairs[i], pairs[i+1])
		}
		c.note(t.Context(), header)
	}
	note("X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Remaining-Requests", "59", "X-Ratelimit-Reset-Requests", "1m0s", "X-Ratelimit-Limit-Tokens", "1000")
	note("X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "30s")
	note("X-Ratelimit-Reset-Images", "30s", "X-Ratelimit-Limit-<b>", "1", "X-Ratelimit-Limit-"+strings.Repeat("x", 41), "1")
	all := c.Quotas()
	if len(all) != 2 || all[0].Name != "requests" || all[1].Name != "tokens" {
		t.Fatalf("%+v", all)
	}
	if q := all[0]; q.Limit != 60 || q.Remaining == nil || *q.Remaining != 0 || time.Until(q.ResetsAt) > 30*time.Second || time.Until(q.ResetsAt) < 20*time.Second {
		t.Errorf("%+v", q)
	}
	if q := all[1]; q.Limit != 1000 || q.Remaining != nil || !q.ResetsAt.IsZero() {
		t.Errorf("%+v", q)
	}
	for i := range 100 {
		note(fmt.Sprint("X-Ratelimit-Limit-M", i), "1")
	}
	note("X-Ratelimit-Limit-Tokens", "2000")
	all = c.Quotas()
	if len(all) != maxQuotas || all[len(all)-1].Limit != 2000 {
		t.Errorf("%d quotas: %+v", len(all), all)
	}
}
