package api

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestDurabilityInAnswers: an answer says which servers have the job. Without the replica that a
// queue requires, it is unknown whether the job is enqueued, and sending it again is harmless.
func TestDurabilityInAnswers(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	primary := redistest.Start(t)
	r := newRig(t, primary, nil)
	r.want(202, `"durability":"primary"`, "POST", "/jobs", r.job("acme", ""))
	r.want(200, `"durability":"primary"`, "GET", "/queues/"+r.queue+"/limits", "")

	r.queue = "safe"
	redistest.Serve(r.redis, r.queue, "call")
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {Durability: limits.Replicated}}}); err != nil {
		t.Fatal(err)
	}
	r.want(200, `"durability":"replicated"`, "GET", "/queues/"+r.queue+"/limits", "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	request := httptest.NewRequestWithContext(ctx, "POST", Base+"/jobs", strings.NewReader(r.job("acme", "")))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", "k")
	request.Host, request.RemoteAddr = "127.0.0.1", "127.0.0.1:1"
	answer := httptest.NewRecorder()
	r.api.ServeHTTP(answer, request)
	var p problem
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != 504 || p.Code != codeUnknown ||
		!strings.HasPrefix(p.Detail, "Only the primary Redis has the job: no replica acknowledged it in time") || answer.Header().Get("Retry-After") != "5" {
		t.Errorf("without a replica: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}

	primary.StartReplica()
	again := r.want(202, `"durability":"replicated"`, "POST", "/jobs", r.job("acme", ""), "Idempotency-Key", "k")
	if again.get(t, "existing") != true || again.get(t, "id") != "acme:k" {
		t.Errorf("sent again: %s", again.body)
	}
	r.want(202, `"durability":"replicated"`, "POST", "/jobs/batch", `{"jobs":[`+r.job("acme", "")+`]}`)
}
