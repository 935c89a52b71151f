package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
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

// refusing makes a Redis and a Resend that refuses the key of workers to come, whose mail is under one limit.
func refusing(t *testing.T, limit string) (*redistest.Server, *sandbox.Resend) {
	t.Helper()
	server := redistest.Start(t)
	resend, err := sandbox.NewResend(sandbox.ResendConfig{APIKey: "re_right"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resend.Close() })
	t.Setenv("HEADGATE_EMAIL_PROVIDER", "resend")
	t.Setenv("HEADGATE_RESEND_API_KEY", "re_wrong")
	t.Setenv("HEADGATE_RESEND_URL", resend.URL())
	quietly(t, server.URL(), "queues: {email: {kinds: [email], limits: ["+limit+"]}}")
	return server, resend
}

// TestRefusedKey: while a key is refused, jobs wait and nothing is archived.
func TestRefusedKey(t *testing.T) {
	server, _ := refusing(t, "{name: account, algorithm: leaky_bucket, rate: 10/s}")
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
	until.Done(t, "a pause", func() bool {
		pauses, err := inspect.Pauses(t.Context(), server.Client(), "email")
		return err == nil && len(pauses) == 1 && time.Until(pauses[0].Until) > 30*time.Second
	})
	refused := 0
	until.Done(t, "the jobs say why they wait", func() bool { // the pause is known before that
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

// TestRefusedKeyIsTriedOnce: after the pause for a refused key, one job of all tenants tries it, whatever their limits
// admit.
func TestRefusedKeyIsTriedOnce(t *testing.T) {
	server, resend := refusing(t, "{name: each, per: [tenant], algorithm: token_bucket, rate: 10/s}")
	client := queue.NewClient(server.Client())
	for n := range 20 {
		if _, err := client.Enqueue(t.Context(), queue.Job{Kind: "email", Tenant: fmt.Sprint("t", n), Payload: json.RawMessage(mail), MaxAttempts: 1}); err != nil {
			t.Fatal(err)
		}
	}
	const pauses = "headgate:{email}:pauses"
	paused := func() (field, text string) {
		until.Done(t, "a pause", func() bool {
			for field, text = range server.Client().HGetAll(t.Context(), pauses).Val() {
				p := inspect.ParsePause(field, text)
				if !p.Probing && time.Until(p.Until) > 30*time.Second {
					return true
				}
			}
			return false
		})
		return field, text
	}
	stop, over := started(t, "run")
	paused()
	stop()
	if errText := endOf(t, over); errText != "" {
		t.Fatal(errText)
	}
	// The pause ends.
	field, text := paused()
	_, rest, _ := strings.Cut(text, " ")
	if err := server.Client().HSet(t.Context(), pauses, field, fmt.Sprint(time.Now().UnixMicro(), " ", rest)).Err(); err != nil {
		t.Fatal(err)
	}
	before := len(resend.Calls())
	running(t)
	paused()
	if calls := len(resend.Calls()) - before; calls != 1 {
		t.Errorf("%d calls after the pause; want 1", calls)
	}
}
