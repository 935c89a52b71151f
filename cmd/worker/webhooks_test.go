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
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
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
				eventually(t, func() bool {
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
