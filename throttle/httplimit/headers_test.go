package httplimit

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/throttle"
)

func TestPolicyHeader(t *testing.T) {
	rate := func(count int64, period time.Duration) throttle.Rate {
		return throttle.Rate{Count: count, Period: period}
	}
	tests := []struct {
		limit throttle.Limit
		want  string
	}{
		{throttle.Limit{Name: "day", Algorithm: throttle.FixedWindow, Rate: rate(1000, 24*time.Hour)}, `"day";q=1000;w=86400`},
		{throttle.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: rate(5, time.Minute)}, `"log";q=5;w=60`},
		{throttle.Limit{Name: "counter", Algorithm: throttle.SlidingWindowCounter, Rate: rate(5, 90*time.Second)}, `"counter";q=5;w=90`},
		{throttle.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 9, Months: 1}, Location: time.UTC}, `"month";q=9`},
		{throttle.Limit{Name: "bucket", Algorithm: throttle.TokenBucket, Rate: rate(100, time.Minute), Burst: 20}, `"bucket";q=20;w=12`},
		{throttle.Limit{Name: "a third", Algorithm: throttle.TokenBucket, Rate: rate(3, time.Second), Burst: 10}, `"a third";q=10;w=4`},
		{throttle.Limit{Name: "single", Algorithm: throttle.TokenBucket, Rate: rate(1, time.Minute)}, `"single";q=1;w=60`},
		{throttle.Limit{Name: "fast", Algorithm: throttle.TokenBucket, Rate: rate(100, time.Second), Burst: 50}, `"fast";q=50`},
		{throttle.Limit{Name: "leaky", Algorithm: throttle.LeakyBucket, Rate: rate(1, time.Second), Capacity: 7}, `"leaky";q=7;w=7`},
		{throttle.Limit{Name: "flying", Algorithm: throttle.Concurrency, Concurrency: 8}, `"flying";q=8;qu="concurrent-requests"`},
		{throttle.Limit{Name: "shards", Algorithm: throttle.FixedWindow, Rate: rate(1000, time.Minute), Shards: 64}, `"shards";q=1000;w=60`},
		{throttle.Limit{Name: "shards of a bucket", Algorithm: throttle.TokenBucket, Rate: rate(100, time.Minute), Burst: 20, Shards: 4}, `"shards of a bucket";q=20;w=12`},
		{throttle.Limit{Name: `a"b\c` + "\nü%", Algorithm: throttle.FixedWindow, Rate: rate(1, time.Second)}, `"a\"b\\c%0a%c3%bc%25";q=1;w=1`},
		{throttle.Limit{Name: "huge", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1_000_000), Burst: 1 << 50}, `"huge";q=999999999999999;w=1125899907`},
	}
	var all []throttle.Limit
	var want []string
	for _, test := range tests {
		if err := test.limit.Validate(); err != nil {
			t.Errorf("%s: %v", test.limit.Name, err)
		}
		if got := policyHeader([]throttle.Limit{test.limit}); got != test.want {
			t.Errorf("policy %s; want %s", got, test.want)
		}
		all, want = append(all, test.limit), append(want, test.want)
	}
	if got := policyHeader(all); got != strings.Join(want, ", ") {
		t.Errorf("all: %s", got)
	}
}

func TestWriteDecision(t *testing.T) {
	bucket := throttle.Limit{Name: "b", Algorithm: throttle.TokenBucket}
	flying := throttle.Limit{Name: "f", Algorithm: throttle.Concurrency}
	type decision = throttle.Decision
	tests := map[string]struct {
		limit throttle.Limit
		d     decision
		want  map[string]string
	}{
		"allowed": {bucket, decision{Allowed: true, Quota: 20, Remaining: 5, ResetAfter: 1500 * time.Millisecond}, map[string]string{
			"RateLimit": `"b";r=5;t=2`, "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "2", "Retry-After": "",
		}},
		"allowed, full again": {bucket, decision{Allowed: true, Quota: 20, Remaining: 20}, map[string]string{
			"RateLimit": `"b";r=20;t=0`, "X-RateLimit-Reset": "0", "Retry-After": "",
		}},
		"refused": {bucket, decision{Quota: 20, Remaining: 1, RetryAfter: 2*time.Second + time.Microsecond, ResetAfter: time.Minute}, map[string]string{
			"RateLimit": `"b";r=1;t=3`, "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "3", "Retry-After": "3",
		}},
		"refused for a moment": {bucket, decision{Quota: 20, RetryAfter: time.Microsecond}, map[string]string{
			"RateLimit": `"b";r=0;t=1`, "X-RateLimit-Reset": "1", "Retry-After": "1",
		}},
		"refused, for no time at all": {bucket, decision{Quota: 20}, map[string]string{
			"RateLimit": `"b";r=0;t=1`, "Retry-After": "1",
		}},
		"by a shard": {throttle.Limit{Name: "b", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 20, Shards: 4}, decision{Allowed: true, Quota: 5, Remaining: 4}, map[string]string{
			"RateLimit": `"b";r=4;t=0`, "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "4",
		}},
		"in flight": {flying, decision{Allowed: true, Quota: 2, Remaining: 1, ResetAfter: time.Minute}, map[string]string{
			"RateLimit": `"f";r=1`, "X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "", "Retry-After": "",
		}},
		"too many in flight": {flying, decision{Quota: 2, RetryAfter: 30 * time.Second, ResetAfter: time.Minute}, map[string]string{
			"RateLimit": `"f";r=0`, "X-RateLimit-Reset": "", "Retry-After": "1",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			writeDecision(h, test.d, test.limit)
			for header, want := range test.want {
				if got := h.Get(header); got != want {
					t.Errorf("%s: %q; want %q", header, got, want)
				}
			}
		})
	}
	// Two middlewares, one in the other: the inner one's counts win, and both are listed.
	h := http.Header{}
	writeDecision(h, decision{Allowed: true, Quota: 20, Remaining: 5, ResetAfter: time.Second}, bucket)
	writeDecision(h, decision{Allowed: true, Quota: 2, Remaining: 1}, flying)
	if got := h.Values("RateLimit"); len(got) != 2 || h.Get("X-RateLimit-Limit") != "2" || h.Get("X-RateLimit-Reset") != "" {
		t.Errorf("nested: %v", h)
	}
}

// FuzzPolicyName holds that any name of a limit is a string of RFC 9651, and
// that no two are the same one.
func FuzzPolicyName(f *testing.F) {
	for _, name := range []string{"user", `"`, `\`, "%", "%41", "\x00", "é", "\xff", "a,b;c=d"} {
		f.Add(name)
	}
	valid := regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\"|\\\\)*"$`) // RFC 9651, section 3.3.3
	unescape := strings.NewReplacer(`\\`, `\`, `\"`, `"`)
	f.Fuzz(func(t *testing.T, name string) {
		item := field(httpsfv.NewItem(policyName(name)))
		if !valid.MatchString(item) {
			t.Fatalf("%q becomes %s", name, item)
		}
		back, err := url.PathUnescape(unescape.Replace(item[1 : len(item)-1]))
		if err != nil || back != name {
			t.Errorf("%q becomes %s, which is %q, %v", name, item, back, err)
		}
		list, err := httpsfv.UnmarshalList([]string{item + ";r=3, " + item + ";r=5"})
		if err != nil || len(list) != 2 {
			t.Errorf("%s twice reads as %v, %v", item, list, err)
		}
	})
}
