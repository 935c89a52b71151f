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
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/email"
	hooks "github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/workers"
	"github.com/headgate/headgate/worker"
)

// readDetails reads what a page would be shown, and fails where a worker could
// not tell it.
func readDetails(t *testing.T, told *worker.Details) (api.WorkerDetails, string) {
	t.Helper()
	text, err := json.Marshal(told.Read())
	if err != nil || len(text) > workers.MaxDetails {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	read, err := api.ReadWorkerDetails(workers.Info{ID: "w", Details: text})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(any(read), told.Read()) {
		t.Errorf("%+v came back as %+v", told.Read(), read)
	}
	return read, string(text)
}

// TestDetails: what answers said of accounts, by whose they are, and who is down;
// never a key, nor a part of a URL that may hold one.
func TestDetails(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Ratelimit-Limit-Requests", "60")
		w.Header().Set("X-Ratelimit-Remaining-Requests", map[bool]string{true: "7", false: "50"}[r.Header.Get("Authorization") == "Bearer sk-CANARY-acme"])
		w.Header().Set("X-Ratelimit-Reset-Requests", "1m0s")
		fmt.Fprint(w, `{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}`)
	}))
	defer provider.Close()
	call, told := calling(t, config{
		BreakerFailures: 1, WebhookAllowPrivate: true, AIProvider: "openai", AIBaseURL: provider.URL, AIAPIKey: "sk-CANARY-worker",
	}, "tenants: {acme: {ai: {api_key: sk-CANARY-acme}}}")
	for _, tenant := range []string{"acme", "initech"} {
		if outcome, err := call("ai", tenant, aiPayload); outcome != lifecycle.Done {
			t.Fatal(outcome, err)
		}
	}
	nobody := "http://" + redistest.FreeAddr(t)
	for range 2 {
		if outcome, _ := call("webhook", "acme", `{"url":"`+nobody+`/CANARY?key=CANARY"}`); outcome == lifecycle.Done {
			t.Fatal("it was taken")
		}
	}
	told.AddQuotas("email", (&sesLimits{known: &email.SESQuota{PerSecond: 14, PerDay: 50_000, LastDay: 60_000}}).quotas)
	told.AddProvider("email", nil)

	read, text := readDetails(t, told.Details)
	if strings.Contains(text, "CANARY") {
		t.Errorf("secrets: %s", text)
	}
	if len(read.Providers) != 3 {
		t.Fatalf("%+v", read)
	}
	webhooks, models, mails := read.Providers[0], read.Providers[1], read.Providers[2]
	if b := webhooks.Breaker; b == nil || webhooks.Kind != "webhook" || b.Opened != 2 || webhooks.Quotas != nil {
		t.Errorf("webhook: %s", text)
	}
	if b := models.Breaker; b == nil || b.Opened != 0 || models.Kind != "ai" || len(models.Quotas) != 2 {
		t.Fatalf("ai: %s", text)
	}
	for i, want := range []api.Quota{{Account: "", Remaining: new(int64(50))}, {Account: "acme", Remaining: new(int64(7)), WindowSeconds: 60}} {
		got := models.Quotas[i]
		if got.Account != want.Account || got.Name != "requests" || got.Limit != 60 || got.Remaining == nil || *got.Remaining != *want.Remaining || time.Until(got.ResetsAt) <= 0 || time.Since(got.SaidAt).Abs() > time.Minute || got.WindowSeconds != want.WindowSeconds {
			t.Errorf("ai: %s", text)
		}
	}
	want := []api.Quota{
		{Name: "recipients/s", Limit: 14, WindowSeconds: 1, LimitName: sesRate},
		{Name: "recipients/24h", Limit: 50_000, Remaining: new(int64(0)), WindowSeconds: 86400, LimitName: sesDay},
	}
	if mails.Breaker != nil || !reflect.DeepEqual(mails.Quotas, want) {
		t.Errorf("email: %s", text)
	}
}

// TestDetailsOfTheDemo: the demo has all kinds of providers to show, and one that
// tells of its quotas.
func TestDetailsOfTheDemo(t *testing.T) {
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	defer providers.close()
	w, err := queue.New(queue.Config{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}, Queues: demoKinds})
	if err != nil {
		t.Fatal(err)
	}
	told := worker.NewDetails(nil)
	stop, err := demoHandlers(w, providers, told)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if outcome, err := w.Call(t.Context(), queue.Job{Kind: "ai", Tenant: "acme", Payload: json.RawMessage(aiPayload)}); outcome != lifecycle.Done {
		t.Fatal(outcome, err)
	}
	read, text := readDetails(t, told)
	if len(read.Providers) != len(demoKinds) {
		t.Error(text)
	}
	for _, p := range read.Providers {
		if (p.Kind == "ai") != (len(p.Quotas) > 0) {
			t.Error(text)
		}
	}
}

// TestRefusalsAreNoAnswers: where no call is made, the error says so, and nothing
// is counted as an answer.
func TestRefusalsAreNoAnswers(t *testing.T) {
	down := "http://" + redistest.FreeAddr(t)
	calls := map[string]func(kind, tenant, payload string, with ...queue.Account) (lifecycle.Outcome, error){}
	for what, c := range map[string]config{
		"resend": {EmailProvider: "resend", ResendAPIKey: "re_x", ResendURL: down, AIProvider: "openai", AIBaseURL: down, AIAPIKey: "sk-x", StripeKey: "sk_x", StripeURL: down, BreakerFailures: 1},
		"smtp":   {EmailProvider: "smtp", SMTPAddr: strings.TrimPrefix(down, "http://"), SMTPTLS: "none", WebhookAllowPrivate: true, BreakerFailures: 1},
		"ses":    {EmailProvider: "ses", SESRegion: "eu-central-1", SESAccessKeyID: "a", SESSecretAccessKey: "b", SESEndpoint: down, BreakerFailures: 1},
	} {
		calls[what], _ = calling(t, c, "tenants: {globex: {email: none, webhook: none}}")
	}
	webhook := fmt.Sprintf(`{"url":%q}`, down)
	for _, test := range []struct {
		with, kind, tenant, payload string
		called                      bool
	}{
		{"resend", "webhook", "a", `{"url":"not one"}`, false},
		{"resend", "webhook", "a", `{"url":"http://127.0.0.1:9/"}`, false}, // private
		{"smtp", "webhook", "a", webhook, true},
		{"smtp", "webhook", "globex", webhook, false},
		{"resend", "email", "a", `{}`, false},
		{"smtp", "email", "a", `{}`, false},
		{"ses", "email", "a", `{}`, false},
		{"ses", "email", "globex", mail, false},
		{"resend", "ai", "a", `{}`, false},
		{"resend", "payment", "a", `{}`, false},
		{"resend", "payment", "a", `1`, false},
		{"resend", "ai", "a", aiPayload, true},
	} {
		_, err := calls[test.with](test.kind, test.tenant, test.payload)
		none, ok := errors.AsType[interface {
			error
			NotCalled() bool
		}](err)
		if err == nil || (ok && none.NotCalled()) == test.called {
			t.Errorf("%s of %s: %v", test.kind, test.payload, err)
		}
	}

	store := endpoints.New(redistest.Shared(t).Client(), slog.New(slog.DiscardHandler))
	store.Gone(t.Context(), "webhook", "a", down, "host")
	send := unlessGone(store, func(context.Context, clients.Call, hooks.Request) error { return nil })
	if none, ok := errors.AsType[*clients.NotCalledError](send(t.Context(), clients.Call{Tenant: "a"}, hooks.Request{URL: down})); !ok {
		t.Errorf("an endpoint that is gone: %v", none)
	}
}
