package main

import (
	"context"
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

// TestQuotasAreFollowed: adaptive limits of a queue follow what the answers of an AI provider say.
func TestQuotasAreFollowed(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		for name, value := range map[string]string{
			"Content-Type": "application/json", "X-Ratelimit-Limit-Requests": "30", "X-Ratelimit-Remaining-Requests": "29", "X-Ratelimit-Reset-Requests": "2s",
			"X-Ratelimit-Limit-Tokens": "6000", "X-Ratelimit-Remaining-Tokens": "5990", "X-Ratelimit-Reset-Tokens": "100ms",
		} {
			w.Header().Set(name, value)
		}
		fmt.Fprint(w, `{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":10}}`)
	}))
	defer provider.Close()
	name, client := redistest.Queue(t), redistest.Shared(t).Client()
	adaptive := func(name string, rate throttle.Rate, unit string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: rate, Burst: 100_000, Unit: unit, Adaptive: true}
	}
	set := limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{"ai"}, Limits: []limits.Limit{
		adaptive("requests", throttle.PerSecond(1), ""), adaptive("tokens", throttle.Rate{Count: 12_000, Period: time.Minute}, "tokens"),
	}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	w, _ := handling(t, name, config{BreakerFailures: 5, AIProvider: "openai", AIBaseURL: provider.URL, AIAPIKey: "sk-x", AITimeout: 5 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: "ai", Queue: name, Tenant: "acme", Payload: json.RawMessage(aiPayload), Costs: map[string]int64{"tokens": 10}}); err != nil {
		t.Fatal(err)
	}
	state := func(limit string) string {
		fields := strings.Fields(client.HGet(t.Context(), "headgate:{"+name+"}:adapt", "headgate:{"+name+"}:b:"+limit+":").Val())
		return strings.Join(fields[min(3, len(fields)):min(4, len(fields))], " ")
	}
	for deadline := time.Now().Add(time.Minute); state("requests") != "512" || state("tokens") != "512"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("30 requests and 6000 tokens a minute are %q and %q of 1024 parts of 60 and 12000", state("requests"), state("tokens"))
		}
	}
}
