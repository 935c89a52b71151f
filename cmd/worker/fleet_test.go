package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestFleetAsksOnce: a provider that is down, and one whose account is used up, is called
// by the first jobs of two workers, and not by those behind them, which take nothing of
// their limit.
func TestFleetAsksOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		most   int64 // calls: what each of two workers notices, and what is under way then
	}{
		{"used up", http.StatusPaymentRequired, 2},
		{"down", http.StatusServiceUnavailable, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			const jobs, failures = 30, 3
			var calls atomic.Int64
			first := make(chan struct{})
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					close(first)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				fmt.Fprint(w, `{"error":{"message":"no"}}`)
			}))
			defer provider.Close()
			ctx, client, name := t.Context(), redistest.Shared(t).Client(), redistest.Queue(t)
			quota := limits.Limit{Name: "quota", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1000, Period: 1000 * time.Hour}}
			pace := limits.Limit{Name: "pace", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(20)}
			if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{name: {Limits: []limits.Limit{quota, pace}}}}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				worker, _ := handling(t, name, config{
					BreakerFailures: failures, BreakerPause: time.Minute, AITimeout: 5 * time.Second, WebhookTimeout: time.Second,
					AIProvider: "openai", AIBaseURL: provider.URL, AIAPIKey: "sk-worker",
				})
				ended := make(chan error, 1)
				running, cancel := context.WithCancel(context.Background())
				go func() { ended <- worker.Run(running) }()
				t.Cleanup(func() {
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
			}
			enqueuing := queue.NewClient(client)
			for range jobs {
				if _, err := enqueuing.Enqueue(ctx, queue.Job{Kind: "ai", Queue: name, Tenant: "a", Payload: []byte(aiPayload)}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-first:
			case <-time.After(time.Minute):
				t.Fatal("no call within a minute")
			}
			// All would have gone by then, and half as many again.
			time.Sleep(jobs * 3 / 2 * 50 * time.Millisecond)
			detail, err := inspect.New(client).Tenant(ctx, name, "a")
			if err != nil {
				t.Fatal(err)
			}
			used := int64(1000 - detail.Limits[0].Level)
			t.Logf("%d jobs: %d calls, %d permits of the quota", jobs, calls.Load(), used)
			if n := calls.Load(); n < 1 || n > test.most || used != n {
				t.Errorf("%d calls, want 1 to %d; %d permits of the quota", n, test.most, used)
			}
		})
	}
}
