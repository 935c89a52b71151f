package store

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// TestDerived: all spellings of a receiver are one, no two receivers are, and nothing that is
// not a receiver is taken for one.
func TestDerived(t *testing.T) {
	webhook := func(url string) []byte {
		text, err := json.Marshal(map[string]string{"url": url})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	long := strings.Repeat("a.", 130) + "example"
	for url, want := range map[string][2]string{ // endpoint, host
		"https://example.com/hook":                       {"example.com:443", "example.com"},
		"HTTPS://Example.COM.:443/other?x=1#y":           {"example.com:443", "example.com"},
		"http://example.com":                             {"example.com:80", "example.com"},
		"http://example.com:8080":                        {"example.com:8080", "example.com"},
		"http://user:pass@example.com:8080/":             {"example.com:8080", "example.com"},
		"http://bücher.example/":                         {"xn--bcher-kva.example:80", "xn--bcher-kva.example"},
		"http://BÜCHER.example/":                         {"xn--bcher-kva.example:80", "xn--bcher-kva.example"},
		"http://xn--bcher-kva.example/":                  {"xn--bcher-kva.example:80", "xn--bcher-kva.example"},
		"http://[2606:4700:0:0::1111]/":                  {"[2606:4700::1111]:80", "2606:4700::1111"},
		"http://[2606:4700:0000:0000:0000:0000:0:1111]/": {"[2606:4700::1111]:80", "2606:4700::1111"},
		"http://[::ffff:192.0.2.1]/":                     {"192.0.2.1:80", "192.0.2.1"},
		"http://192.0.2.1/":                              {"192.0.2.1:80", "192.0.2.1"},
		"http://a;b=c.example/":                          {"a;b=c.example:80", "a;b=c.example"},
		"http://_DMARC.Example:0080/":                    {"_dmarc.example:80", "_dmarc.example"},
		"http://_dmarc.example/":                         {"_dmarc.example:80", "_dmarc.example"},
		"http://" + long + "/":                           {},
		"http:///path":                                   {},
		"not a url":                                      {},
		"":                                               {},
	} {
		want := map[string]string{"endpoint": want[0], "host": want[1]}
		if want["host"] == "" {
			want = nil
		}
		got := Derived("webhook", webhook(url))
		if len(got) == 0 {
			got = nil
		}
		if !maps.Equal(got, want) {
			t.Errorf("%.60s: %v; want %v", url, got, want)
		}
	}
	for payload, want := range map[string]string{
		`{"to":["ada@example.com"]}`:                         "example.com",
		`{"to":["Ada <ada@Example.COM>","b@other.example"]}`: "example.com",
		`{"to":"ada@example.com"}`:                           "example.com",
		`{"to":[],"cc":["ada@bücher.example"]}`:              "xn--bcher-kva.example",
		`{"bcc":["\"a@b\"@example.com"]}`:                    "example.com",
		`{"to":["nobody"],"cc":["ada@example.com"]}`:         "example.com",
		`{"to":["nobody"]}`:                                  "",
		`{"to":{"ada@example.com":1}}`:                       "",
		`{}`:                                                 "",
		`[]`:                                                 "",
		`{"to":["a@` + strings.Repeat("x", 300) + `.example"]}`: "",
	} {
		if got := Derived("email", []byte(payload))["domain"]; got != want {
			t.Errorf("%.60s: %q; want %q", payload, got, want)
		}
	}
	if got := Derived("sms", webhook("https://example.com")); len(got) != 0 {
		t.Errorf("another kind: %v", got)
	}
	if got := WithDerived("domain=own;region=eu", map[string]string{"domain": "x", "host": "a;b"}); got != "host=a%3Bb;domain=own;region=eu" {
		t.Error(got)
	}
}
