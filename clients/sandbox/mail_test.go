package sandbox_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/clients/sandbox"
)

// poster speaks HTTP to a provider of mail.
type poster struct {
	t      testing.TB
	url    string
	client *http.Client
	header map[string]string
}

func newPoster(t testing.TB, url string, header map[string]string) *poster {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &poster{t, url, &http.Client{Transport: transport}, header}
}

// do returns the status, 0 for none, the headers and the body.
func (p *poster) do(method, path, body string, extra ...string) (int, http.Header, string) {
	p.t.Helper()
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.GetBody = nil // net/http would repeat a call whose connection was closed
	for name, value := range p.header {
		r.Header.Set(name, value)
	}
	for i := 0; i+1 < len(extra); i += 2 {
		r.Header.Set(extra[i], extra[i+1])
	}
	response, err := p.client.Do(r)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			p.t.Errorf("%v", err)
		}
		return 0, nil, ""
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(content)
}

func newSES(t testing.TB, config sandbox.SESConfig) (*sandbox.SES, *poster) {
	t.Helper()
	s, err := sandbox.NewSES(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, newPoster(t, s.URL(), map[string]string{"Authorization": "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/ses/aws4_request, Signature=x"})
}

// sesMail is a request to SES for a tenant's mail.
func sesMail(tenant string, to ...string) string {
	raw := "From: a@example.com\r\nHeadgate-Tenant: " + tenant + "\r\nHeadgate-Job: 018f\r\nIdempotency-Key: k\r\n\r\nhi\r\n"
	body, _ := json.Marshal(map[string]any{
		"Destination": map[string]any{"ToAddresses": to},
		"Content":     map[string]any{"Raw": map[string]any{"Data": base64.StdEncoding.EncodeToString([]byte(raw))}},
	})
	return string(body)
}

const sesPath = "/v2/email/outbound-emails"

func TestSESAnswers(t *testing.T) {
	s, p := newSES(t, sandbox.SESConfig{AccessKeyID: "AKID", Senders: []string{"example.com"}})
	many := make([]string, 51)
	for i := range many {
		many[i] = "x@y.z"
	}
	unverified := strings.Replace(sesMail("acme", "x@y.z"), "{", `{"FromEmailAddress":"a@other.example",`, 1)
	for name, tt := range map[string]struct {
		method, path, body, key string
		status                  int
		kind, words             string
	}{
		"taken":        {"POST", sesPath, sesMail("acme", "x@y.z"), "", 200, "", "MessageId"},
		"unsigned":     {"POST", sesPath, sesMail("acme", "x@y.z"), "none", 403, "MissingAuthenticationTokenException", "Missing Authentication Token"},
		"another key":  {"POST", sesPath, sesMail("acme", "x@y.z"), "AWS4-HMAC-SHA256 Credential=OTHER/x", 403, "UnrecognizedClientException", "security token"},
		"nobody":       {"POST", sesPath, sesMail("acme"), "", 400, "BadRequestException", "'To'"},
		"many":         {"POST", sesPath, sesMail("acme", many...), "", 400, "BadRequestException", "exceeds 50"},
		"no address":   {"POST", sesPath, sesMail("acme", "x"), "", 400, "BadRequestException", "domain"},
		"not of ascii": {"POST", sesPath, sesMail("acme", "jürgen@y.z"), "", 400, "BadRequestException", "Local"},
		"no content":   {"POST", sesPath, `{"FromEmailAddress":"a@example.com"}`, "", 400, "BadRequestException", "Content"},
		"no mail":      {"POST", sesPath, `{"Content":{"Raw":{"Data":"eA=="}}}`, "", 400, "BadRequestException", "raw"},
		"no json":      {"POST", sesPath, `{`, "", 400, "SerializationException", "{}"},
		"unverified":   {"POST", sesPath, unverified, "", 400, "MessageRejected", "not verified"},
		"elsewhere":    {"POST", "/", "", "", 404, "UnknownOperationException", "{}"},
		"account":      {"GET", "/v2/email/account", "", "", 200, "", `"Max24HourSend":-1`},
	} {
		var extra []string
		if tt.key != "" {
			extra = []string{"Authorization", tt.key}
		}
		status, header, body := p.do(tt.method, tt.path, tt.body, extra...)
		if status != tt.status || header.Get("X-Amzn-ErrorType") != tt.kind || !strings.Contains(body, tt.words) || header.Get("X-Amzn-RequestId") == "" {
			t.Errorf("%s: %d %q %s", name, status, header.Get("X-Amzn-ErrorType"), body)
		}
	}
	if s.Taken() != 1 || s.Stats()["acme"] != (sandbox.Stats{Accepted: 1}) {
		t.Errorf("%d taken, %+v", s.Taken(), s.Stats())
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault without a meaning was taken")
		}
	}()
	s.FailAs(1, "Nonsense")
}

// Recipients are counted; a mail for which there is any room goes whole; a refusal
// uses nothing up.
func TestSESLimits(t *testing.T) {
	s, p := newSES(t, sandbox.SESConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.001, Burst: 4}}, Daily: 7})
	try := func(status int, words string, recipients int) {
		t.Helper()
		got, _, body := p.do("POST", sesPath, sesMail("acme", strings.Split(strings.Repeat("x@y.z,", recipients)+"x@y.z", ",")[:recipients]...))
		if got != status || !strings.Contains(body, words) {
			t.Errorf("%d %s; want %d %s", got, body, status, words)
		}
	}
	try(200, "MessageId", 3)
	try(200, "MessageId", 3)
	try(429, `{"message":"Maximum sending rate exceeded."}`, 1)
	s.SetAccountLimit(sandbox.Limit{})
	try(200, "MessageId", 5)
	try(429, `{"message":"Daily message quota exceeded."}`, 1)
	if _, _, body := p.do("GET", "/v2/email/account", ""); !strings.Contains(body, `"SentLast24Hours":11`) || !strings.Contains(body, `"Max24HourSend":7`) {
		t.Error(body)
	}
	if got := s.Stats()["acme"]; got != (sandbox.Stats{Accepted: 3, Rejected: 2}) {
		t.Errorf("%+v", got)
	}
	calls := s.Calls()
	if got := calls[0]; got.Job != "018f" || got.Key != "k" || got.Status != 200 || calls[4].Status != 429 || len(calls) != 5 {
		t.Errorf("%+v", calls)
	}
}

func TestMailFaults(t *testing.T) {
	s, p := newSES(t, sandbox.SESConfig{})
	s.FailAs(1, "SendingPaused")
	if status, header, _ := p.do("POST", sesPath, sesMail("acme", "x@y.z")); status != 400 || header.Get("X-Amzn-ErrorType") != "SendingPausedException" {
		t.Error(status, header)
	}
	s.Fail(1, 500)
	if status, header, _ := p.do("POST", sesPath, sesMail("acme", "x@y.z")); status != 500 || header.Get("X-Amzn-ErrorType") != "InternalFailure" {
		t.Error(status, header)
	}
	s.Fail(1, 7) // no status at all
	if status, _, _ := p.do("POST", sesPath, sesMail("acme", "x@y.z")); status != 500 {
		t.Error(status)
	}
	s.Drop(1)
	if status, _, _ := p.do("POST", sesPath, sesMail("acme", "x@y.z")); status != 0 || s.Taken() != 0 {
		t.Error(status, s.Taken())
	}
	s.DropAnswers(1)
	if status, _, _ := p.do("POST", sesPath, sesMail("acme", "x@y.z")); status != 0 || s.Taken() != 1 {
		t.Error(status, s.Taken())
	}
	if got := s.Stats()["acme"]; got != (sandbox.Stats{Accepted: 1, Failed: 4}) {
		t.Errorf("%+v", got)
	}
}

const resendMail = `{"from":"A <a@example.com>","to":["x@y.z"],"subject":"s","text":"t"}`

func newResend(t testing.TB, config sandbox.ResendConfig) (*sandbox.Resend, *poster) {
	t.Helper()
	s, err := sandbox.NewResend(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, newPoster(t, s.URL(), map[string]string{"Authorization": "Bearer re_1", "Headgate-Tenant": "acme"})
}

func TestResendAnswers(t *testing.T) {
	s, p := newResend(t, sandbox.ResendConfig{APIKey: "re_1", Domains: []string{"example.com"}})
	for name, tt := range map[string]struct {
		method, path, body string
		extra              []string
		status             int
		words              string
	}{
		"taken":       {"POST", "/emails", resendMail, nil, 200, `{"id":"`},
		"no key":      {"POST", "/emails", resendMail, []string{"Authorization", "x"}, 401, "missing_api_key"},
		"another key": {"POST", "/emails", resendMail, []string{"Authorization", "Bearer re_2"}, 403, "invalid_api_key"},
		"elsewhere":   {"POST", "/", resendMail, nil, 404, "not_found"},
		"method":      {"GET", "/emails", "", nil, 405, "method_not_allowed"},
		"no json":     {"POST", "/emails", "{", nil, 400, "validation_error"},
		"no sender":   {"POST", "/emails", `{"to":["x@y.z"],"text":"t"}`, nil, 422, "invalid_from_address"},
		"no text":     {"POST", "/emails", `{"from":"a@example.com","to":["x@y.z"]}`, nil, 422, "missing_required_field"},
		"no file":     {"POST", "/emails", `{"from":"a@example.com","to":["x@y.z"],"text":"t","attachments":[{}]}`, nil, 422, "invalid_attachment"},
		"unverified":  {"POST", "/emails", `{"from":"a@b.c","to":["x@y.z"],"text":"t"}`, nil, 403, "b.c domain is not verified"},
		"long key":    {"POST", "/emails", resendMail, []string{"Idempotency-Key", strings.Repeat("k", 257)}, 400, "invalid_idempotency_key"},
		"many":        {"POST", "/emails", strings.Replace(resendMail, `"x@y.z"`, strings.Repeat(`"x@y.z",`, 50)+`"x@y.z"`, 1), nil, 422, "50"},
	} {
		if status, _, body := p.do(tt.method, tt.path, tt.body, tt.extra...); status != tt.status || !strings.Contains(body, tt.words) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if s.Taken() != 1 || s.Stats()["acme"] != (sandbox.Stats{Accepted: 1}) {
		t.Errorf("%d taken, %+v", s.Taken(), s.Stats())
	}
}

func TestResendKeys(t *testing.T) {
	s, p := newResend(t, sandbox.ResendConfig{})
	_, _, first := p.do("POST", "/emails", resendMail, "Idempotency-Key", "k")
	if status, _, again := p.do("POST", "/emails", resendMail, "Idempotency-Key", "k"); status != 200 || again != first {
		t.Errorf("%d %s; want %s", status, again, first)
	}
	if status, _, body := p.do("POST", "/emails", resendMail+" ", "Idempotency-Key", "k"); status != 409 || !strings.Contains(body, "invalid_idempotent_request") {
		t.Errorf("%d %s", status, body)
	}
	s.FailAs(1, "internal_server_error") // of which nothing is kept
	if status, _, body := p.do("POST", "/emails", resendMail, "Idempotency-Key", "l"); status != 500 || !strings.Contains(body, `"statusCode":500`) {
		t.Errorf("%d %s", status, body)
	}
	p.do("POST", "/emails", resendMail, "Idempotency-Key", "l")
	if s.Taken() != 2 {
		t.Errorf("%d mails of two keys", s.Taken())
	}
}

func TestResendLimits(t *testing.T) {
	_, p := newResend(t, sandbox.ResendConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 2}}, Daily: 3, Monthly: 100})
	_, header, _ := p.do("POST", "/emails", resendMail)
	if header.Get("Ratelimit-Limit") != "2" || header.Get("Ratelimit-Remaining") != "1" || header.Get("Retry-After") != "" {
		t.Errorf("%v", header)
	}
	p.do("POST", "/emails", strings.Replace(resendMail, `"to"`, `"cc":["c@y.z"],"to"`, 1))
	status, _, body := p.do("POST", "/emails", resendMail)
	if status != 429 || !strings.Contains(body, "daily_quota_exceeded") {
		t.Errorf("%d %s", status, body)
	}
	_, p = newResend(t, sandbox.ResendConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 1}}, Monthly: 1})
	p.do("POST", "/emails", resendMail)
	if status, _, body := p.do("POST", "/emails", resendMail); status != 429 || !strings.Contains(body, "monthly_quota_exceeded") {
		t.Errorf("%d %s", status, body)
	}
	s, p := newResend(t, sandbox.ResendConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.5, Burst: 1}}})
	p.do("POST", "/emails", resendMail)
	status, header, body = p.do("POST", "/emails", resendMail)
	if status != 429 || !strings.Contains(body, "rate_limit_exceeded") || header.Get("Retry-After") != "2" {
		t.Errorf("%d %v %s", status, header, body)
	}
	if got := s.Stats()["acme"]; got != (sandbox.Stats{Accepted: 1, Rejected: 1}) {
		t.Errorf("%+v", got)
	}
}

// Under load, what was taken keeps to the law, in recipients, with as many over it
// as the last mail may have.
func TestSESPolicesUnderLoad(t *testing.T) {
	limit := sandbox.Limit{Rate: 400, Burst: 20}
	s, p := newSES(t, sandbox.SESConfig{Config: sandbox.Config{Account: limit}})
	var senders sync.WaitGroup
	for i := range 8 {
		senders.Go(func() {
			for range 40 {
				p.do("POST", sesPath, sesMail(fmt.Sprint(i), "x@y.z", "v@y.z"))
			}
		})
	}
	senders.Wait()
	var recipients []sandbox.Call
	for _, call := range s.Calls() {
		if call.Accepted {
			recipients = append(recipients, call, call)
		}
	}
	if got, most := sandbox.Excess(recipients, limit), limit.Rate*0.005+1+1e-3; got > most || got < 0 {
		t.Errorf("the excess is %v; up to %v is allowed, and this load must reach it", got, most)
	}
	if s.Taken() != len(recipients)/2 {
		t.Errorf("%d taken, %d in the log", s.Taken(), len(recipients)/2)
	}
}

func ExampleNewSES() {
	provider, err := sandbox.NewSES(sandbox.SESConfig{Daily: 200})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	fmt.Println(provider.Taken())
	// Output: 0
}

func ExampleNewResend() {
	provider, err := sandbox.NewResend(sandbox.ResendConfig{APIKey: "re_123", Daily: 100})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	fmt.Println(provider.Taken())
	// Output: 0
}
