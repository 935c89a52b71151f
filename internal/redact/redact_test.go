package redact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// places are payloads of every kind, with a secret at each § and the number of a card at each ¤.
var places = []string{
	// webhook: the URL, headers, and bodies
	`{"url":"https://user:§@example.com/a"}`, `{"url":"https://§@example.com/a"}`, `{"url":"https://user:a/b§@example.com:x/a"}`,
	`{"url":"https://user:%§@[::1/a?x=1"}`, `{"url":"https://example.com/a?page=2&access_token=§&x=1"}`, `{"url":"https://example.com/a?key=§"}`,
	`{"url":"https://example.com/a?%70assword=§#x"}`, `{"url":"https://example.com/a#id_token=§"}`, `{"url":"https://example.com/?X-Amz-Signature=§"}`,
	`{"url":"https://hooks.slack.com/services/T01/B01/§"}`, `{"url":"https://discord.com/api/webhooks/123/§"}`, `{"url":"https://acme.webhook.office.com/webhookb2/§"}`,
	`{"url":"HTTPS://API.telegram.org:443/bot§/sendMessage"}`, `{"url":"https://hooks.zapier.com/hooks/catch/1/§?x=§"}`,
	`{"headers":{"Authorization":"Bearer §"}}`, `{"headers":{"Authorization":"Basic §=="}}`, `{"headers":{"X-Auth-Token":"§"}}`, `{"headers":{"Cookie":"a=§; b=§"}}`,
	`{"headers":{"Proxy-Authorization":"§","X-API-Key":"§","X-Session-Id":"§","X-Hub-Signature-256":"sha256=§"}}`, `{"headers":{"X-Any":"bearer §"}}`,
	`{"body":{"user":"ann","pass":"§","deep":[{"pwd":"§"},{"userPin":"§","otpCode":"§","jwt":"§"}]}}`, `{"body":{"auth":{"user":"a","key":"§"},"session":["§"]}}`,
	`{"body":{"dbpass":"§","accesstoken":"§","clientSecret":"§","PASSWORD_HASH":"§","oauth":"§"}}`, `{"body":{"fields":[{"name":"X-Api-Key","value":"§"}]}}`,
	`{"body":{"card":{"number":"§","exp_month":1}}}`, `{"body":{"note":"pay with ¤ please","no":"¤"}}`, `{"body":{"no":¤}}`,
	`{"text":"user=ann&password=§&x=1"}`, `{"text":"{\"password\":\"§\",\"a\":[{\"token\":\"§\"}]}"}`, `{"text":"{\"password\":\"§\", and it is cut"}`,
	`{"text":"<login><user>ann</user><password type='x'>§</password></login>"}`, `{"text":"<login password=\"§\"/>"}`, `{"text":"{\\\"pwd\\\":\\\"§\\\"}"}`,
	// email
	`{"subject":"Your password: §"}`, `{"text":"Your one-time code is here.\nPIN: 1§\nOTP=§\nregards"}`, `{"html":"<a href=\"https://example.com/reset?token=§\">reset</a>"}`,
	`{"headers":{"X-Auth":"§"}}`, `{"text":"call https://ann:§@example.com now"}`, `{"text":"your card ¤ was charged"}`,
	// ai
	`{"messages":[{"role":"user","content":"my api_key is: api_key=§"}]}`, `{"messages":[{"content":[{"type":"text","text":"Authorization: Bearer §"}]}]}`,
	`{"tools":[{"function":{"arguments":"{\"api_key\":\"§\"}"}}]}`, `{"metadata":{"session_id":"§"}}`,
	`{"messages":[{"content":"eyJhbGciOiJIUzI1NiJ9.§.§"}]}`, `{"messages":[{"content":"use sk_live_§ or whsec_§ or sk-ant-api03-§"}]}`,
	// payment
	`{"client_secret":"pi_1_secret_§"}`, `{"metadata":{"card_number":"§","cvc":"§","iban":"§"}}`, `{"description":"card ¤"}`,
	// not JSON
	`password=§&x=1`, `ann's token: §`, `call https://x:§@example.com/`, `Cookie: sid=§`,
}

// kept are texts that hide nothing, and would be of no use if they did.
var kept = []string{
	`{"max_tokens":100,"author":"ann","shipping":"fast","pinned":true,"passenger":"bob","compass_heading":3}`, `{"url":"https://example.com/@ann/a?page=2#top"}`,
	`{"id":"01a20b1c-25b3-7133-985c-1bbe221ad4df","at":1767225600000000,"big":12345678901234567890,"phone":"+1 202 555 0123"}`,
	`{"text":"auth: 535 5.7.8 refused; password: it is missing; the secret is that there is none; 10:30 https://example.com/a"}`, `{"url":"https://discord.com/"}`,
}

func TestSecretsInEveryPlace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	fields := New(nil)
	for i := range 1000 {
		secret := make([]byte, 16+random.IntN(24))
		for j := range secret {
			secret[j] = letters[random.IntN(len(letters))]
		}
		number := cardNumber(random, i)
		for _, place := range places {
			payload := strings.ReplaceAll(strings.ReplaceAll(place, "§", string(secret)), "¤", number)
			if strings.Contains(place, `":¤`) {
				payload = strings.ReplaceAll(strings.ReplaceAll(payload, " ", ""), "-", "")
			}
			shown, err := json.Marshal(fields.Show([]byte(payload)).Value)
			if err != nil {
				t.Fatal(err)
			}
			told := map[string]string{"shown": string(shown)}
			if i < 100 {
				told["as a text"], told["in a text"] = Text(payload), Text("answered 400: "+fmt.Sprintf("%q", payload))
			}
			for how, text := range told {
				if how != "shown" && (strings.Contains(place, `{"number"`) || strings.Contains(place, `"value"`)) || how == "in a text" && strings.Contains(place, `\\\"`) {
					continue // what is beside it, or inside of it, is seen in JSON only
				}
				if strings.Contains(text, string(secret)) || strings.Contains(text, number) {
					t.Fatalf("%s %s:\n%s", payload, how, text)
				}
			}
		}
	}
	for _, text := range kept {
		if got := Text(text); got != text {
			t.Errorf("%s\nbecame %s", text, got)
		}
		if got := fields.Show([]byte(text)); strings.Contains(fmt.Sprint(got.Value), Hidden) {
			t.Errorf("%s\nis shown as %v", text, got.Value)
		}
	}
	if got, _ := json.Marshal(New([]string{"shoe-size"}).Show([]byte(`{"shoeSize":"x","url":"https://u:p@example.com/a?token=x&page=2"}`)).Value); string(got) !=
		`{"shoeSize":"[redacted]","url":"https://[redacted]@example.com/a?token=[redacted]\u0026page=2"}` {
		t.Errorf("%s", got)
	}
}

// cardNumber returns the number of a card that does not exist, with a right check digit.
// TestCardBesideDigits: the number of a card is hidden also beside other digits.
func TestCardBesideDigits(t *testing.T) {
	for _, number := range []string{"4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242"} {
		for _, place := range []string{"¤ 12/27", "¤ 123", "on 2026-01-31 ¤ was declined", "5 ¤", "¤ ¤", "1 2 3 ¤ 4 5 6"} {
			text := strings.ReplaceAll(place, "¤", number)
			if got, want := Text(text), strings.ReplaceAll(place, "¤", Hidden); got != want {
				t.Errorf("%s is %s, want %s", text, got, want)
			}
		}
	}
}

func cardNumber(random *rand.Rand, i int) string {
	for {
		number := []byte([]string{"4", "51", "2221", "34", "6011", "3528", "36"}[i%7])
		length := []int{16, 16, 16, 15, 16, 16, 14}[i%7]
		for len(number) < length {
			number = append(number, byte('0'+random.IntN(10)))
		}
		if card(string(number)) {
			if i%3 == 0 && length == 16 {
				return fmt.Sprintf("%s %s-%s %s", number[:4], number[4:8], number[8:12], number[12:])
			}
			return string(number)
		}
	}
}

func TestShow(t *testing.T) {
	long := strings.Repeat("é", MaxShown)
	for name, test := range map[string]struct {
		payload   string
		want      any
		truncated bool
	}{
		"none":            {"", nil, false},
		"a number":        {"1", nil, false},
		"a text":          {"plain text", "plain text", false},
		"binary":          {"\x00\xff\x01", nil, true},
		"binary as UTF-8": {"a\x00b", nil, true},
		"half a JSON":     {`{"password":"CANARY`, nil, true},
		"two JSONs":       {`{"password":"CANARY"}{"password":"CANARY"}`, nil, true},
		"a long text":     {long, long[:MaxShown], true},
	} {
		got := New(nil).Show([]byte(test.payload))
		if test.want != nil && got.Value != test.want || got.Truncated != test.truncated || got.Bytes != len(test.payload) {
			t.Errorf("%s: %.60v, truncated %v, %d bytes", name, got.Value, got.Truncated, got.Bytes)
		}
		if test.want == nil && name != "a number" && got.Value != nil {
			t.Errorf("%s is shown: %.60v", name, got.Value)
		}
	}
	if got := New(nil).Show([]byte(`{"secret":"CANARY","text":"` + long + `"}`)); !got.Truncated || strings.Contains(fmt.Sprint(got.Value), "CANARY") || len(got.Value.(string)) > MaxShown {
		t.Errorf("a long JSON: truncated %v, %.60v", got.Truncated, got.Value)
	}
}

// TestNamesInValues: names and tokens are also found in values, in other names, and beside what only begins like them.
func TestNamesInValues(t *testing.T) {
	key, jwt := "re_"+strings.Repeat("x", 16), "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig"
	for text, want := range map[string]string{
		"a=b=password=x c":            "a=b=password=[redacted] c",
		"a=[b: {pin=1 2}]":            "a=[b: {pin=[redacted] 2}]",
		"x=basic pwd=1&y=2":           "x=basic pwd=[redacted]&y=2",
		"pwd=,otp:\n [1, 2], sid=":    "pwd=,otp:\n [redacted], sid=",
		`pwd=\otp=1`:                  `pwd=\otp=[redacted]`,
		`a='b' pin="1" c`:             `a='b' pin="[redacted]" c`,
		"pin=[redacted]otp=1":         "pin=[redacted]otp=[redacted]",
		"password: is auth: no pin=1": "password: is auth: no pin=[redacted]",
		"eyJa-eyJb." + jwt:            "[redacted].sig",
		"eyJa-" + key + "-eyJb":       "eyJa-[redacted]-eyJb",
		"eyJa-" + key + "-eyJb.c":     "[redacted]",
		"eyJa-" + key + ".." + jwt:    "eyJa-[redacted]..[redacted]",
		"eyJa-whsec_a+b/eyJc.d":       "eyJa-[redacted].d",
		"eyJ." + jwt + " eyJ. " + jwt: "eyJ.[redacted] eyJ. [redacted]",
		"hg_x " + key + " hg_":        "hg_x [redacted] hg_",
		"x" + key + " eyJ" + key:      "x" + key + " eyJ" + key,
	} {
		if got := Text(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// TestLongTexts: the time that a text takes grows with its length, and not with the square of it.
// Here that is a tenth of a second and many minutes of CPU time, however busy the machine is.
func TestLongTexts(t *testing.T) {
	for _, part := range []string{"a=", "a=[", "aa:", "a='", "pin=\\", "auth: bearer ", "eyJ-sk_live_a-", "eyJ.", "eyJa+", "<a ", "1 ", "1234567-"} {
		text := strings.Repeat(part, 1<<18/len(part))
		before, done := cpu(t), make(chan struct{})
		go func() {
			defer close(done)
			Text(text)
		}()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			case <-time.After(100 * time.Millisecond):
				if took := cpu(t) - before; took > 20*time.Second {
					t.Fatalf("%d bytes of %s… are not done after %v of CPU time", len(text), part, took)
				}
			}
		}
	}
}

// cpu returns the CPU time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var spent syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
		t.Fatal(err)
	}
	return time.Duration(spent.Utime.Nano() + spent.Stime.Nano())
}

// FuzzShow: whatever a payload is, what is shown of it is JSON of a bounded length
// and has no value of a secret field.
func FuzzShow(f *testing.F) {
	f.Add([]byte(`{"password":"CANARY","a":[{"token":"CANARY"}],"url":"http://u:CANARY@h/?key=CANARY"}`))
	f.Add([]byte("\x00"))
	f.Add([]byte(`{"password":"CANARY"`))
	hide := New(nil)
	for _, place := range places {
		f.Add([]byte(place))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		shown := hide.Show(payload)
		text, err := json.Marshal(shown.Value)
		if err != nil || !utf8.Valid(text) || len(text) > 8*MaxShown {
			t.Errorf("%q: %d bytes, %v", payload, len(text), err)
		}
	})
}
