package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestRejectedMailsAreCounted: a mail that the provider refuses for good counts as rejected for the ramps of the queue,
// and one that it accepts does not.
func TestRejectedMailsAreCounted(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), "nobody@") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"statusCode":422,"name":"validation_error","message":"Invalid to field."}`)
			return
		}
		fmt.Fprint(w, `{"id":"4ef2"}`)
	}))
	defer provider.Close()
	name, client := redistest.Queue(t), redistest.Shared(t).Client()
	limit := limits.Limit{
		Name: "new", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(100), Burst: 100, Per: []string{"tenant"},
		Ramp: &limits.Ramp{From: throttle.PerSecond(99), Over: time.Hour},
	}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{"email"}, Limits: []limits.Limit{limit}}}}); err != nil {
		t.Fatal(err)
	}
	w, _ := handling(t, name, config{BreakerFailures: 5, EmailProvider: "resend", ResendURL: provider.URL, ResendAPIKey: "re_x", ResendTimeout: 5 * time.Second})
	works(t, w)
	for tenant, to := range map[string]string{"good": "b@example.com", "bad": "nobody@example.com"} {
		payload := json.RawMessage(fmt.Sprintf(`{"from":"a@example.com","to":[%q],"subject":"s","text":"t"}`, to))
		if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "email", Queue: name, Tenant: tenant, Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	for tenant, want := range map[string]string{"good": "1000 0", "bad": "1000 1000"} {
		state := ""
		for deadline := time.Now().Add(time.Minute); !strings.HasSuffix(state, " "+want); time.Sleep(10 * time.Millisecond) {
			if state = client.Get(t.Context(), "headgate:{"+name+"}:ramp:new:"+tenant).Val(); time.Now().After(deadline) {
				t.Fatalf("%s: %q, want … %s", tenant, state, want)
			}
		}
	}
}
