package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// TestNotFound: a receiver that answers 404 while it is deployed gets its jobs
// afterwards, also those with a single attempt; where the setting is 0, they are
// archived.
func TestNotFound(t *testing.T) {
	for setting, want := range map[string]lifecycle.Outcome{"": lifecycle.Done, "0s": lifecycle.Archived} {
		t.Run("setting "+setting, func(t *testing.T) {
			server := redistest.Start(t)
			var deployed atomic.Bool
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !deployed.Load() {
					http.NotFound(w, r)
				}
			}))
			defer receiver.Close()
			t.Setenv("HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true")
			if setting != "" {
				t.Setenv("HEADGATE_WEBHOOK_RETRY_NOT_FOUND", setting)
			}
			quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
			running(t)
			client := queue.NewClient(server.Client())
			receipt, err := client.Enqueue(t.Context(), queue.Job{
				Kind: "webhook", Tenant: "acme", MaxAttempts: 1, Payload: json.RawMessage(`{"url":"` + receiver.URL + `"}`), Retention: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			if want == lifecycle.Done {
				until.Done(t, "the job is to be tried again", func() bool {
					result, err := client.Result(t.Context(), "webhook", receipt.ID)
					if err != nil || result.State == "archived" {
						t.Fatalf("%+v, %v", result, err)
					}
					return result.State == "retry" && strings.Contains(result.Err, "answered 404") && strings.Contains(result.Err, "it is retried until")
				})
				deployed.Store(true)
			}
			if result := ended(t, client, "webhook", receipt.ID); result.Outcome != want {
				t.Errorf("%+v; want %s", result, want)
			}
		})
	}
}

// TestPrivateReceiver: a webhook to a private address waits, with the name of the setting, until a
// worker allows it; it has lost no attempt.
func TestPrivateReceiver(t *testing.T) {
	server := redistest.Start(t)
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer receiver.Close()
	quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	client := queue.NewClient(server.Client())
	stop, over := started(t, "run")
	receipt, err := client.Enqueue(t.Context(), queue.Job{
		Kind: "webhook", Tenant: "acme", MaxAttempts: 1, Payload: json.RawMessage(`{"url":"` + receiver.URL + `"}`), Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	var pauses []inspect.Pause
	until.Done(t, "a pause", func() bool {
		if pauses, err = inspect.Pauses(t.Context(), server.Client(), "webhook"); err != nil {
			t.Fatal(err)
		}
		return len(pauses) > 0
	})
	const want = "is not a public internet address; to call it, set HEADGATE_WEBHOOK_ALLOW_PRIVATE=true on the workers"
	if len(pauses) != 1 || pauses[0].Tenant != "acme" || "http://"+pauses[0].Endpoint != receiver.URL || !strings.Contains(pauses[0].Reason, want) {
		t.Errorf("%+v; want the endpoint, and %q", pauses, want)
	}
	until.Done(t, "the job waits again", func() bool {
		e, err := inspect.New(server.Client()).Explain(t.Context(), "webhook", receipt.ID)
		if err != nil {
			t.Fatal(err)
		}
		return e.State == lifecycle.StateWaiting && e.Attempt == 1
	})
	stop()
	if errText := endOf(t, over); errText != "" || calls.Load() != 0 {
		t.Fatalf("%q, %d calls", errText, calls.Load())
	}

	t.Setenv("HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true")
	running(t)
	if _, err := operate.ResumeJobs(t.Context(), server.Client(), "webhook", pauses[0].Scope, operate.Operator{Actor: "ann", Reason: "allowed"}); err != nil {
		t.Fatal(err)
	}
	if result := ended(t, client, "webhook", receipt.ID); result.Outcome != lifecycle.Done || calls.Load() != 1 {
		t.Errorf("%+v, %d calls", result, calls.Load())
	}
}
