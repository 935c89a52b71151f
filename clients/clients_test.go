package clients_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/clients"
)

// What the caller asks an error for; these interfaces are the contract.
func TestOutcomes(t *testing.T) {
	cause := errors.New("status 429")
	until := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

	asThrottled := func(err error) bool {
		e, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](err)
		return ok && e.RetryAfter() == 3*time.Second
	}
	asPostponed := func(err error) bool {
		e, ok := errors.AsType[interface {
			error
			PostponeUntil() time.Time
		}](err)
		return ok && e.PostponeUntil().Equal(until)
	}
	asPermanent := func(err error) bool {
		e, ok := errors.AsType[interface {
			error
			Permanent() bool
		}](err)
		return ok && e.Permanent()
	}
	asUnknown := func(err error) bool {
		e, ok := errors.AsType[interface {
			error
			Unknown() bool
		}](err)
		return ok && e.Unknown()
	}
	asUncalled := func(err error) bool {
		e, ok := errors.AsType[interface {
			error
			NotCalled() bool
		}](err)
		return ok && e.NotCalled()
	}
	tests := map[string]struct {
		make                                     func(error) error
		throttled, postponed, permanent, unknown bool
		uncalled                                 bool
	}{
		"throttled": {make: func(err error) error { return clients.Throttled(3*time.Second, err) }, throttled: true},
		"postponed": {make: func(err error) error { return clients.PostponeUntil(until, err) }, postponed: true},
		"permanent": {make: clients.Permanent, permanent: true},
		"unknown":   {make: clients.Unknown, unknown: true},
		"retryable": {make: clients.Retryable},
		"uncalled":  {make: clients.NotCalled, uncalled: true},
		"refused":   {make: func(err error) error { return clients.Permanent(clients.NotCalled(err)) }, permanent: true, uncalled: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("send: %w", tt.make(cause))
			if !errors.Is(err, cause) {
				t.Error("the cause is lost")
			}
			if err.Error() != "send: status 429" {
				t.Errorf("text is %q", err)
			}
			if got := asThrottled(err); got != tt.throttled {
				t.Errorf("throttled: %v", got)
			}
			if got := asPostponed(err); got != tt.postponed {
				t.Errorf("postponed: %v", got)
			}
			if got := asPermanent(err); got != tt.permanent {
				t.Errorf("permanent: %v", got)
			}
			if got := asUncalled(err); got != tt.uncalled {
				t.Errorf("not called: %v", got)
			}
			if got := asUnknown(err); got != tt.unknown {
				t.Errorf("unknown: %v", got)
			}
			if bare := tt.make(nil); bare == nil || bare.Error() == "" {
				t.Error("a nil cause must stay a failure with a text")
			}
		})
	}
	if err, _ := errors.AsType[*clients.ThrottledError](clients.Throttled(-time.Second, nil)); err.RetryAfter() != 0 {
		t.Error("a negative wait must mean that the provider did not say")
	}
}

func ExampleThrottled() {
	err := clients.Throttled(3*time.Second, errors.New("status 429"))
	throttled, _ := errors.AsType[*clients.ThrottledError](err)
	fmt.Println(err, throttled.RetryAfter())
	// Output: status 429 3s
}

func TestCallHeaders(t *testing.T) {
	tests := map[string]struct {
		call clients.Call
		want map[string]string
	}{
		"zero": {want: map[string]string{}},
		"plain": {
			clients.Call{Job: "018f", Tenant: "acme", Attempt: 2, IdempotencyKey: "acme:a%20b"},
			map[string]string{"Headgate-Job": "018f", "Headgate-Tenant": "acme", "Headgate-Attempt": "2", "Idempotency-Key": "acme:a%20b"},
		},
		"hostile": {
			clients.Call{Job: "a%2Fb", Tenant: " Ünï\r\nX-Evil: 1\x00\u202e ", IdempotencyKey: "k\n"},
			map[string]string{
				"Headgate-Job":    "a%252Fb",
				"Headgate-Tenant": "%20%C3%9Cn%C3%AF%0D%0AX-Evil:%201%00%E2%80%AE%20",
				"Idempotency-Key": "k%0A",
			},
		},
		"not utf-8": {clients.Call{Tenant: "\xff\xfe"}, map[string]string{"Headgate-Tenant": "%FF%FE"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := maps.Collect(tt.call.Headers())
			if !maps.Equal(got, tt.want) {
				t.Errorf("Headers = %q; want %q", got, tt.want)
			}
			if tenant := clients.UnescapeHeader(got[clients.HeaderTenant]); tenant != tt.call.Tenant {
				t.Errorf("the tenant comes back as %q", tenant)
			}
			for range tt.call.Headers() {
				break // a caller may stop early
			}
		})
	}
	if got := clients.UnescapeHeader("100%"); got != "100%" {
		t.Errorf("a value of another origin comes back as %q", got)
	}
}

func FuzzEscapeHeader(f *testing.F) {
	for _, seed := range []string{"", "acme", "a b%", "Ü\r\n\x00\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := clients.EscapeHeader(text)
		for _, c := range []byte(value) {
			if c <= ' ' || c > '~' {
				t.Fatalf("%q holds %q", value, c)
			}
		}
		if back := clients.UnescapeHeader(value); back != text {
			t.Fatalf("%q came back as %q", text, back)
		}
	})
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	tests := map[string]time.Duration{
		"":                        0,
		"0":                       0,
		"1":                       time.Second,
		" 120 ":                   2 * time.Minute,
		"1.5":                     1500 * time.Millisecond,
		"0.0000000001":            1, // rounded up: never too early
		"-5":                      0,
		"+5":                      0,
		"1e3":                     0,
		".5":                      0,
		"5.":                      0,
		"1.2.3":                   0,
		"NaN":                     0,
		"soon":                    0,
		"５":                       0,
		"86400":                   24 * time.Hour,
		"86401":                   24 * time.Hour,
		strings.Repeat("9", 1000): 24 * time.Hour,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.AddDate(50, 0, 0).Format(http.TimeFormat):     24 * time.Hour,
		"Wed, 04 Mar 2026":                  0,
		"Wednesday, 04-Mar-26 05:06:17 GMT": 10 * time.Second,
	}
	for value, want := range tests {
		if got := clients.ParseRetryAfter(value, now); got != want {
			t.Errorf("ParseRetryAfter(%q) = %v; want %v", value, got, want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "1", "1.5", "-1", "Wed, 04 Mar 2026 05:06:07 GMT", "99999999999999999999"} {
		f.Add(seed, int64(0))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		got := clients.ParseRetryAfter(value, time.Unix(unix, 0))
		if got < 0 || got > clients.MaxRetryAfter {
			t.Fatalf("ParseRetryAfter(%q) = %v", value, got)
		}
	})
}

func TestPrintable(t *testing.T) {
	tests := []struct {
		text string
		most int
		want string
	}{
		{"", 10, ""},
		{"  too\r\n\tmany\x00 ", 20, "too many"},
		{"\x1b[31mred\x1b[0m", 20, "[31mred [0m"},
		{"a\u202eb\xffc", 20, "a?b?c"},
		{"überall", 2, "ü…"},
		{"überall", 1, "…"},
		{"ab cd", 3, "ab…"},
		{"abc", 3, "abc"},
	}
	for _, tt := range tests {
		got := clients.Printable(tt.text, tt.most)
		if got != tt.want {
			t.Errorf("Printable(%q, %d) = %q; want %q", tt.text, tt.most, got, tt.want)
		}
		if !utf8.ValidString(got) {
			t.Errorf("Printable(%q, %d) is not UTF-8", tt.text, tt.most)
		}
	}
}
