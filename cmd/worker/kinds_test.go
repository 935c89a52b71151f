package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestKinds: a worker that is told of a model and of a Stripe account serves both,
// keeps what they answer, and settles what the model used.
func TestKinds(t *testing.T) {
	server := redistest.Start(t)
	models, err := sandbox.NewOpenAI(sandbox.AIConfig{APIKey: "sk-test", Completion: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer models.Close()
	stripe, err := sandbox.NewStripe()
	if err != nil {
		t.Fatal(err)
	}
	defer stripe.Close()
	const limits = `queues:
  ai:
    kinds: [ai]
    limits: [{name: tokens, per: [tenant], algorithm: token_bucket, rate: 1/h, burst: 2000, unit: tokens}]
  payment: {kinds: [payment]}
`
	for name, value := range map[string]string{
		"AI_PROVIDER": "openai", "AI_BASE_URL": models.URL() + "/v1", "AI_API_KEY": "sk-test",
		"STRIPE_KEY": "sk_test_1", "STRIPE_URL": stripe.URL(), "LOG_FORMAT": "json",
	} {
		t.Setenv(prefix+name, value)
	}
	quietly(t, server.URL(), limits)
	running(t)

	client := queue.NewClient(server.Client())
	enqueue := func(job queue.Job) string {
		t.Helper()
		job.Tenant, job.Retention = "acme", time.Hour
		receipt, err := client.Enqueue(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID
	}
	// Of its estimate alone the second would wait for a thousand hours.
	ask := json.RawMessage(`{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":100}`)
	var asked []string
	for range 2 {
		asked = append(asked, enqueue(queue.Job{Kind: "ai", Payload: ask, Costs: map[string]int64{"tokens": 1200}}))
	}
	paid := enqueue(queue.Job{
		Kind: "payment", Payload: json.RawMessage(`{"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_card_visa"}`),
	})
	for _, id := range asked {
		if result := ended(t, client, "ai", id); result.Outcome != lifecycle.Done || !strings.Contains(string(result.Result), `"usage"`) {
			t.Errorf("completion: %+v, %s", result, result.Result)
		}
	}
	if result := ended(t, client, "payment", paid); result.Outcome != lifecycle.Done || !strings.Contains(string(result.Result), `"pi_`) {
		t.Errorf("payment: %+v, %s", result, result.Result)
	}
	if charges := stripe.Charges(); len(charges) != 1 {
		t.Errorf("%d charges; want one", len(charges))
	}
}

// running runs a worker until the test ends.
func running(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan string, 1)
	go func() {
		_, errText, _ := command(ctx, "run")
		ran <- errText
	}()
	t.Cleanup(func() {
		stop()
		if errText := <-ran; errText != "" {
			t.Error(errText)
		}
	})
}

// ended waits for the end of a job, of which nobody tells this process.
func ended(t *testing.T, client *queue.Client, name, id string) queue.JobResult {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		result, err := client.Result(t.Context(), name, id)
		if err != nil {
			t.Fatal(err)
		}
		if result.State == "completed" || result.State == "archived" {
			return result
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %s has not ended: %+v", id, result)
		}
	}
}

// TestUsedUpAccount: an answer that says that the account has nothing left for now
// holds the queue where the account is all tenants', and the tenant where it is its
// own; a moment that it soon makes up for holds nobody.
func TestUsedUpAccount(t *testing.T) {
	server := redistest.Start(t)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reset := map[string]string{"soon": "100ms"}[r.Header.Get("Headgate-Tenant")]
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Ratelimit-Limit-Requests", "2")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "0")
		w.Header().Set("X-Ratelimit-Reset-Requests", cmp.Or(reset, "20m"))
		fmt.Fprint(w, `{"id":"c","model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":3}}`)
	}))
	defer provider.Close()
	path := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(path, []byte("tenants: {own: {ai: {api_key: sk-own}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AI_PROVIDER": "openai", "AI_BASE_URL": provider.URL, "AI_API_KEY": "sk-test", "CREDENTIALS_FILE": path,
	} {
		t.Setenv(prefix+name, value)
	}
	quietly(t, server.URL(), "queues: {ai: {kinds: [ai]}}")
	running(t)
	client := queue.NewClient(server.Client())
	for i, tenant := range []string{"soon", "own", "shares"} {
		receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "ai", Tenant: tenant, Retention: time.Hour, Payload: json.RawMessage(aiPayload)})
		if err != nil {
			t.Fatal(err)
		}
		if result := ended(t, client, "ai", receipt.ID); result.Outcome != lifecycle.Done {
			t.Fatalf("%+v", result)
		}
		pauses, err := inspect.Pauses(t.Context(), server.Client(), "ai")
		if err != nil || len(pauses) != i {
			t.Fatalf("after the call of %s: %+v, %v; want %d pauses", tenant, pauses, err, i)
		}
		for _, pause := range pauses {
			if ends := time.Until(pause.Until); pause.Tenant != "" && pause.Tenant != "own" || ends < 9*time.Minute || ends > 10*time.Minute {
				t.Errorf("%+v", pause)
			}
		}
	}
}
