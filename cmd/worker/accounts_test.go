package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/credentials"
	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/worker"
)

// calling makes the handlers of a worker, whose calls the test makes itself.
func calling(t *testing.T, c config, file string) (call func(kind, tenant, payload string, with ...queue.Account) (lifecycle.Outcome, error), told handled) {
	t.Helper()
	for name, d := range map[*time.Duration]time.Duration{
		&c.BreakerPause: time.Minute, &c.WebhookTimeout: 5 * time.Second, &c.AITimeout: 5 * time.Second,
		&c.SMTPTimeout: 5 * time.Second, &c.SESTimeout: 5 * time.Second, &c.ResendTimeout: 5 * time.Second, &c.StripeTimeout: 5 * time.Second,
	} {
		if *name == 0 {
			*name = d
		}
	}
	if file != "" {
		c.CredentialsFile = filepath.Join(t.TempDir(), "credentials.yaml")
		if err := os.WriteFile(c.CredentialsFile, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, told := handling(t, "q", c)
	return func(kind, tenant, payload string, with ...queue.Account) (lifecycle.Outcome, error) {
		job := queue.Job{Kind: kind, Tenant: tenant, Payload: json.RawMessage(payload)}
		for _, account := range with {
			job.Account = account
		}
		return w.Call(t.Context(), job)
	}, told
}

// handled is what the handlers of a worker report.
type handled struct {
	*worker.Details
	registry *prometheus.Registry
	metrics  *metrics.Metrics
}

// works runs a worker until the end of the test.
func works(t *testing.T, w *queue.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// handling makes a worker of a queue with the handlers of a configuration.
func handling(t *testing.T, name string, c config) (*queue.Worker, handled) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	options, err := queue.ParseRedisURL(redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	w, err := queue.New(queue.Config{Redis: options, Queues: []string{name}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	store, err := c.credentials(logger)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	seen := handled{registry: registry, metrics: metrics.New(registry)}
	seen.Details = worker.NewDetails(seen.metrics)
	stop, err := handlers(w, c, store, endpoints.New(redistest.Shared(t).Client(), logger), seen.Details)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return w, seen
}

// keys plays all providers over HTTP, and writes down who called with what.
type keys struct {
	mu     sync.Mutex
	seen   map[string]string // Headgate-Tenant -> the key
	status map[string]int    // of the key; 0 means that it is right
}

func newKeys(t *testing.T) (*keys, string) {
	k := &keys{seen: map[string]string{}, status: map[string]int{}}
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	return k, server.URL
}

func (k *keys) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if signed := r.Header.Get("Webhook-Signature"); signed != "" {
		key = fmt.Sprint(len(strings.Fields(signed)), " signatures")
	}
	if _, after, ok := strings.Cut(key, "Credential="); ok {
		key, _, _ = strings.Cut(after, "/")
	}
	k.mu.Lock()
	k.seen[r.Header.Get("Headgate-Tenant")] = key
	status := k.status[key]
	k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"name":"invalid_api_key","error":{"message":"no"}}`)
		return
	}
	fmt.Fprint(w, `{"id":"pi_1","object":"payment_intent","status":"succeeded","amount":5,"currency":"usd",
		"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}`)
}

func (k *keys) last(tenant string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.seen[tenant]
	delete(k.seen, tenant)
	return key
}

const (
	aiPayload      = `{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}`
	paymentPayload = `{"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_card_visa"}`
	signingSecret  = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
)

// TestTenantAccounts: each tenant's calls are made with its own secrets, and with
// the worker's only where it has nothing of its own.
func TestTenantAccounts(t *testing.T) {
	provider, url := newKeys(t)
	call, _ := calling(t, config{
		BreakerFailures: 5, WebhookAllowPrivate: true, AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-worker",
		StripeKey: "sk_worker", StripeURL: url, EmailProvider: "resend", ResendAPIKey: "re_worker", ResendURL: url,
	}, `tenants:
  acme:
    webhook: {secrets: [`+signingSecret+`, `+signingSecret+`]}
    ai: {api_key: sk-acme}
    payment: {key: sk_acme}
    email: {api_key: re_acme}
  globex: {webhook: none, ai: none, payment: none, email: none}
`)
	for kind, tt := range map[string]struct{ payload, worker, acme string }{
		"webhook": {`{"url":"` + url + `"}`, "", "2 signatures"},
		"ai":      {aiPayload, "sk-worker", "sk-acme"},
		"payment": {paymentPayload, "sk_worker", "sk_acme"},
		"email":   {mail, "re_worker", "re_acme"},
	} {
		t.Run(kind, func(t *testing.T) {
			for tenant, want := range map[string]string{"acme": tt.acme, "initech": tt.worker} {
				if outcome, err := call(kind, tenant, tt.payload); outcome != lifecycle.Done || provider.last(tenant) != want {
					t.Errorf("%s: %s, %v; want the key %s", tenant, outcome, err, want)
				}
			}
			outcome, err := call(kind, "globex", tt.payload)
			exhausted, ok := errors.AsType[*clients.ExhaustedError](err)
			if outcome != lifecycle.Throttled || !ok || exhausted.After != clients.KeyPause || exhausted.Account ||
				!strings.Contains(err.Error(), "no credentials for "+kind+" of tenant globex: it has none") || provider.last("globex") != "" {
				t.Errorf("globex: %s, %v", outcome, err)
			}
		})
	}
	// A tenant's refused key holds that tenant, the worker's all of them.
	provider.status = map[string]int{"sk-acme": 401, "sk-worker": 401, "re_acme": 401, "re_worker": 401, "sk_acme": 401, "sk_worker": 401}
	for kind, payload := range map[string]string{"ai": aiPayload, "payment": paymentPayload, "email": mail} {
		for tenant, all := range map[string]bool{"acme": false, "initech": true} {
			outcome, err := call(kind, tenant, payload)
			exhausted, ok := errors.AsType[*clients.ExhaustedError](err)
			if outcome != lifecycle.Throttled || !ok || exhausted.Account != all || exhausted.After < clients.KeyPause {
				t.Errorf("%s of %s: %s, %v", kind, tenant, outcome, err)
			}
		}
	}
}

// TestAccountOfTheTenantOnly: a job that may use only its tenant's account is not called with the
// worker's, and one that may use the worker's touches no payments of others there.
func TestAccountOfTheTenantOnly(t *testing.T) {
	provider, url := newKeys(t)
	call, _ := calling(t, config{
		AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-worker", StripeKey: "sk_worker", StripeURL: url,
		EmailProvider: "resend", ResendAPIKey: "re_worker", ResendURL: url,
	}, "tenants: {acme: {payment: {key: sk_acme}, email: {api_key: re_acme}, ai: {api_key: sk-acme}}}")
	for kind, payload := range map[string]string{"payment": paymentPayload, "email": mail, "ai": aiPayload} {
		if outcome, err := call(kind, "acme", payload, queue.OwnAccount); outcome != lifecycle.Done {
			t.Errorf("%s with the tenant's account: %s, %v", kind, outcome, err)
		}
		outcome, err := call(kind, "globex", payload, queue.OwnAccount)
		if outcome != lifecycle.Archived || !strings.Contains(err.Error(), "tenant globex has no "+kind+" account of its own") || provider.last("globex") != "" {
			t.Errorf("%s with the worker's account: %s, %v; the last key was %q", kind, outcome, err, provider.last("globex"))
		}
		if outcome, err := call(kind, "initech", payload, queue.SharedAccount); outcome != lifecycle.Done {
			t.Errorf("%s with the worker's account, which the job may use: %s, %v", kind, outcome, err)
		}
	}
	stripe := newStripe(t)
	call, _ = calling(t, config{StripeKey: "sk_test", StripeURL: stripe.URL()}, "")
	if outcome, err := call("payment", "acme", paymentPayload, queue.SharedAccount); outcome != lifecycle.Done {
		t.Fatal(outcome, err)
	}
	refund := `{"action":"refund","payment_intent":"` + stripe.Ledger()[0].Intent + `"}`
	if outcome, err := call("payment", "globex", refund, queue.SharedAccount); outcome != lifecycle.Archived || len(stripe.Ledger()) != 1 {
		t.Errorf("a refund of another tenant's payment: %s, %v", outcome, err)
	}
	if outcome, err := call("payment", "globex", refund); outcome != lifecycle.Done {
		t.Errorf("by an operator's job: %s, %v", outcome, err)
	}
}

// newStripe starts a sandbox of Stripe.
func newStripe(t *testing.T) *sandbox.Stripe {
	t.Helper()
	stripe, err := sandbox.NewStripe(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stripe.Close() })
	return stripe
}

// TestNoAccountOfTheWorker: tenants alone have accounts, and others wait.
func TestNoAccountOfTheWorker(t *testing.T) {
	provider, url := newKeys(t)
	c := config{AIProvider: "openai", StripeURL: url, AIBaseURL: "", EmailProvider: "resend", ResendURL: url}
	call, _ := calling(t, c, "tenants: {acme: {payment: {key: sk_acme}, email: {api_key: re_acme}, ai: {api_key: sk-acme}}}")
	for kind, payload := range map[string]string{"payment": paymentPayload, "email": mail} {
		if outcome, err := call(kind, "acme", payload); outcome != lifecycle.Done || provider.last("acme") == "" {
			t.Errorf("%s: %s, %v", kind, outcome, err)
		}
	}
	for kind, payload := range map[string]string{"payment": paymentPayload, "email": mail, "ai": aiPayload} {
		if outcome, err := call(kind, "globex", payload); outcome != lifecycle.Throttled || !strings.Contains(err.Error(), "neither it nor the worker has any") {
			t.Errorf("%s: %s, %v", kind, outcome, err)
		}
	}
}

// TestWrongCredentials: what a provider would not take is refused when the file is
// read.
func TestWrongCredentials(t *testing.T) {
	ses := config{EmailProvider: "ses", SESRegion: "eu-central-1", SESTimeout: time.Second}
	for file, tt := range map[string]struct {
		config config
		want   string
	}{
		"webhook: {secrets: [CANARY]}":                         {config{}, "webhook: secrets[0]: it is not whsec_ and base64"},
		"payment: {key: pk_CANARY}":                            {config{}, "it is a publishable key"},
		"email: {api_key: CANARY}":                             {ses, "access_key_id: it is missing, and ses needs it; secret_access_key: it is missing, and ses needs it; api_key: ses has none"},
		"email: {access_key_id: a, secret_access_key: CANARY}": {config{SMTPAddr: "h:1"}, "username: it is missing, and smtp needs it"},
		"ai: {api_key: CAN ARY\u00e4}":                         {config{AIProvider: "openai"}, "APIKey: it has characters that a header cannot hold"},
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte("tenants: {acme: {"+file+"}}"), 0o600); err != nil {
			t.Fatal(err)
		}
		tt.config.CredentialsFile = path
		_, err := tt.config.credentials(slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "CAN") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", file, err, tt.want)
		}
	}
}

type closed struct{ n *int }

func (c closed) Close() { *c.n++ }

// TestMostAccounts: the clients that are kept are bounded, and those used last stay.
func TestMostAccounts(t *testing.T) {
	var file strings.Builder
	file.WriteString("tenants:\n")
	const tenants = maxAccounts + 50
	for n := range tenants {
		fmt.Fprintf(&file, "  t%d: {payment: {key: sk_%d}}\n", n, n)
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := credentials.Open(path, slog.New(slog.DiscardHandler), func(string, *credentials.Secrets) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	opened, ended := 0, 0
	own := newAccounts(func(*credentials.Secrets) (closed, error) {
		opened++
		return closed{&ended}, nil
	})
	use := func(n int) {
		secrets, err := store.For("payment", fmt.Sprint("t", n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := own.of(secrets, fmt.Sprint("t", n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range tenants {
		use(n)
		use(0)
	}
	if opened != tenants || ended != tenants-maxAccounts {
		t.Errorf("%d opened, %d closed", opened, ended)
	}
	use(tenants - 1)
	use(1) // driven out before
	if opened != tenants+1 {
		t.Errorf("%d opened", opened)
	}
	if own.Close(); ended != tenants+1 {
		t.Errorf("%d closed of %d", ended, opened)
	}
}

// TestFailuresHoldWhatFailed: what fails too often holds the account that the calls were
// made with, and of webhooks the endpoint of the one tenant.
func TestFailuresHoldWhatFailed(t *testing.T) {
	provider, url := newKeys(t)
	provider.status = map[string]int{"": 500, "sk-acme": 500, "sk-worker": 500}
	call, told := calling(t, config{
		BreakerFailures: 2, WebhookAllowPrivate: true, AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-worker",
	}, "tenants: {acme: {ai: {api_key: sk-acme}}}")
	hook := fmt.Sprintf(`{"url":%q}`, url)
	for _, tt := range []struct {
		kind, tenant, payload, holds string
	}{
		{"webhook", "acme", hook, ""},
		{"webhook", "acme", hook, clients.OfEndpoint},
		{"webhook", "globex", hook, ""}, // the same host for another tenant
		{"ai", "acme", aiPayload, ""},
		{"ai", "globex", aiPayload, ""},
		{"ai", "acme", aiPayload, clients.OfTenant},
		{"ai", "initech", aiPayload, clients.OfAccount},
	} {
		outcome, err := call(tt.kind, tt.tenant, tt.payload)
		held, _ := errors.AsType[*clients.HeldError](err)
		if outcome != lifecycle.Retried || (held != nil) != (tt.holds != "") || held != nil && held.Who != tt.holds {
			t.Errorf("%s of %s: %s, %v, held %+v; want %q", tt.kind, tt.tenant, outcome, err, held, tt.holds)
		}
	}
	page := httptest.NewRecorder()
	metrics.Handler(told.registry).ServeHTTP(page, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	text := page.Body.String()
	if !strings.Contains(text, "headgate_breaker_opened_total{kind=\"webhook\"} 1\n") || !strings.Contains(text, "headgate_breaker_opened_total{kind=\"ai\"} 2\n") ||
		strings.Contains(text, "127.0.0") {
		t.Error(text)
	}
}

// TestUsedUpAccounts: an account that is used up holds the tenant whose own it is, or all.
func TestUsedUpAccounts(t *testing.T) {
	provider, url := newKeys(t)
	provider.status = map[string]int{"sk-acme": 402, "sk-worker": 402}
	call, _ := calling(t, config{AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-worker"}, "tenants: {acme: {ai: {api_key: sk-acme}}}")
	for tenant, all := range map[string]bool{"acme": false, "globex": true} {
		outcome, err := call("ai", tenant, aiPayload)
		if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); outcome != lifecycle.Throttled || !ok || exhausted.Account != all {
			t.Errorf("%s: %s, %v", tenant, outcome, err)
		}
	}
}
