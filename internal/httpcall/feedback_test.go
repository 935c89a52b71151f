package httpcall

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false},
		{"0", 0, true},
		{"30", 30 * time.Second, true},
		{" 30 ", 30 * time.Second, true},
		{"007", 7 * time.Second, true},
		{"1.5", 1500 * time.Millisecond, true},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1e3", 0, false},
		{"1,5", 0, false},
		{"0x10", 0, false},
		{"1.", 0, false},
		{".5", 0, false},
		{"1.2.3", 0, false},
		{"inf", 0, false},
		{"NaN", 0, false},
		{"30s", 0, false},
		{"soon", 0, false},
		{"1000000000", MaxPause, true},
		{strings.Repeat("9", 400), MaxPause, true},
		{"Sun, 01 Mar 2026 12:00:45 GMT", 45 * time.Second, true},
		{"Sunday, 01-Mar-26 12:00:45 GMT", 45 * time.Second, true},
		{"Sun Mar  1 12:00:45 2026", 45 * time.Second, true},
		{"Sun, 01 Mar 2026 11:00:00 GMT", 0, true},
		{"Sun, 01 Mar 2099 12:00:00 GMT", MaxPause, true},
		{"Sun, 31 Feb 2026 12:00:00 GMT", 0, false},
	}
	for _, test := range tests {
		if got, ok := RetryAfter(test.value, noon); got != test.want || ok != test.ok {
			t.Errorf("RetryAfter(%.40q) = %v, %v; want %v, %v", test.value, got, ok, test.want, test.ok)
		}
	}
}

func TestResetAfter(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false},
		{"30", 30 * time.Second, true},
		{"0", 0, true},
		{"1s", time.Second, true},
		{"6m0s", 6 * time.Minute, true},
		{"0s", 0, true},
		{"12ms", 12 * time.Millisecond, true},
		{"2m59.56s", 179560 * time.Millisecond, true},
		{"1h2m3.5s", time.Hour + 2*time.Minute + 3500*time.Millisecond, true},
		{"-5s", 0, true},
		{"9999h", MaxPause, true},
		{"1e9s", 0, false},
		{fmt.Sprint(noon.Unix() + 90), 90 * time.Second, true},
		{fmt.Sprint(noon.Unix() - 90), 0, true},
		{fmt.Sprint(noon.UnixMilli() + 90_500), 90_500 * time.Millisecond, true},
		{fmt.Sprint(noon.Unix()+90) + ".25", 90250 * time.Millisecond, true},
		{"2026-03-01T12:00:59Z", 59 * time.Second, true},
		{"2026-03-01T13:00:59+01:00", 59 * time.Second, true},
		{"2026-03-01T11:59:59Z", 0, true},
		{"2026-03-01T12:00:59.5Z", 59500 * time.Millisecond, true},
		{"9999-01-01T00:00:00Z", MaxPause, true},
		{"Sun, 01 Mar 2026 12:00:45 GMT", 45 * time.Second, true},
		{"tomorrow", 0, false},
		{"1 day", 0, false},
		{strings.Repeat("9", 400), MaxPause, true},
	}
	for _, test := range tests {
		if got, ok := ResetAfter(test.value, noon); got != test.want || ok != test.ok {
			t.Errorf("ResetAfter(%.40q) = %v, %v; want %v, %v", test.value, got, ok, test.want, test.ok)
		}
	}
}

func TestParseRateLimit(t *testing.T) {
	tests := []struct {
		value string
		want  []ServiceLimit
	}{
		{"", nil},
		{`"default";r=50;t=30`, []ServiceLimit{{"default", 50, 30}}},
		{`"default";t=30;r=0`, []ServiceLimit{{"default", 0, 30}}},
		{`"a";r=1;t=2,"b";r=0;t=86400`, []ServiceLimit{{"a", 1, 2}, {"b", 0, 86400}}},
		{` "a";r=1 ,	"b"; r=3;t=4 `, []ServiceLimit{{"a", 1, -1}, {"b", 3, 4}}},
		{`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`, []ServiceLimit{{"default", 999, -1}}},
		{`"default";pk=:cHM/+w==:;r=0;t=60`, []ServiceLimit{{"default", 0, 60}}},
		{`"a,b;r=7";r=1;t=2`, []ServiceLimit{{"a,b;r=7", 1, 2}}},
		{`"a\"b\\";r=1`, []ServiceLimit{{"a\"b\\", 1, -1}}},
		{`default;r=5;t=6`, []ServiceLimit{{"default", 5, 6}}},
		{`"a";r=5;acme-burst;t=6`, []ServiceLimit{{"a", 5, 6}}},
		{`"a";r=5;r=6`, []ServiceLimit{{"a", 6, -1}}},
		{`limit=100, remaining=0, reset=30`, []ServiceLimit{{"", 0, 30}}},
		{`limit=100, remaining=50`, []ServiceLimit{{"", 50, -1}}},
		{`"a"`, nil},
		{`"a";r`, nil},
		{`"a";r=-1;t=5`, nil},
		{`"a";r=1.5;t=5`, nil},
		{`"a";r="0";t=5`, nil},
		{`"a";r=0;t=x`, []ServiceLimit{{"a", 0, -1}}},
		{`("a" "b");r=0;t=5`, nil},
		{`remaining=0, reset=("a" "b")`, []ServiceLimit{{"", 0, -1}}},
		{`remaining=?0, reset=3`, nil},
		// Malformed: all of it is ignored.
		{`"a;r=0;t=5`, nil},
		{`"a";r=0;t=5,`, nil},
		{`,"a";r=0;t=5`, nil},
		{`"a";r=0;t=5 "b";r=1`, nil},
		{`"a";r=;t=5`, nil},
		{`"a";;r=0`, nil},
		{`"\x";r=0;t=5`, nil},
		{"\"\x00\";r=0;t=5", nil},
		{`"ü";r=0;t=5`, nil},
		{`"a";r=0;t=5;pk=:abc`, nil},
		{`"a";r=0;t=99999999999999999999`, nil},
		{`remaining=0, reset=3,`, nil},
	}
	for _, test := range tests {
		if got := ParseRateLimit([]string{test.value}); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("ParseRateLimit(%s) = %v; want %v", test.value, got, test.want)
		}
	}
}

func TestPauseFor(t *testing.T) {
	date := noon.Format(http.TimeFormat)
	tests := map[string]struct {
		status int
		header map[string]string
		want   time.Duration
	}{
		"nothing said":                      {200, nil, 0},
		"429":                               {429, nil, silentPause},
		"503":                               {503, nil, 0},
		"500 with Retry-After":              {500, map[string]string{"Retry-After": "9"}, 0},
		"429, seconds":                      {429, map[string]string{"Retry-After": "9"}, 9 * time.Second},
		"503, seconds":                      {503, map[string]string{"Retry-After": "9"}, 9 * time.Second},
		"429, at once":                      {429, map[string]string{"Retry-After": "0"}, 0},
		"429, malformed":                    {429, map[string]string{"Retry-After": "a while"}, silentPause},
		"429, date":                         {429, map[string]string{"Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT", "Date": date}, time.Minute},
		"429, date in the past":             {429, map[string]string{"Retry-After": "Sun, 01 Mar 2026 11:01:00 GMT", "Date": date}, 0},
		"429, absurd":                       {429, map[string]string{"Retry-After": "99999999999999999999"}, MaxPause},
		"Retry-After comes first":           {429, map[string]string{"Retry-After": "9", "RateLimit": `"a";r=0;t=99`}, 9 * time.Second},
		"malformed, but a reset":            {429, map[string]string{"Retry-After": "?", "RateLimit": `"a";r=0;t=99`}, 99 * time.Second},
		"429 with a reset":                  {429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"429 with a reset that is over":     {429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}, 0},
		"429, some left":                    {429, map[string]string{"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "7"}, silentPause},
		"some left":                         {200, map[string]string{"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "7"}, 0},
		"none left":                         {200, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"none left, on an error":            {404, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "7"}, 7 * time.Second},
		"none left, no reset":               {200, map[string]string{"X-RateLimit-Remaining": "0"}, 0},
		"none left, since 1970":             {200, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(noon.Unix() + 70), "Date": date}, 70 * time.Second},
		"RateLimit":                         {200, map[string]string{"RateLimit": `"a";r=0;t=5`}, 5 * time.Second},
		"RateLimit, one of two":             {200, map[string]string{"RateLimit": `"a";r=1;t=5, "b";r=0;t=6`}, 6 * time.Second},
		"RateLimit, both":                   {200, map[string]string{"RateLimit": `"a";r=0;t=7, "b";r=0;t=6`}, 7 * time.Second},
		"RateLimit, no window":              {200, map[string]string{"RateLimit": `"a";r=0`}, 0},
		"RateLimit, malformed":              {200, map[string]string{"RateLimit": `"a";r=0;t=5,`}, 0},
		"RateLimit, out of a cache":         {200, map[string]string{"RateLimit": `"a";r=0;t=5`, "Age": "3"}, 0},
		"RateLimit, fresh from a cache":     {200, map[string]string{"RateLimit": `"a";r=0;t=5`, "Age": "0"}, 5 * time.Second},
		"RateLimit-Remaining":               {200, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "8"}, 8 * time.Second},
		"OpenAI, requests":                  {200, map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, time.Second},
		"OpenAI, tokens":                    {200, map[string]string{"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 6 * time.Minute},
		"OpenAI, both":                      {200, map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12ms", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 6 * time.Minute},
		"Anthropic, requests":               {200, map[string]string{"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-03-01T12:00:20Z", "Date": date}, 20 * time.Second},
		"Anthropic, output tokens":          {200, map[string]string{"anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-reset": "2026-03-01T12:00:21Z", "Date": date}, 21 * time.Second},
		"Anthropic, reset a little earlier": {200, map[string]string{"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-03-01T11:59:59Z", "Date": date}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resp := &http.Response{StatusCode: test.status, Header: http.Header{}}
			for header, value := range test.header {
				resp.Header.Set(header, value)
			}
			got, reason := PauseFor(resp)
			if got != test.want || got > 0 && reason == "" || len(reason) > 200 {
				t.Errorf("pauseFor = %v, %q; want %v", got, reason, test.want)
			}
		})
	}
}

// TestSkew holds that a provider's clock may be years off.
func TestSkew(t *testing.T) {
	for _, skew := range []time.Duration{0, -3 * time.Hour, 50000 * time.Hour} {
		theirs := time.Now().Add(skew).Truncate(time.Second).UTC()
		for name, header := range map[string]http.Header{
			"date":     {"Retry-After": {theirs.Add(40 * time.Second).Format(http.TimeFormat)}},
			"RFC 3339": {"Anthropic-Ratelimit-Requests-Remaining": {"0"}, "Anthropic-Ratelimit-Requests-Reset": {theirs.Add(40 * time.Second).Format(time.RFC3339)}},
			"1970":     {"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {fmt.Sprint(theirs.Add(40 * time.Second).Unix())}},
		} {
			header.Set("Date", theirs.Format(http.TimeFormat))
			if got, _ := PauseFor(&http.Response{StatusCode: 429, Header: header}); got != 40*time.Second {
				t.Errorf("%s, clock off by %v: %v; want 40s", name, skew, got)
			}
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"", "1", "1.5", "-1", "99999999999999999999", "Sun, 01 Mar 2026 12:00:45 GMT", "2026-03-01T12:00:59Z", "6m0s", "1e999", "0x1p-2", "\x00"} {
		f.Add(value, value, value)
	}
	f.Fuzz(func(t *testing.T, value, date, field string) {
		for _, read := range []func(string, time.Time) (time.Duration, bool){RetryAfter, ResetAfter} {
			if d, ok := read(value, noon); d < 0 || d > MaxPause || !ok && d != 0 {
				t.Errorf("%q reads as %v, %v", value, d, ok)
			}
		}
		header := http.Header{}
		for _, name := range []string{"Retry-After", "Ratelimit", "X-Ratelimit-Reset", "Anthropic-Ratelimit-Tokens-Reset"} {
			header.Set(name, value)
		}
		header.Set("Date", date)
		header.Set("X-Ratelimit-Remaining", field)
		header.Set("Anthropic-Ratelimit-Tokens-Remaining", "0")
		for _, status := range []int{200, 429, 503} {
			if d, reason := PauseFor(&http.Response{StatusCode: status, Header: header}); d < 0 || d > MaxPause || d > 0 && reason == "" {
				t.Errorf("%v: pause %v, %q", header, d, reason)
			}
		}
	})
}

// FuzzRateLimit holds that one malformed item spoils a header, and a right one
// is found among other right ones.
func FuzzRateLimit(f *testing.F) {
	for _, value := range []string{`"a";r=1;t=2`, `a;b=:YQ==:`, `"\"`, `limit=1`, `;`, `,`, `"`, `a;b=?1;c=1.5`, `:`, `::`, `a=:`} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		limits := ParseRateLimit([]string{value})
		for _, limit := range limits {
			if limit.Remaining < 0 || limit.Window < -1 || limit.Remaining > 999_999_999_999_999 {
				t.Errorf("%q reads as %v", value, limits)
			}
		}
		if spoiled := ParseRateLimit([]string{value + `, "`}); spoiled != nil && strings.Count(value, `"`)%2 == 0 {
			t.Errorf("%q with an open quote reads as %v", value, spoiled)
		}
		if len(limits) == 0 {
			return
		}
		if more := ParseRateLimit([]string{value + `, "z";r=3;t=4`}); len(more) != len(limits)+1 {
			t.Errorf("%q has %v, and with one more %v", value, limits, more)
		}
	})
}
