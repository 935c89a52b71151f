package throttle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestRefusedWithoutAsking: a call that was refused is refused without a question until it can be admitted, with the
// same decision that Redis would make.
func TestRefusedWithoutAsking(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	seen := &scriptCount{}
	client.AddHook(seen)
	for _, limits := range [][]Limit{{bucket("10/s", 5)}, {leaky("7/s", 3)}, {bucket("1000/h", 1000)}, {bucket("3/s", 2), bucket("30/s", 90).named("all")}} {
		c := newClocked(t, client, limits...)
		for c.take(1).Allowed {
		}
		seen.sent()
		wait := c.take(1).RetryAfter
		for _, part := range []int64{0, 1, 5, 9} { // tenths
			c.now = c.now.Add(wait * time.Duration(part) / 30)
			want, err := c.Peek(t.Context(), 1, "k")
			seen.sent()
			d := c.take(1)
			if short, long := seen.sent(); err != nil || d.Allowed || d != want || short+long != 0 {
				t.Errorf("%v: %+v after %d scripts, %v; Redis says %+v", limits, d, short+long, err, want)
			}
		}
		if wait = c.take(1).RetryAfter; len(limits) == 1 && limits[0].maxCost(false) > 1 {
			if d := c.take(2); d.Allowed || d.RetryAfter <= wait {
				t.Errorf("%v: a call of two permits may come again in %v, one of one in %v", limits, d.RetryAfter, wait)
			}
			if short, long := seen.sent(); short+long == 0 {
				t.Errorf("%v: nobody was asked about a call of two permits", limits)
			}
			c.take(1)
		}
		c.now = c.now.Add(c.take(1).RetryAfter)
		if d := c.take(1); !d.Allowed {
			t.Errorf("%v: refused when it may come again: %+v", limits, d)
		}
		c.take(1)
		if d := c.take(1, "other"); !d.Allowed && len(limits) == 1 {
			t.Errorf("%v: another key is refused: %+v", limits, d)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Take(gone, 1, "k"); err == nil {
			t.Errorf("%v: a decision after the context ended", limits)
		}
		c.now = c.now.Add(-time.Hour) // what is known is of a later time
		seen.sent()
		c.take(1)
		if short, long := seen.sent(); short+long == 0 {
			t.Errorf("%v: nobody was asked after the clock was set back", limits)
		}
	}
}

// TestNeverRefusedWrongly: whatever other processes do with the bucket, a call that Redis would admit is admitted.
func TestNeverRefusedWrongly(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		refused := 0
		rapid.Check(t, func(rt *rapid.T) {
			limit := bucket("10/s", rapid.Int64Range(1, 8).Draw(rt, "burst"))
			limit.Rate.Count = rapid.SampledFrom([]int64{3, 10, 7000}).Draw(rt, "count")
			c := newClocked(t, client, limit)
			other, err := New(client, c.prefix, limit)
			if err != nil {
				rt.Fatal(err)
			}
			other.now = c.Limiter.now
			var slots []*Reservation
			for range 30 {
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 3e6/limit.Rate.Count).Draw(rt, "after")) * time.Microsecond)
				switch rapid.IntRange(0, 8).Draw(rt, "other") {
				case 0:
					if _, err := other.Take(t.Context(), 1, "k"); err != nil {
						rt.Fatal(err)
					}
				case 1:
					r, err := other.Reserve(t.Context(), rapid.Int64Range(1, limit.Burst).Draw(rt, "reserved"), 0, "k")
					if err != nil {
						rt.Fatal(err)
					}
					slots = append(slots, r)
				case 2:
					for _, r := range slots {
						if err := r.Cancel(t.Context()); err != nil {
							rt.Fatal(err)
						}
					}
					slots = nil
				}
				n := rapid.Int64Range(1, limit.Burst).Draw(rt, "n")
				want, err := c.Peek(t.Context(), n, "k")
				if err != nil {
					rt.Fatal(err)
				}
				d := c.take(n)
				if d.Allowed != want.Allowed {
					rt.Fatalf("%+v; Redis says %+v", d, want)
				}
				if !d.Allowed {
					refused++
				}
			}
		})
		if refused < randomCases {
			t.Errorf("only %d calls were refused", refused)
		}
	})
}

// TestPauseOfARefusedKey: the next call gets the reason of the pause.
func TestPauseOfARefusedKey(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("1/h", 1))
		c.take(1)
		c.take(1)
		if err := c.Pause(t.Context(), "tb", "k", c.now.Add(time.Minute), "asked to"); err != nil {
			t.Fatal(err)
		}
		if d := c.take(1); d.Allowed || d.Paused != "asked to" {
			t.Errorf("%+v", d)
		}
	})
}

// TestRefusalsByTheClock: by the clock of Redis, callers that come back after RetryAfter are admitted, one a time, and
// nobody is kept longer.
func TestRefusalsByTheClock(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("50/s", 1))
		c.Limiter = c.WithClock(nil)
		var mu sync.Mutex
		var admitted []time.Time
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 10 {
					d := c.take(1)
					for ; !d.Allowed; d = c.take(1) {
						time.Sleep(d.RetryAfter)
					}
					mu.Lock()
					admitted = append(admitted, d.At)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		slices.SortFunc(admitted, time.Time.Compare)
		for i := 1; i < len(admitted); i++ {
			if between := admitted[i].Sub(admitted[i-1]); between < 20*time.Millisecond {
				t.Errorf("calls %d and %d are only %v apart", i, i+1, between)
			}
		}
	})
}
