package email

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/until"
)

func newResend(t testing.TB, config ResendConfig) *Resend {
	t.Helper()
	s, err := NewResend(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newResendSandbox(t testing.TB, config sandbox.ResendConfig) (*sandbox.Resend, *Resend) {
	t.Helper()
	provider, err := sandbox.NewResend(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	return provider, newResend(t, ResendConfig{URL: provider.URL(), APIKey: "re_123"})
}

func TestNewResend(t *testing.T) {
	for name, config := range map[string]ResendConfig{
		"api key:": {},
		"api key":  {APIKey: "hunter22\r\nX: 1"},
		"url:":     {APIKey: "hunter22", URL: "http://example.com"},
		"negative": {APIKey: "hunter22", MaxIdle: -1},
	} {
		if _, err := NewResend(config); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := newResend(t, ResendConfig{APIKey: "re_123"}); s.url != "https://api.resend.com/emails" {
		t.Error(s.url)
	}
}

func TestResendSends(t *testing.T) {
	provider, _ := newResendSandbox(t, sandbox.ResendConfig{APIKey: "re_123", Domains: []string{"example.com"}})
	tap := &tap{Handler: provider}
	server := httptest.NewServer(tap)
	defer server.Close()
	s := newResend(t, ResendConfig{URL: server.URL + "/", APIKey: "re_123"})
	m := Message{
		From: "Änn <ann@example.com>", To: Addresses{"x@y.z", "X <x@y.z>"}, CC: Addresses{"c@y.z", "x@y.z"}, BCC: Addresses{"b@y.z", "c@y.z"}, ReplyTo: Addresses{"r@y.z"},
		Subject: "Grüße", Text: "text", HTML: "<p>ü</p>", Headers: map[string]string{"X-B": "2", "X-A": "1"},
		Attachments: []Attachment{{Filename: "f.txt", ContentType: "text/plain", Content: []byte("file")}},
	}
	for attempt := range 3 {
		again := call
		again.Attempt, again.First = attempt+1, time.Now()
		if err := s.Send(t.Context(), again, m); err != nil {
			t.Fatal(err)
		}
	}
	var sent map[string]any
	if err := json.Unmarshal(tap.bodies[0], &sent); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(sent)
	want := `{"attachments":[{"content":"ZmlsZQ==","content_type":"text/plain","filename":"f.txt"}],"bcc":["b@y.z"],"cc":["c@y.z"],` +
		`"from":"Änn \u003cann@example.com\u003e","headers":{"X-A":"1","X-B":"2"},"html":"\u003cp\u003eü\u003c/p\u003e","reply_to":["r@y.z"],` +
		`"subject":"Grüße","text":"text","to":["x@y.z"]}`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if n := m.Costs()["recipients"]; n != 3 { // as many as Resend was given
		t.Errorf("%d recipients are estimated", n)
	}
	// Attempts that differ would be refused instead of known again.
	if !bytes.Equal(tap.bodies[0], tap.bodies[2]) {
		t.Error("two attempts have two bodies")
	}
	h := tap.headers[2]
	if h.Get("Idempotency-Key") != "acme:1" || h.Get("Headgate-Attempt") != "3" || h.Get("Headgate-Job") != "018f" || h.Get("User-Agent") != "Headgate" {
		t.Errorf("%v", h)
	}
	if provider.Taken() != 1 {
		t.Errorf("%d mails of one job", provider.Taken())
	}
}

// Resend requires a subject, also an empty one, and refuses a key that comes with other bytes.
func TestResendBody(t *testing.T) {
	body, err := resendBody(Message{From: "a@example.com", To: Addresses{"x@y.z", "x@y.z"}, Text: "hi", Attachments: []Attachment{{Filename: "f", Content: []byte("file")}}})
	want := `{"from":"a@example.com","to":["x@y.z"],"subject":"","text":"hi","attachments":[{"filename":"f","content":"ZmlsZQ=="}]}`
	if err != nil || string(body) != want {
		t.Errorf("%s, %v; want %s", body, err, want)
	}
}

// An attempt whose answer was lost, and the next one: one mail.
func TestResendSendsOnce(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{})
	provider.DropAnswers(1)
	if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != "unknown" {
		t.Fatalf("%s: %v", outcomes.Of(err), err)
	}
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	other := plain()
	other.Subject = "another"
	if err := s.Send(t.Context(), call, other); outcomes.Of(err) != "undecided" || !strings.Contains(err.Error(), "invalid_idempotent_request") {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	if provider.Taken() != 1 {
		t.Errorf("%d mails of one job", provider.Taken())
	}
}

// A key that Resend knows from another message may be that of an earlier attempt, whose message a new version of the
// worker has changed.
func TestResendKeyOfAnotherMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		call clients.Call
		want string
	}{
		"first attempt":                 {clients.Call{Attempt: 1}, "permanent"},
		"third attempt":                 {clients.Call{Attempt: 3}, "undecided"},
		"first, after a worker's death": {clients.Call{Attempt: 1, Unsure: true}, "undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := newResendSandbox(t, sandbox.ResendConfig{})
			tt.call.IdempotencyKey, tt.call.First = "acme:7", time.Now()
			if err := s.Send(t.Context(), tt.call, plain()); err != nil {
				t.Fatal(err)
			}
			other := plain()
			other.Subject = "another"
			err := s.Send(t.Context(), tt.call, other)
			if got := outcomes.Of(err); got != tt.want || !strings.Contains(err.Error(), "invalid_idempotent_request") {
				t.Errorf("%s; want %s: %v", got, tt.want, err)
			}
			if says := strings.Contains(err.Error(), "may have taken effect"); says != (tt.want == "undecided") || !strings.Contains(err.Error(), "Look in Resend's log for the request with idempotency key acme:7") {
				t.Errorf("%v", err)
			}
		})
	}
}

// When Resend may have forgotten the key, nothing is sent: it would be a second mail.
func TestResendKeyLife(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{})
	now := time.Now()
	for name, tt := range map[string]struct {
		attempt int
		first   time.Time
		want    string
	}{
		"first":                   {1, now, "ok"},
		"nobody knows":            {2, time.Time{}, "undecided"},
		"an hour":                 {2, now.Add(-time.Hour), "ok"},
		"almost":                  {2, now.Add(-23*time.Hour + time.Minute), "ok"},
		"too late":                {2, now.Add(-23*time.Hour - time.Minute), "undecided"},
		"a crashed first attempt": {1, now.Add(-25 * time.Hour), "undecided"},
		"clocks that say nothing": {2, now.Add(time.Hour), "retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(provider.Calls())
			err := s.Send(t.Context(), clients.Call{Job: name, IdempotencyKey: name, Attempt: tt.attempt, First: tt.first}, plain())
			if got := outcomes.Of(err); got != tt.want || (len(provider.Calls()) > before) != (tt.want == "ok") {
				t.Errorf("%s, %d calls: %v", got, len(provider.Calls())-before, err)
			}
			if tt.want == "ok" {
				return
			}
			if _, uncalled := errors.AsType[*clients.NotCalledError](err); !uncalled || !strings.Contains(err.Error(), "not sent") {
				t.Errorf("it does not say that nothing was sent: %v", err)
			}
			if tt.want == "undecided" && (!strings.HasPrefix(err.Error(), "unknown: a person has to decide: ") || !strings.Contains(err.Error(), "key "+clients.EscapeHeader(name))) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestResendWhileTheFirstIsUnderWay(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{})
	release := provider.Hang()
	first := make(chan error, 1)
	go func() { first <- s.Send(t.Context(), call, plain()) }()
	until.Done(t, "it arrived", func() bool { return len(provider.Calls()) > 0 })
	if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != "retryable" || !strings.Contains(err.Error(), "concurrent_idempotent_requests") {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestResendKey(t *testing.T) {
	long := strings.Repeat("k", 300)
	for key, tt := range map[string]clients.Call{
		"acme:1": {Job: "018f", IdempotencyKey: "acme:1"},
		"018f":   {Job: "018f"},
		"":       {},
		"k%0A":   {IdempotencyKey: "k\n"},
	} {
		if got := resendKey(tt); got != key {
			t.Errorf("%+v: %q; want %q", tt, got, key)
		}
	}
	if got := resendKey(clients.Call{IdempotencyKey: long}); len(got) != 64 || got == resendKey(clients.Call{IdempotencyKey: long + "k"}) {
		t.Error(got)
	}
}

func TestResendRefusesBefore(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{})
	change := func(f func(m *Message)) Message { m := plain(); f(&m); return m }
	for want, m := range map[string]Message{
		"subject: ":     change(func(m *Message) { m.Subject = "a\r\nBcc: evil@x.y" }),
		"to: it is":     change(func(m *Message) { m.To, m.BCC = nil, Addresses{"b@y.z"} }),
		"to: 51":        change(func(m *Message) { m.To = make(Addresses, 51); fill(m.To) }),
		"attachments: ": change(func(m *Message) { m.Attachments = []Attachment{{Filename: "f", Content: make([]byte, 31<<20)}} }),
	} {
		if err := s.Send(t.Context(), call, m); outcomes.Of(err) != "permanent" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s: %v", want, outcomes.Of(err), err)
		}
	}
	if got := len(provider.Calls()); got != 0 {
		t.Errorf("%d calls", got)
	}
}

func fill(list Addresses) {
	for i := range list {
		list[i] = "x@y.z"
	}
}

func TestResendLimits(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 1}}, Daily: 2})
	if err := s.Send(t.Context(), clients.Call{Job: "1"}, plain()); err != nil {
		t.Fatal(err)
	}
	err := s.Send(t.Context(), clients.Call{Job: "2"}, plain())
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); !ok || !throttled.WholeAccount() || throttled.RetryAfter() != 2*time.Second {
		t.Errorf("%v", err)
	}
	provider.SetAccountLimit(sandbox.Limit{})
	if err := s.Send(t.Context(), clients.Call{Job: "2"}, plain()); err != nil {
		t.Fatal(err)
	}
	err = s.Send(t.Context(), clients.Call{Job: "3"}, plain())
	if _, ok := errors.AsType[*clients.ExhaustedError](err); !ok || !strings.Contains(err.Error(), "daily_quota_exceeded") {
		t.Errorf("%v", err)
	}
}

// Each of the sandbox's faults means what the same answer of Resend's means.
func TestResendFaults(t *testing.T) {
	provider, s := newResendSandbox(t, sandbox.ResendConfig{})
	for name, want := range map[string]string{
		"validation_error": "permanent", "invalid_api_key": "account exhausted", "security_error": "permanent", "internal_server_error": "retryable",
		"rate_limit_exceeded": "account throttled", "missing_required_field": "permanent",
	} {
		provider.FailAs(1, name)
		if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != want || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %s: %v", name, outcomes.Of(err), err)
		}
	}
	provider.Fail(1, http.StatusServiceUnavailable)
	if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != "retryable" {
		t.Error(err)
	}
}

func ExampleNewResend() {
	provider, err := sandbox.NewResend(sandbox.ResendConfig{})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	sender, err := NewResend(ResendConfig{APIKey: "re_123", URL: provider.URL()})
	if err != nil {
		panic(err)
	}
	defer sender.Close()
	for range 2 { // two attempts of one job
		err = sender.Send(context.Background(), clients.Call{Job: "1", Tenant: "acme", Attempt: 1}, Message{
			From: "shop@example.com", To: Addresses{"you@example.net"}, Subject: "hi", Text: "hello",
		})
	}
	fmt.Println(err, provider.Taken())
	// Output: <nil> 1
}
