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
	for _, limits := range [][]Limit{{bucket("10/s", 5)}, {leaky("7/s", 3)}, {bucket("1000/h", 1000)}, {bucket("3/s", 2), bucket("30/s", 90).named("all")},
		{window("5/s", nil)}, {window("5/day", time.UTC)}, {counted("5/s")}, {logged("5/s")},
	} {
		c := newClocked(t, client, limits...)
		for c.take(1).Allowed {
		}
		seen.sent()
		// known compares what is known of a call with what Redis says.
		known := func(n int64) Decision {
			t.Helper()
			want, err := c.Peek(t.Context(), n, "k")
			seen.sent()
			want.Local = true
			d := c.take(n)
			if short, long := seen.sent(); err != nil || d.Allowed || d != want || short+long != 0 {
				t.Errorf("%v: %+v after %d scripts, %v; Redis says %+v", limits, d, short+long, err, want)
			}
			return d
		}
		wait := c.take(1).RetryAfter
		for _, part := range []int64{0, 1, 5, 9} { // tenths
			c.now = c.now.Add((min(wait, remembered) * time.Duration(part) / 30).Truncate(time.Microsecond))
			known(1)
		}
		if wait = c.take(1).RetryAfter; len(limits) == 1 && limits[0].maxCost(false) > 1 {
			drains := limits[0].Algorithm == TokenBucket || limits[0].Algorithm == LeakyBucket
			d := c.take(2)
			if d.Allowed || d.RetryAfter < wait || drains && d.RetryAfter == wait {
				t.Errorf("%v: a call of two permits may come again in %v, one of one in %v", limits, d.RetryAfter, wait)
			}
			if short, long := seen.sent(); short+long == 0 {
				t.Errorf("%v: nobody was asked about a call of two permits", limits)
			}
			if drains {
				c.now = c.now.Add((d.RetryAfter * 9 / 10).Truncate(time.Microsecond))
				if d := known(2); d.Remaining != 1 {
					t.Errorf("%v: %+v, when one permit is left", limits, d)
				}
			}
			c.take(1)
		}
		if wait > 2*remembered {
			c.take(1)
			c.now = c.now.Add(remembered)
			seen.sent()
			c.take(1)
			if short, long := seen.sent(); short+long == 0 {
				t.Errorf("%v: nobody was asked for %v", limits, remembered)
			}
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

// TestNeverRefusedWrongly: whatever other processes take, reserve and give back, a call that Redis would admit is admitted.
func TestNeverRefusedWrongly(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{bucket("10/s", 1), window("1/s", nil), counted("1/s"), logged("1/s")} {
			neverRefusedWrongly(t, client, limit)
		}
	})
}

func neverRefusedWrongly(t *testing.T, client redis.UniversalClient, limit Limit) {
	t.Helper()
	refused, known := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.Int64Range(1, 8).Draw(rt, "most")
		pause := time.Second // a window, or until the next permit of a bucket
		if limit.Rate.Count = most; limit.Algorithm == TokenBucket {
			limit.Burst, limit.Rate.Count = most, rapid.SampledFrom([]int64{3, 10, 7000}).Draw(rt, "count")
			pause /= time.Duration(limit.Rate.Count)
		}
		c := newClocked(t, client, limit)
		other, err := New(client, c.prefix, limit)
		if err != nil {
			rt.Fatal(err)
		}
		other.now = c.Limiter.now
		var slots []*Reservation
		for range 30 {
			c.now = c.now.Add(pause * time.Duration(rapid.SampledFrom([]int64{0, 1, 7, 40, 120, 290}).Draw(rt, "after")) / 100)
			switch rapid.IntRange(0, 8).Draw(rt, "other") {
			case 0:
				if _, err := other.Take(t.Context(), 1, "k"); err != nil {
					rt.Fatal(err)
				}
			case 1:
				within := pause * time.Duration(rapid.SampledFrom([]int64{0, 0, 0, 0, 50, 200}).Draw(rt, "within")) / 100
				r, err := other.Reserve(t.Context(), rapid.Int64Range(1, most).Draw(rt, "reserved"), within, "k")
				if err != nil {
					rt.Fatal(err)
				}
				slots = append(slots, r)
			case 2:
				for _, r := range slots {
					if err := r.Settle(t.Context(), rapid.Int64Range(0, 3).Draw(rt, "actual")); err != nil {
						rt.Fatal(err)
					}
				}
				slots = nil
			}
			n := min(most, rapid.SampledFrom([]int64{1, 1, 1, 2, 5}).Draw(rt, "n"))
			if _, without := c.refused(n, []string{"k"}); without {
				known++
			}
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
	if refused < randomCases || known < randomCases {
		t.Errorf("%v: only %d calls were refused, %d of them without asking", limit, refused, known)
	}
}

// TestRefusedUntilGivenBack: a call that is refused is admitted once another process gives back what it reserved, whether
// that was before or after others took their permits, and in this window or the one before.
func TestRefusedUntilGivenBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{window("3/s", nil), counted("3/s"), logged("3/s")} {
			for before := range int64(3) {
				c := newClocked(t, client, limit)
				other, err := New(client, c.prefix, limit)
				if err != nil {
					t.Fatal(err)
				}
				other.now = c.Limiter.now
				for range before {
					c.take(1)
				}
				r, err := other.Reserve(t.Context(), 1, 0, "k")
				if err != nil {
					t.Fatal(err)
				}
				for range 2 - before {
					c.take(1)
				}
				c.now = c.now.Add(10 * time.Millisecond)
				if c.take(1).Allowed {
					t.Fatalf("%v: a fourth call", limit)
				}
				if err := r.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				if d := c.take(1); !d.Allowed {
					t.Errorf("%v: refused after one was given back, which was reserved after %d: %+v", limit, before, d)
				}
			}
		}
		c := newClocked(t, client, counted("3/s"))
		r, err := c.Reserve(t.Context(), 3, 0, "k")
		if err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(time.Second)
		if c.take(1).Allowed {
			t.Fatal("a fourth call")
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := c.take(1); !d.Allowed {
			t.Errorf("refused after those of the window before were given back: %+v", d)
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
