package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/endpoints"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// TestGone: after a 410 no job of that tenant goes to that URL, until an operator enables it.
// Then the jobs that waited go at once.
func TestGone(t *testing.T) {
	server := redistest.Start(t)
	var calls, status atomic.Int64
	status.Store(410)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.URL.Path == "/S3CRET" {
			w.WriteHeader(int(status.Load()))
		}
	}))
	defer receiver.Close()
	t.Setenv("HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true")
	quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	running(t)
	client := queue.NewClient(server.Client())
	send := func(tenant, path string) string {
		receipt, err := client.Enqueue(t.Context(), queue.Job{
			Kind: "webhook", Tenant: tenant, Payload: json.RawMessage(`{"url":"` + receiver.URL + path + `"}`), Retention: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID
	}
	if result := ended(t, client, "webhook", send("acme", "/S3CRET")); result.Outcome != lifecycle.Archived || !strings.Contains(result.Err, "answered 410") {
		t.Errorf("the first: %+v", result)
	}
	held := send("acme", "/S3CRET")
	until.Done(t, "the job is to be tried again", func() bool {
		result, err := client.Result(t.Context(), "webhook", held)
		return err == nil && result.State == "retry" && strings.Contains(result.Err, "is left alone until") && !strings.Contains(result.Err, "S3CRET")
	})
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls; want 1", n)
	}
	for _, other := range [][2]string{{"acme", "/other"}, {"globex", "/other"}} {
		if result := ended(t, client, "webhook", send(other[0], other[1])); result.Outcome != lifecycle.Done {
			t.Errorf("%s: %+v", other, result)
		}
	}
	list, err := endpoints.List(t.Context(), server.Client())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if left := retriedIn(t, server, held); left < 50*time.Minute || left > 61*time.Minute {
		t.Errorf("it is postponed for %v", left)
	}
	status.Store(200)
	by := operate.Operator{Actor: "ann", Reason: "mended"}
	if woken, ok, err := endpoints.Enable(t.Context(), server.Client(), list[0].ID, by); err != nil || !ok || woken != 1 {
		t.Fatalf("%d jobs, %v, %v", woken, ok, err)
	}
	if result := ended(t, client, "webhook", held); result.Outcome != lifecycle.Done {
		t.Errorf("the job that waited: %+v", result)
	}
	entries, err := operate.Audit(t.Context(), server.Client(), "webhook", 2)
	if err != nil || len(entries) != 2 || entries[0].Action != "wake" || entries[0].Count != 1 ||
		entries[1].Action != "enable" || entries[1].ID != list[0].ID || entries[1].Actor != "ann" || entries[1].Reason != "mended" || entries[1].Tenant != "acme" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func retriedIn(t *testing.T, server *redistest.Server, id string) time.Duration {
	t.Helper()
	at, err := server.Client().ZScore(t.Context(), "asynq:{webhook}:retry", id).Result()
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(time.Unix(int64(at), 0))
}
