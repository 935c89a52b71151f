package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestLostLimits: if what was used of limits is gone from Redis, they start empty and not full, and
// until they are published again nothing goes at all.
func TestLostLimits(t *testing.T) {
	t.Parallel()
	slow := throttle.Rate{Count: 5, Period: 240 * time.Hour}
	rules := map[string]limits.Limit{
		"token bucket":           {Name: "l", Algorithm: throttle.TokenBucket, Rate: slow, Burst: 5},
		"leaky bucket":           {Name: "l", Algorithm: throttle.LeakyBucket, Rate: slow},
		"fixed window":           {Name: "l", Algorithm: throttle.FixedWindow, Rate: slow},
		"calendar window":        {Name: "l", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 5, Period: 24 * time.Hour}, Location: noon(t)},
		"sliding window log":     {Name: "l", Algorithm: throttle.SlidingWindowLog, Rate: slow},
		"sliding window counter": {Name: "l", Algorithm: throttle.SlidingWindowCounter, Rate: slow},
		"of a tenant":            {Name: "l", Per: []string{"tenant"}, Algorithm: throttle.TokenBucket, Rate: slow, Burst: 5},
	}
	publishers := map[string]func(ctx context.Context, client redis.UniversalClient, set limits.Set) error{
		"by a program that knows": func(ctx context.Context, client redis.UniversalClient, set limits.Set) error {
			return operate.Republish(ctx, client, set, ann)
		},
		"by a new program": operate.Publish,
	}
	for name, rule := range rules {
		for by, publish := range publishers {
			t.Run(name+" "+by, func(t *testing.T) {
				t.Parallel()
				set := limitsOf(rule)
				r := startRig(t, -1, set, nil)
				client, d := r.server.Client(), r.dispatcher()
				r.enqueue(t, "a", 30)
				burst := 5
				if rule.Algorithm == throttle.LeakyBucket {
					burst = 1
				}
				gone := 0
				release := func(d *dispatcher) int {
					before := gone
					gone = len(r.release(t, d, 30))
					return gone - before
				}
				if n := release(d); n != burst {
					t.Fatalf("%d jobs went of a new queue; want %d", n, burst)
				}
				for _, key := range redistest.Keys(t, client, store.Key(r.queue, "b:*")) {
					client.Del(t.Context(), key)
				}
				client.Del(t.Context(), store.Key(r.queue, "limits"), store.Key(r.queue, "vtime"))
				r.enqueue(t, "b", 30)
				if n := release(d); n != 0 {
					t.Errorf("%d jobs went without limits", n)
				}
				if text := r.fault(t, "limits"); !strings.Contains(text, "they are gone from Redis: publish them again") {
					t.Errorf("the fault is %q", text)
				}
				// The set is of the rig's queue.
				set.Queues = map[string]limits.Queue{r.queue: {Limits: []limits.Limit{rule}}}
				if err := publish(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
				if n := release(d); n != 0 {
					t.Errorf("%d jobs went at once after the limits were lost", n)
				}
				row, err := inspect.New(client).Tenant(t.Context(), r.queue, "b")
				if err != nil || row.Level >= 1 || len(rule.Per) > 0 && row.Capacity != 5 {
					t.Errorf("the page shows %v of %v permits, %v; want none left", row.Level, row.Capacity, err)
				}
				if by == "by a new program" {
					if text := r.fault(t, "lost limits"); !strings.Contains(text, "so they start empty") {
						t.Errorf("the fault is %q", text)
					}
				}
				client.Del(t.Context(), store.Key(r.queue, "faults"))
				// A later publication changes nothing about that.
				if err := operate.Publish(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
				if n := release(r.dispatcher()); n != 0 {
					t.Errorf("%d jobs went after the limits were published once more, in a new worker", n)
				}
			})
		}
	}
}

// noon returns a zone where it is about noon, so that no window of a day or a month turns while a test runs.
func noon(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)) // their signs are reversed
	if err != nil {
		t.Fatal(err)
	}
	return zone
}
