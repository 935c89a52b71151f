package email

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/smithy-go"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
)

func newSES(t testing.TB, endpoint string, change func(c *SESConfig)) *SES {
	t.Helper()
	config := SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Endpoint: endpoint}
	if change != nil {
		change(&config)
	}
	s, err := NewSES(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newSESSandbox(t testing.TB, config sandbox.SESConfig) (*sandbox.SES, *SES) {
	t.Helper()
	provider, err := sandbox.NewSES(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	return provider, newSES(t, provider.URL(), nil)
}

func TestNewSES(t *testing.T) {
	// Nothing of this machine's own account.
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	good := SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "hunter22"}
	for name, change := range map[string]func(c *SESConfig){
		"region:":        func(c *SESConfig) { c.Region = "eu/../" },
		"region: it is":  func(c *SESConfig) { c.Region = "" },
		"access key:":    func(c *SESConfig) { c.AccessKeyID = "" },
		"session token:": func(c *SESConfig) { c.AccessKeyID, c.SecretAccessKey, c.SessionToken = "", "", "hunter22" },
		"endpoint:":      func(c *SESConfig) { c.Endpoint = "http://example.com" },
		"negative":       func(c *SESConfig) { c.Timeout = -1 },
	} {
		config := good
		change(&config)
		if _, err := NewSES(config); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, endpoint := range []string{"https://me:pw@example.com", "ftp://example.com", "://", "https://", "https://example.com/?x=1"} {
		if _, err := NewSES(SESConfig{Region: "eu-central-1", Endpoint: endpoint}); err == nil {
			t.Errorf("%s was taken", endpoint)
		}
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	s, err := NewSES(SESConfig{}) // all from the environment, and nothing asked of it yet
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// tap keeps the bodies of what a provider was sent.
type tap struct {
	http.Handler
	mu      sync.Mutex
	bodies  [][]byte
	headers []http.Header
}

func (tap *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	tap.mu.Lock()
	tap.bodies, tap.headers = append(tap.bodies, body), append(tap.headers, r.Header)
	tap.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	tap.Handler.ServeHTTP(w, r)
}

func TestSESSends(t *testing.T) {
	provider, _ := newSESSandbox(t, sandbox.SESConfig{AccessKeyID: "AKIDEXAMPLE", Senders: []string{"example.com"}})
	tap := &tap{Handler: provider}
	server := httptest.NewServer(tap)
	defer server.Close()
	s := newSES(t, server.URL, nil)
	m := Message{
		From: "Änn <ann@example.com>", To: Addresses{"x@y.z", "X <x@y.z>", `"a b"@y.z`}, CC: Addresses{"c@y.z", "x@y.z"}, BCC: Addresses{"secret@y.z"},
		ReplyTo: Addresses{"r@y.z"}, Subject: "Grüße", Text: "text", HTML: "<p>ü</p>", Headers: map[string]string{"X-Campaign": "spring"},
		Attachments: []Attachment{{Filename: "f.txt", ContentType: "text/plain", Content: []byte("file")}},
	}
	if err := s.Send(t.Context(), call, m); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		FromEmailAddress string
		Destination      struct{ ToAddresses, CcAddresses, BccAddresses []string }
		Content          struct{ Raw struct{ Data []byte } }
	}
	if err := json.Unmarshal(tap.bodies[0], &sent); err != nil {
		t.Fatal(err)
	}
	if sent.FromEmailAddress != "ann@example.com" || !slices.Equal(sent.Destination.ToAddresses, []string{"x@y.z", `"a b"@y.z`}) ||
		!slices.Equal(sent.Destination.CcAddresses, []string{"c@y.z"}) || !slices.Equal(sent.Destination.BccAddresses, []string{"secret@y.z"}) {
		t.Errorf("%+v", sent)
	}
	if bytes.Contains(sent.Content.Raw.Data, []byte("secret@")) {
		t.Error("a blind copy can be seen")
	}
	parsed, err := mail.ReadMessage(bytes.NewReader(sent.Content.Raw.Data))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Headgate-Job": "018f", "Headgate-Attempt": "2", "X-Campaign": "spring", "Reply-To": "<r@y.z>"} {
		if got := parsed.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	calls := provider.Calls()
	if got := calls[0]; got.Tenant != call.Tenant || got.Job != call.Job || got.Attempt != "2" || got.Key != call.IdempotencyKey || !got.Accepted {
		t.Errorf("%+v", got)
	}
	if got := m.Costs()["recipients"]; got != 4 {
		t.Errorf("%d recipients are estimated", got)
	}
}

// What SES would not take never reaches it, and the error says which field.
func TestSESRefusesBefore(t *testing.T) {
	provider, s := newSESSandbox(t, sandbox.SESConfig{})
	change := func(f func(m *Message)) Message { m := plain(); f(&m); return m }
	many := make(Addresses, 51)
	for i := range many {
		many[i] = strings.Repeat("x", i+1) + "@y.z"
	}
	for want, m := range map[string]Message{
		"from: ":        change(func(m *Message) { m.From = "a@b.c\r\nBcc: evil@x.y" }),
		"to: 51":        change(func(m *Message) { m.To = many }),
		"to: 52":        change(func(m *Message) { m.To, m.CC = many[:26], slices.Concat(many[26:], Addresses{"one@more.z"}) }),
		"not ASCII":     change(func(m *Message) { m.To = Addresses{"jürgen@example.com"} }),
		"X-Ses-Source":  change(func(m *Message) { m.Headers = map[string]string{"x-ses-source-arn": "arn:aws:ses:x"} }),
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

// The SDK's own errors come out of the sandbox's answers, and out of ours.
func TestSESErrorTypes(t *testing.T) {
	provider, s := newSESSandbox(t, sandbox.SESConfig{})
	is := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	for name, tt := range map[string]struct {
		as   func(error) bool
		want string
	}{
		"AccountSuspended":          {is(new(*types.AccountSuspendedException)), "account exhausted"},
		"BadRequest":                {is(new(*types.BadRequestException)), "permanent"},
		"LimitExceeded":             {is(new(*types.LimitExceededException)), "retryable"},
		"MailFromDomainNotVerified": {is(new(*types.MailFromDomainNotVerifiedException)), "permanent"},
		"MessageRejected":           {is(new(*types.MessageRejected)), "permanent"},
		"NotFound":                  {is(new(*types.NotFoundException)), "permanent"},
		"SendingPaused":             {is(new(*types.SendingPausedException)), "account exhausted"},
		"TooManyRequests":           {is(new(*types.TooManyRequestsException)), "account throttled"},
		"DailyQuota":                {is(new(*types.TooManyRequestsException)), "account exhausted"},
		"Throttling":                {is(new(*smithy.GenericAPIError)), "account throttled"},
		"InternalFailure":           {is(new(*smithy.GenericAPIError)), "retryable"},
		"ServiceUnavailable":        {is(new(*smithy.GenericAPIError)), "retryable"},
		"AccessDenied":              {func(error) bool { return true }, "postponed"},
	} {
		provider.FailAs(1, name)
		err := s.Send(t.Context(), call, plain())
		if got := outcomes.Of(err); got != tt.want || !tt.as(err) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Errorf("when all is well again: %v", err)
	}
}

func TestSESLimits(t *testing.T) {
	provider, s := newSESSandbox(t, sandbox.SESConfig{Config: sandbox.Config{Account: sandbox.Limit{Rate: 0.01, Burst: 3}}, Daily: 4})
	m := plain()
	m.CC = Addresses{"c@y.z", "d@y.z"}
	quota, err := s.Quota(t.Context())
	if want := (SESQuota{PerSecond: 0.01, PerDay: 4, Sending: true, Production: true}); err != nil || quota != want {
		t.Errorf("%+v, %v", quota, err)
	}
	if err := s.Send(t.Context(), call, m); err != nil {
		t.Fatal(err)
	}
	err = s.Send(t.Context(), call, plain())
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); !ok || !throttled.WholeAccount() {
		t.Errorf("three recipients used the burst: %v", err)
	}
	provider.SetAccountLimit(sandbox.Limit{})
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	err = s.Send(t.Context(), call, plain())
	if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); !ok || !exhausted.Account || exhausted.After != 0 {
		t.Errorf("%v", err)
	}
	if quota, err := s.Quota(t.Context()); err != nil || quota.LastDay != 4 {
		t.Errorf("%+v, %v", quota, err)
	}
	if got := provider.Stats()[call.Tenant]; got != (sandbox.Stats{Accepted: 2, Rejected: 2}) || provider.Taken() != 2 {
		t.Errorf("%+v, %d taken", got, provider.Taken())
	}
}

func TestSESQuotaOfNone(t *testing.T) {
	provider, s := newSESSandbox(t, sandbox.SESConfig{})
	if quota, err := s.Quota(t.Context()); err != nil || quota.PerDay != 0 || quota.PerSecond == 0 {
		t.Errorf("%+v, %v", quota, err)
	}
	provider.Close()
	if _, err := s.Quota(t.Context()); outcomes.Of(err) != "retryable" {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
}

// httpSenders are those that speak HTTP, each before a handler of the test's.
func httpSenders(t *testing.T, timeout time.Duration, handler http.HandlerFunc) map[string]func(context.Context) error {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	ses := newSES(t, server.URL, func(c *SESConfig) { c.Timeout = timeout })
	resend, err := NewResend(ResendConfig{URL: server.URL, APIKey: "re_123", Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resend.Close)
	return map[string]func(context.Context) error{
		"ses":    func(ctx context.Context) error { return ses.Send(ctx, call, plain()) },
		"resend": func(ctx context.Context) error { return resend.Send(ctx, call, plain()) },
	}
}

// Without an answer, what counts is whether the message went out.
func TestNoAnswer(t *testing.T) {
	var calls atomic.Int32
	for name, send := range httpSenders(t, 0, func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}) {
		calls.Store(0)
		if err := send(t.Context()); outcomes.Of(err) != "unknown" || calls.Load() != 1 {
			t.Errorf("%s: cut after the message: %s after %d calls: %v", name, outcomes.Of(err), calls.Load(), err)
		}
	}
	for _, name := range []string{"ses", "resend"} {
		silent.Call(t, func(timeout time.Duration) bool {
			var calls atomic.Int32
			err := httpSenders(t, timeout, func(_ http.ResponseWriter, r *http.Request) {
				if silent.Whole(r) {
					calls.Add(1)
				}
				<-r.Context().Done()
			})[name](t.Context())
			if calls.Load() > 0 && outcomes.Of(err) != "unknown" || !strings.Contains(err.Error(), "gave up after "+timeout.String()) {
				t.Errorf("%s: time is up: %s: %v", name, outcomes.Of(err), err)
			}
			return outcomes.Of(err) == "unknown"
		})
	}
	arrived := make(chan struct{}, 2)
	for name, send := range httpSenders(t, 0, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if err := send(ctx); outcomes.Of(err) != "unknown" || errors.Is(err, context.Canceled) {
			t.Errorf("%s: the worker ends after the message: %s: %v", name, outcomes.Of(err), err)
		}
		if err := send(ctx); outcomes.Of(err) != "error" || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the worker ends before: %s: %v", name, outcomes.Of(err), err)
		}
	}
	s := newSES(t, "http://127.0.0.1:1", nil)
	if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != "retryable" {
		t.Errorf("nobody there: %s: %v", outcomes.Of(err), err)
	}
}

func TestHTTPConnectionsAreKept(t *testing.T) {
	var addresses sync.Map
	for name, send := range httpSenders(t, 0, func(w http.ResponseWriter, r *http.Request) {
		addresses.Store(r.RemoteAddr, true)
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{}`)
	}) {
		addresses.Clear()
		for range 5 {
			if err := send(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		n := 0
		addresses.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%s: %d connections", name, n)
		}
	}
}

func TestSESCredentialsNotFound(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	// What the container's endpoint of credentials is sent is not sent to SES.
	container := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer container.Close()
	// A program that is the source may print anything.
	program := t.TempDir() + "/config"
	if err := os.WriteFile(program, []byte("[default]\ncredential_process = echo CANARY\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string][2]string{
		"no source": {}, "the source refuses": {"AWS_CONTAINER_CREDENTIALS_FULL_URI", container.URL}, "the source says something else": {"AWS_CONFIG_FILE", program},
	} {
		t.Run(name, func(t *testing.T) {
			if of[0] != "" {
				t.Setenv(of[0], of[1])
			}
			s, err := NewSES(SESConfig{Region: "eu-central-1", Endpoint: "http://127.0.0.1:1"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			err = s.Send(t.Context(), call, plain())
			refused, is := errors.AsType[*clients.ExhaustedError](err)
			if _, uncalled := errors.AsType[*clients.NotCalledError](err); !is || !refused.Account || !uncalled || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%s: %v", outcomes.Of(err), err)
			}
		})
	}
}

func ExampleNewSES() {
	provider, err := sandbox.NewSES(sandbox.SESConfig{Daily: 200})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	sender, err := NewSES(SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Endpoint: provider.URL()})
	if err != nil {
		panic(err)
	}
	defer sender.Close()
	m := Message{From: "shop@example.com", To: Addresses{"you@example.net"}, CC: Addresses{"me@example.net"}, Subject: "hi", Text: "hello"}
	err = sender.Send(context.Background(), clients.Call{Job: "1", Tenant: "acme", Attempt: 1}, m)
	quota, _ := sender.Quota(context.Background())
	fmt.Println(err, m.Costs(), quota.LastDay, "of", quota.PerDay)
	// Output: <nil> map[recipients:2] 2 of 200
}
