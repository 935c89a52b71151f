package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// steps records what happens to jobs, in order.
type steps struct {
	NoObserver
	mu   sync.Mutex
	list []string
}

func (s *steps) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, what)
}

func (s *steps) Gated(_ string, g Gating) { s.add(g.Decision) }

// heavy is a payload that is decoded for a long time.
type heavy struct{ Text string }

var decoding *steps // of TestPayloadIsDecodedBeforeItsSlot

func (p *heavy) UnmarshalJSON(text []byte) error {
	decoding.add("decoded")
	p.Text = string(text)
	switch p.Text {
	case `"invalid"`:
		return errors.New("it is invalid")
	case `"panic"`:
		panic("no payload")
	}
	return nil
}

// TestPayloadIsDecodedBeforeItsSlot: what takes longer the larger a payload is does not delay the
// call, unless middleware passes another payload.
func TestPayloadIsDecodedBeforeItsSlot(t *testing.T) {
	server := redistest.Any(t)
	for _, test := range []struct {
		name, payload string
		middleware    Middleware
		want          []string
	}{
		{"valid", "valid", nil, []string{"decoded", "sent", `called "valid"`}},
		{"invalid", "invalid", nil, []string{"decoded", "sent"}},
		{"panic", "panic", nil, []string{"decoded", "sent", "decoded"}},
		{"other", "valid", func(next Handler) Handler {
			return func(ctx context.Context, _ []byte) error { return next(ctx, []byte(`"other"`)) }
		}, []string{"decoded", "sent", "decoded", `called "other"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			queue, seen, ended := redistest.Queue(t), &steps{}, make(chan struct{})
			decoding = seen
			worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{queue}, Observer: seen})
			worker.Use(func(next Handler) Handler {
				return func(ctx context.Context, payload []byte) error {
					defer close(ended)
					return next(ctx, payload)
				}
			})
			if test.middleware != nil {
				worker.Use(test.middleware)
			}
			Handle(worker, "call", func(_ context.Context, p heavy) error {
				seen.add("called " + p.Text)
				return nil
			}, Backoff(func(int) time.Duration { return time.Hour }))
			set := limits.Set{Queues: map[string]limits.Queue{queue: {Limits: []limits.Limit{perTenant(100)}}}}
			if err := operate.Publish(t.Context(), server.Client(), set); err != nil {
				t.Fatal(err)
			}
			runWorker(t, worker)
			if _, err := NewClient(server.Client()).Enqueue(t.Context(), Job{Kind: "call", Queue: queue, Tenant: "a", Payload: test.payload}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("no call")
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			// A machine that is busy may miss slots, each of which is another step.
			got := slices.DeleteFunc(slices.Clone(seen.list), func(s string) bool { return s == "missed" })
			if !slices.Equal(got, test.want) {
				t.Errorf("steps %q, want %q", got, test.want)
			}
		})
	}
}
