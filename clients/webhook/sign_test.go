package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/headgate/headgate/clients"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_c2Vjb25kLXNlY3JldC1vZi10aGUtcm90YXRpb24="
)

func given(secrets ...string) func(context.Context, string) ([]string, error) {
	return func(context.Context, string) ([]string, error) { return secrets, nil }
}

// received is what a receiver has to verify.
type received struct {
	header http.Header
	body   []byte
}

// signing returns a function that makes one call and what arrived of it.
func signing(t *testing.T, config Config) (send func(clients.Call, Request) (*received, error)) {
	var got *received
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = &received{r.Header, body}
	})
	s := newSender(t, config)
	return func(call clients.Call, request Request) (*received, error) {
		got = nil
		request.URL = server.URL + "/hook"
		err := s.Send(t.Context(), call, request)
		return got, err
	}
}

func verify(t *testing.T, got *received, secret string) error {
	t.Helper()
	reference, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return reference.Verify(got.body, got.header)
}

func TestSignatures(t *testing.T) {
	const stranger = "whsec_" + "c3RyYW5nZXItc3RyYW5nZXItc3RyYW5nZXItc3RyYW5nZXI="
	for name, tt := range map[string]struct {
		secrets []string
		request Request
	}{
		"json":             {[]string{secretA}, Request{Body: json.RawMessage(`{"a": 1,  "ü":"✉"}`)}},
		"no body":          {[]string{secretA}, Request{}},
		"get":              {[]string{secretA}, Request{Method: "GET"}},
		"text":             {[]string{secretA}, Request{Method: "PUT", Text: "a=1&b=2"}},
		"rotation":         {[]string{secretB, secretA}, Request{Body: json.RawMessage(`[]`)}},
		"without a prefix": {[]string{strings.TrimPrefix(secretA, "whsec_")}, Request{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := signing(t, Config{Secrets: given(tt.secrets...)})(call, tt.request)
			if err != nil {
				t.Fatal(err)
			}
			for i, secret := range tt.secrets {
				if err := verify(t, got, secret); err != nil {
					t.Errorf("secret %d: %v", i+1, err)
				}
			}
			if verify(t, got, stranger) == nil {
				t.Error("a stranger's secret verifies")
			}
			if list := strings.Split(got.header.Get("webhook-signature"), " "); len(list) != len(tt.secrets) {
				t.Errorf("%d signatures for %d secrets", len(list), len(tt.secrets))
			}
			if id := got.header.Get("webhook-id"); id != call.IdempotencyKey {
				t.Errorf("webhook-id: %q", id)
			}
			got.body = append(got.body, ' ')
			if verify(t, got, tt.secrets[0]) == nil {
				t.Error("another body verifies")
			}
		})
	}
}

// The library must not be the only witness: this vector of its tests was computed
// anew with openssl dgst -sha256 -mac HMAC.
func TestSignatureOfAnExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1614265330, 0))) // a bubble's clock begins in 2000
		s := New(Config{Secrets: given(secretA)})
		defer s.Close()
		r, err := http.NewRequest("POST", "http://example.com", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.sign(t.Context(), r, clients.Call{Job: "msg_p5jXN8AQM9LWM0D4loKWxJek"}, []byte(`{"test": 2432232314}`)); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Header.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if got := r.Header.Get("webhook-timestamp"); got != "1614265330" {
			t.Error(got)
		}
	})
}

// All attempts of a job are one message, each with a time of its own.
func TestSignatureOfEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Secrets: given(secretA)})
		defer s.Close()
		var ids, times, signatures []string
		for attempt := range 3 {
			r, err := http.NewRequest("POST", "http://example.com", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.sign(t.Context(), r, clients.Call{Job: "1", Attempt: attempt + 1, IdempotencyKey: "k"}, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if err := verify(t, &received{r.Header, []byte("{}")}, secretA); err != nil {
				t.Error(err)
			}
			ids = append(ids, r.Header.Get("webhook-id"))
			times = append(times, r.Header.Get("webhook-timestamp"))
			signatures = append(signatures, r.Header.Get("webhook-signature"))
			time.Sleep(time.Hour)
		}
		if ids[0] != ids[1] || ids[1] != ids[2] || times[0] == times[1] || signatures[0] == signatures[1] {
			t.Error(ids, times, signatures)
		}
	})
}

func TestMessageID(t *testing.T) {
	for want, call := range map[string]clients.Call{
		"acme:1":          {Job: "j", IdempotencyKey: "acme:1"},
		"j":               {Job: "j"},
		"x%2E1614265330":  {IdempotencyKey: "x.1614265330"}, // could pass for an id and a time
		"x%252E1":         {IdempotencyKey: "x%2E1"},
		"%C3%9C%20%0D%0A": {IdempotencyKey: "Ü \r\n"},
		"":                {},
	} {
		if got := messageID(call); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

func TestSecretsOfTenants(t *testing.T) {
	send := signing(t, Config{Secrets: func(_ context.Context, tenant string) ([]string, error) {
		switch tenant {
		case "a":
			return []string{secretA}, nil
		case "b":
			return []string{secretB}, nil
		case "lost":
			return nil, errors.New("vault:\nno answer")
		case "gone":
			return nil, clients.Permanent(errors.New("no such tenant"))
		}
		return nil, nil
	}})
	for tenant, secret := range map[string]string{"a": secretA, "b": secretB} {
		got, err := send(clients.Call{Job: "1", Tenant: tenant}, Request{})
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(t, got, secret); err != nil {
			t.Error(tenant, err)
		}
	}
	got, err := send(clients.Call{Job: "1", Tenant: "none"}, Request{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		if got.header.Get(name) != "" {
			t.Errorf("%s without a secret", name)
		}
	}
	if got, err := send(clients.Call{Job: "1", Tenant: "lost"}, Request{}); got != nil || kind(err) != "retryable" || err.Error() != "signing secrets: vault: no answer" {
		t.Errorf("sent %v, %s: %v", got != nil, kind(err), err)
	}
	if got, err := send(clients.Call{Job: "1", Tenant: "gone"}, Request{}); got != nil || kind(err) != "permanent" {
		t.Errorf("sent %v, %s: %v", got != nil, kind(err), err)
	}
	if got, err := send(clients.Call{Tenant: "a"}, Request{}); got != nil || kind(err) != "permanent" || !strings.HasPrefix(err.Error(), "webhook-id: ") {
		t.Errorf("sent %v, %s: %v", got != nil, kind(err), err)
	}
}

func TestCheckSecret(t *testing.T) {
	of := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for name, tt := range map[string]struct{ secret, wrong string }{
		"fine":        {secretA, ""},
		"no prefix":   {strings.TrimPrefix(secretA, "whsec_"), ""},
		"shortest":    {of(24), ""},
		"longest":     {of(64), ""},
		"empty":       {"", "its 0 bytes"},
		"too short":   {of(23), "its 23 bytes are not in the range 24 to 64"},
		"too long":    {of(65), "its 65 bytes"},
		"not base64":  {"whsec_CANARY-CANARY", "not whsec_ and base64"},
		"no padding":  {strings.TrimRight(of(32), "="), "not whsec_ and base64"},
		"private key": {"whsk_CANARY", "asymmetric"},
		"public key":  {"whpk_CANARY", "asymmetric"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSecret(tt.secret)
			if (err == nil) != (tt.wrong == "") || err != nil && (!strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "CANARY")) {
				t.Errorf("%v; want %q", err, tt.wrong)
			}
			if err == nil {
				return
			}
			// A call that should be signed is not sent without.
			got, err := signing(t, Config{Secrets: given(secretA, tt.secret)})(call, Request{})
			if got != nil || kind(err) != "retryable" || !strings.HasPrefix(err.Error(), "signing secrets: number 2: ") {
				t.Errorf("sent %v, %s: %v", got != nil, kind(err), err)
			}
		})
	}
	got, err := signing(t, Config{Secrets: given(strings.Split(strings.Repeat(secretA+" ", 8)+secretA, " ")...)})(call, Request{})
	if got != nil || kind(err) != "retryable" {
		t.Errorf("sent %v, %s: %v", got != nil, kind(err), err)
	}
}

func ExampleConfig_secrets() {
	// By reference: the job names its tenant, and the worker knows the secrets.
	secrets := map[string][]string{"acme": {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
	sender := New(Config{Secrets: func(_ context.Context, tenant string) ([]string, error) { return secrets[tenant], nil }})
	defer sender.Close()
	fmt.Println(CheckSecret(secrets["acme"][0]))
	// Output: <nil>
}
