package throttle

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestLostReplyTakesOnce: the client would repeat a lost call three times; the
// limiter's calls are not repeated, so the permits are taken once.
func TestLostReplyTakesOnce(t *testing.T) {
	server := redistest.Start(t)
	var wire redistest.Wire
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: wire.Dial, MaxRetries: 3, MinRetryBackoff: ms, MaxRetryBackoff: ms})
	defer client.Close()
	limiter, err := New(client, "", bucket("1/day", 10))
	if err != nil {
		t.Fatal(err)
	}
	for mode, call := range map[string]func(key string) (Decision, error){
		"Take":    func(key string) (Decision, error) { return limiter.Take(t.Context(), 2, key) },
		"Reserve": func(key string) (Decision, error) { return decision(limiter.Reserve(t.Context(), 2, 0, key)) },
	} {
		if d, err := call(mode); err != nil || d.Remaining != 8 {
			t.Fatalf("%s: %+v, %v", mode, d, err)
		}
		before := wire.Lost()
		wire.LoseReply(limiter.bucket(limiter.limits[0], mode))
		if d, err := call(mode); err == nil {
			t.Errorf("%s: %+v although the reply was lost", mode, d)
		}
		if wire.Lost() != before+1 {
			t.Fatalf("%s: no reply was lost", mode)
		}
		if d, err := call(mode); err != nil || d.Remaining != 4 {
			t.Errorf("%s: %+v, %v; want 4 left of 10 after three calls of 2", mode, d, err)
		}
	}
	// The client does repeat what it may: without that the test shows nothing.
	wire.LoseReply("counter")
	if err := client.Incr(t.Context(), "counter").Err(); err != nil {
		t.Fatal(err)
	}
	if got := client.Get(t.Context(), "counter").Val(); got != "2" {
		t.Errorf("the client counted %s; it was to repeat the lost call", got)
	}
}

// TestFirstCallOfManyIsCountedOnce: callers that all find the script unknown.
func TestFirstCallOfManyIsCountedOnce(t *testing.T) {
	server := redistest.Start(t)
	limiter, err := New(server.Client(), "", bucket("1/day", 40))
	if err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var callers sync.WaitGroup
	for range 60 {
		callers.Go(func() {
			d, err := limiter.Take(t.Context(), 1, "k")
			if err != nil {
				t.Error(err)
			} else if d.Allowed {
				allowed.Add(1)
			}
		})
	}
	callers.Wait()
	if allowed.Load() != 40 {
		t.Errorf("%d of 60 calls took a permit, want 40", allowed.Load())
	}
}

// TestAnswersThatAreNotKnown: an error is an error and no decision.
func TestAnswersThatAreNotKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limiter, err := New(server.Client(), "", bucket("1/day", 10))
	if err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := limiter.Take(done, 1, "k"); !errors.Is(err, context.Canceled) || d != (Decision{}) {
		t.Errorf("%+v, %v; want the context's error", d, err)
	}
	// Another's value under the bucket's key is an error: no permits are made up.
	key := limiter.bucket(limiter.limits[0], "k")
	server.Client().RPush(t.Context(), key, "x")
	if d, err := limiter.Take(t.Context(), 1, "k"); err == nil || d != (Decision{}) {
		t.Errorf("%+v, %v; want the error of Redis", d, err)
	}
	server.Client().Del(t.Context(), key)
	server.Client().HSet(t.Context(), key, "x", "y")
	if d, err := limiter.Take(t.Context(), 1, "k"); err == nil || d != (Decision{}) {
		t.Errorf("%+v, %v; want the error of Redis", d, err)
	}
	for _, text := range []string{
		"", "-1 nan 1e9 {} 9 9", "r 1 0 0 1 0 0 0", "r 1 0 1 0 0 0 0", "r 9e99 0 1 1 0 0 0", "r 0 0 1 1 0 0 99999999999999999999", "f 1 2", "c 1 0 1 1 1 1", "@1", "99999999999999999999999",
	} {
		server.Client().Set(t.Context(), key, text, 0)
		for _, short := range limiter.short {
			tryAgain(short)
		}
		if d, err := limiter.Take(t.Context(), 1, "k"); err == nil || d != (Decision{}) {
			t.Errorf("bucket %q: %+v, %v; want an error", text, d, err)
		}
		if r, err := limiter.Reserve(t.Context(), 1, 0, "k"); err == nil || r != nil {
			t.Errorf("bucket %q: %+v, %v; want an error", text, r, err)
		}
		if now := server.Client().Get(t.Context(), key).Val(); now != text {
			t.Errorf("bucket %q was overwritten with %q", text, now)
		}
	}
	for _, entries := range [][]any{{"x"}, {"@x"}, {"@1", "x"}, {"@1", "1", "x"}, {"@1", "x", "9999999999999999"}, {"@1", "9999999999999999", "x", "9999999999999999"}} {
		server.Client().Del(t.Context(), key)
		server.Client().RPush(t.Context(), key, entries...)
		log := logged("10/day")
		log.Name = limiter.limits[0].Name
		logs, err := New(server.Client(), "", log)
		if err != nil {
			t.Fatal(err)
		}
		// With this cost, the last but one decides.
		if d, err := logs.Take(t.Context(), 9, "k"); err == nil || !strings.Contains(err.Error(), "holds no bucket") || d != (Decision{}) {
			t.Errorf("log %q: %+v, %v; want an error", entries, d, err)
		}
		if now := server.Client().LRange(t.Context(), key, 0, -1).Val(); len(now) != len(entries) {
			t.Errorf("log %q was changed to %q", entries, now)
		}
	}
	server.Kill()
	if d, err := limiter.Take(t.Context(), 1, "k"); err == nil || d != (Decision{}) {
		t.Errorf("%+v, %v; want an error without a Redis", d, err)
	}
}

// TestCosts: what can never be admitted is said at once, with the largest cost
// that can, which is then admitted.
func TestCosts(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, test := range []struct {
		limit   Limit
		shaping bool
		most    int64
	}{
		{bucket("10/s", 20), false, 20}, {bucket("10/s", 20), true, 20}, {bucket("10/s", 0), false, 1},
		{leaky("10/s", 5), false, 5}, {leaky("10/s", 5), true, 5}, {leaky("10/s", 0), false, 1},
		{window("7/min", nil), false, 7}, {window("7/day", time.UTC), true, 7},
	} {
		c := newClocked(t, client, test.limit)
		call := func(n int64) (Decision, error) {
			if test.shaping {
				return decision(c.Reserve(t.Context(), n, time.Hour, "k"))
			}
			return c.Take(t.Context(), n, "k")
		}
		for _, n := range []int64{test.most + 1, 1e9, math.MaxInt64} {
			d, err := call(n)
			cost, ok := errors.AsType[*CostError](err)
			if !ok || *cost != (CostError{Limit: test.limit.Name, Cost: n, Max: test.most}) || d != (Decision{}) {
				t.Errorf("%+v: %d permits: %+v, %v", test.limit, n, d, err)
			}
		}
		for _, n := range []int64{0, -1, math.MinInt64} {
			if d, err := call(n); err == nil || d != (Decision{}) {
				t.Errorf("%+v: %d permits: %+v, %v", test.limit, n, d, err)
			}
		}
		if d, err := call(test.most); err != nil || !d.Allowed {
			t.Errorf("%+v: %d permits: %+v, %v", test.limit, test.most, d, err)
		}
	}
	// Of several limits, the one that can never admit it says so.
	both := newClocked(t, client, bucket("10/s", 20), leaky("10/s", 5))
	_, err := both.Take(t.Context(), 6, "k")
	if cost, ok := errors.AsType[*CostError](err); !ok || *cost != (CostError{Limit: "lb", Cost: 6, Max: 5}) {
		t.Errorf("6 permits of two limits: %v", err)
	}
	// A leaky bucket without a capacity lets any cost through that can be counted.
	c := newClocked(t, client, leaky("1000/s", 0))
	if d := c.reserve(1e9, time.Hour); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := c.reserve(1, 100*day); !d.Allowed || d.Delay != 1e6*time.Second {
		t.Errorf("%+v; want it behind 1e9 permits at 1000/s", d)
	}
	most := c.limits[0].countable()
	_, err = c.Reserve(t.Context(), most+1, time.Hour, "k2")
	if cost, ok := errors.AsType[*CostError](err); !ok || cost.Max != most {
		t.Errorf("%v; want a *CostError that names %d", err, most)
	}
	if d := c.reserve(most, time.Hour, "k2"); !d.Allowed {
		t.Errorf("%+v", d)
	}
}
