package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

const mail = `{"from":"a@example.com","to":["b@example.net"],"subject":"hi","text":"hello"}`

// TestEmailProviders: each provider gets the mail. When the answer never comes, a
// provider that knows the key is asked again, and of another a person decides.
func TestEmailProviders(t *testing.T) {
	tests := map[string]struct {
		start func(t *testing.T) *sandbox.Provider
		lost  lifecycle.Outcome
	}{
		"smtp": {func(t *testing.T) *sandbox.Provider {
			post, err := sandbox.NewSMTP()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { post.Close() })
			t.Setenv("HEADGATE_SMTP_ADDR", post.Addr())
			t.Setenv("HEADGATE_SMTP_TLS", "none")
			return post.Provider
		}, lifecycle.Unknown},
		"ses": {func(t *testing.T) *sandbox.Provider {
			ses, err := sandbox.NewSES(sandbox.SESConfig{AccessKeyID: "AKIA1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ses.Close() })
			for name, value := range map[string]string{"REGION": "eu-central-1", "ACCESS_KEY_ID": "AKIA1", "SECRET_ACCESS_KEY": "s", "ENDPOINT": ses.URL()} {
				t.Setenv("HEADGATE_SES_"+name, value)
			}
			t.Setenv("HEADGATE_EMAIL_PROVIDER", "ses")
			return ses.Provider
		}, lifecycle.Unknown},
		"resend": {func(t *testing.T) *sandbox.Provider {
			resend, err := sandbox.NewResend(sandbox.ResendConfig{APIKey: "re_1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resend.Close() })
			t.Setenv("HEADGATE_EMAIL_PROVIDER", "resend")
			t.Setenv("HEADGATE_RESEND_API_KEY", "re_1")
			t.Setenv("HEADGATE_RESEND_URL", resend.URL())
			return resend.Provider
		}, lifecycle.Done},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			provider := tt.start(t)
			quietly(t, server.URL(), "queues: {email: {kinds: [email]}}")
			running(t)
			client := queue.NewClient(server.Client())
			send := func() queue.JobResult {
				receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "email", Tenant: "acme", Payload: json.RawMessage(mail), Retention: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				return ended(t, client, "email", receipt.ID)
			}
			if result := send(); result.Outcome != lifecycle.Done {
				t.Errorf("%+v", result)
			}
			provider.Drop(1)
			if result := send(); result.Outcome != tt.lost {
				t.Errorf("after a lost answer: %+v; want %s", result, tt.lost)
			}
		})
	}
}

// TestRefusedKey: while a key is refused, jobs wait and nothing is archived.
func TestRefusedKey(t *testing.T) {
	server := redistest.Start(t)
	resend, err := sandbox.NewResend(sandbox.ResendConfig{APIKey: "re_right"})
	if err != nil {
		t.Fatal(err)
	}
	defer resend.Close()
	t.Setenv("HEADGATE_EMAIL_PROVIDER", "resend")
	t.Setenv("HEADGATE_RESEND_API_KEY", "re_wrong")
	t.Setenv("HEADGATE_RESEND_URL", resend.URL())
	quietly(t, server.URL(), "queues: {email: {kinds: [email], limits: [{name: account, algorithm: leaky_bucket, rate: 10/s}]}}")
	running(t)
	client := queue.NewClient(server.Client())
	var ids []string
	for range 20 {
		receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "email", Tenant: "acme", Payload: json.RawMessage(mail), MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, receipt.ID)
	}
	eventually(t, func() bool {
		pauses, err := inspect.Pauses(t.Context(), server.Client(), "email")
		return err == nil && len(pauses) == 1 && time.Until(pauses[0].Until) > 30*time.Second
	})
	refused := 0
	eventually(t, func() bool { // the pause is known before what a job says of it
		refused = 0
		for _, id := range ids {
			result, err := client.Result(t.Context(), "email", id)
			if err != nil || result.State == "archived" {
				t.Fatalf("%+v, %v", result, err)
			}
			if strings.Contains(result.Err, "wait for a valid key") {
				refused++
			}
		}
		return refused > 0
	})
	if refused > 5 {
		t.Errorf("%d jobs were called with a key that is refused", refused)
	}
}

// eventually waits for what nobody tells this process.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never comes to that")
		}
	}
}
