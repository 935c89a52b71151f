package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestQuotasAreFollowed: adaptive limits of a queue follow what the answers of its provider say.
func TestQuotasAreFollowed(t *testing.T) {
	own := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(own, []byte("tenants: {acme: {ai: {api_key: sk-acme}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		kind            string
		headers         map[string]string
		answer, payload string
		config          func(url string) config
		limits          []limits.Limit
	}{
		"ai": {
			"ai", map[string]string{
				"X-Ratelimit-Limit-Requests": "30", "X-Ratelimit-Remaining-Requests": "29", "X-Ratelimit-Reset-Requests": "2s",
				"X-Ratelimit-Limit-Tokens": "6000", "X-Ratelimit-Remaining-Tokens": "5990", "X-Ratelimit-Reset-Tokens": "100ms",
			},
			`{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":10}}`, aiPayload,
			func(url string) config {
				return config{BreakerFailures: 5, AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-x", AITimeout: 5 * time.Second}
			},
			[]limits.Limit{
				{Name: "requests", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 100},
				{Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 12_000, Period: time.Minute}, Burst: 12_000, Unit: "tokens"},
			},
		},
		"ai, with the tenant's own account": {
			"ai", map[string]string{"X-Ratelimit-Limit-Requests": "30", "X-Ratelimit-Remaining-Requests": "29", "X-Ratelimit-Reset-Requests": "2s"},
			`{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":10}}`, aiPayload,
			func(url string) config {
				return config{BreakerFailures: 5, AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-x", AITimeout: 5 * time.Second, CredentialsFile: own}
			},
			[]limits.Limit{{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 100, Per: []string{"tenant"}}},
		},
		"email": {
			"email", map[string]string{"Ratelimit-Limit": "2", "Ratelimit-Remaining": "1", "Ratelimit-Reset": "1"},
			`{"id":"4ef2"}`, `{"from":"a@example.com","to":["b@example.com"],"subject":"s","text":"t"}`,
			func(url string) config {
				return config{BreakerFailures: 5, EmailProvider: "resend", ResendURL: url, ResendAPIKey: "re_x", ResendTimeout: 5 * time.Second}
			},
			[]limits.Limit{{Name: "requests", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(4)}},
		},
		"webhook": {
			"webhook", map[string]string{"RateLimit-Policy": `"default";q=120;w=60`, "RateLimit": `"default";r=119;t=1`},
			"", `{"url":"URL"}`,
			func(string) config {
				return config{BreakerFailures: 5, WebhookAllowPrivate: true, WebhookTimeout: 5 * time.Second}
			},
			[]limits.Limit{{Name: "receiver", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(4), Burst: 100, Per: []string{"tenant", limits.EndpointAttribute}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := test.kind
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				for name, value := range test.headers {
					w.Header().Set(name, value)
				}
				fmt.Fprint(w, test.answer)
			}))
			defer provider.Close()
			name, client := redistest.Queue(t), redistest.Shared(t).Client()
			for i := range test.limits {
				test.limits[i].Adaptive = true
			}
			set := limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{kind}, Limits: test.limits}}}
			if err := operate.Publish(t.Context(), client, set); err != nil {
				t.Fatal(err)
			}
			w, _ := handling(t, name, test.config(provider.URL))
			works(t, w)
			if _, err := queue.NewClient(client).Enqueue(t.Context(), queue.Job{Kind: kind, Queue: name, Tenant: "acme", Payload: json.RawMessage(strings.ReplaceAll(test.payload, "URL", provider.URL)), Costs: map[string]int64{"tokens": 10}}); err != nil {
				t.Fatal(err)
			}
			half := func(limit limits.Limit) bool {
				known := "headgate:{" + name + "}:adapt:" + limit.Name + ":"
				if len(limit.Per) > 0 {
					known += "acme"
				}
				if len(limit.Per) > 1 {
					known += ";" + rediskey.Escape(strings.TrimPrefix(provider.URL, "http://"))
				}
				fields := strings.Fields(client.Get(t.Context(), known).Val())
				return len(fields) == 5 && fields[3] == "512" // of 1024 parts
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if half(test.limits[0]) && half(test.limits[len(test.limits)-1]) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("the limits are not halved: %v", redistest.Keys(t, client, "headgate:{"+name+"}:adapt:*"))
				}
			}
		})
	}
}

// TestOnlyThisAnswerCounts: limits do not follow what an earlier answer said again, neither after a call without an
// answer nor after an answer that says nothing.
func TestOnlyThisAnswerCounts(t *testing.T) {
	for kind, test := range map[string]struct {
		header, answer, payload string
		config                  func(url string) config
	}{
		"ai": {
			"X-Ratelimit", `{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"total_tokens":10}}`, aiPayload,
			func(url string) config {
				return config{AIProvider: "openai", AIBaseURL: url, AIAPIKey: "sk-x", AITimeout: time.Minute}
			},
		},
		"email": {
			"Ratelimit", `{"id":"4ef2"}`, `{"from":"a@example.com","to":["b@example.com"],"subject":"s","text":"t"}`,
			func(url string) config {
				return config{EmailProvider: "resend", ResendURL: url, ResendAPIKey: "re_x", ResendTimeout: time.Minute}
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				if calls.Add(1) == 1 {
					for name, value := range map[string]string{"Limit": "30", "Remaining": "2", "Reset": "56"} {
						name = test.header + "-" + name
						if kind == "ai" {
							name += "-Requests"
						}
						w.Header().Set(name, value)
					}
				}
				fmt.Fprint(w, test.answer)
			}))
			defer provider.Close()
			name, redis := redistest.Queue(t), redistest.Shared(t).Client()
			if err := operate.Publish(t.Context(), redis, limits.Set{Queues: map[string]limits.Queue{name: {Kinds: []string{kind}, Limits: []limits.Limit{
				{Name: "requests", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(100), Burst: 100, Adaptive: true},
			}}}}); err != nil {
				t.Fatal(err)
			}
			w, _ := handling(t, name, test.config(provider.URL))
			works(t, w)
			client := queue.NewClient(redis)
			for step, want := range []struct {
				follows int64
				state   string
			}{{1, "completed"}, {0, "completed"}, {0, "archived"}} {
				if step == 2 {
					provider.Close() // so that the next call is refused
				}
				result, err := client.Enqueue(t.Context(), queue.Job{Kind: kind, Queue: name, Tenant: "acme", Payload: json.RawMessage(test.payload), MaxAttempts: 1, Retention: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if state := string(ended(t, client, name, result.ID).State); state != want.state {
					t.Fatalf("call %d: the job is %s, not %s", step, state, want.state)
				}
				followed := redis.Del(t.Context(), "headgate:{"+name+"}:adapt:requests:").Val()
				if followed != want.follows {
					t.Errorf("after call %d the limit follows %d answers; want %d", step, followed, want.follows)
				}
			}
		})
	}
}
