package throttle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

// book reserves one slot that must be given.
func (c *clocked) book(n int64, within time.Duration, keys ...string) *Reservation {
	c.t.Helper()
	r, err := c.Reserve(context.Background(), n, within, keysOr(keys)...)
	if err != nil || !r.Allowed {
		c.t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func (c *clocked) cancel(r *Reservation) {
	c.t.Helper()
	if err := r.Cancel(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clocked) settle(r *Reservation, actual int64) {
	c.t.Helper()
	if err := r.Settle(context.Background(), actual); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clocked) peek(keys ...string) Decision {
	c.t.Helper()
	d, err := c.Peek(context.Background(), 1, keysOr(keys)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

// TestNewestSlotComesBack: what was reserved last and not used is as if it had
// never been reserved, whatever the algorithm, in all layers.
func TestNewestSlotComesBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("10/s", 3), leaky("10/s", 0), window("20/10s", nil), logged("20/10s"), counted("20/10s"), inFlightOf(9, time.Minute)}
		for _, limits := range [][]Limit{all[:1], all[1:2], all[2:3], all[3:4], all[4:5], all} {
			c := newClocked(t, client, limits...)
			for i := range 6 {
				r := c.book(2, time.Hour)
				before := r.Decision
				c.cancel(r)
				c.cancel(r) // once is enough
				again := c.book(2, time.Hour)
				if again.Decision != before {
					t.Errorf("%d limits, slot %d: %+v; before it was cancelled %+v", len(limits), i, again.Decision, before)
				}
				defer c.cancel(again)
				c.now = c.now.Add(30 * ms)
			}
		}
	})
}

// TestOlderSlotsComeBackWhereNobodyStands: windows give back anything, a token
// bucket what was taken while it was busy, a leaky bucket's slots are in line.
func TestOlderSlotsComeBackWhereNobodyStands(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range map[string]struct {
			limit Limit
			taken int64 // before
			back  int64 // of the 3 permits that are cancelled while 3 stand behind them
		}{
			"fixed window":             {window("20/10s", nil), 0, 3},
			"sliding window log":       {logged("20/10s"), 0, 3},
			"sliding window counter":   {counted("20/10s"), 0, 3},
			"busy token bucket":        {bucket("1/s", 20), 12, 3},
			"token bucket":             {bucket("1/s", 20), 0, 3},
			"leaky bucket, policing":   {leaky("1/s", 20), 12, 3},
			"leaky bucket of one line": {leaky("1/s", 0), 0, 0},
		} {
			t.Run(name, func(t *testing.T) {
				c := newClocked(t, client, test.limit)
				if test.taken > 0 {
					c.take(test.taken)
				}
				within := time.Duration(0)
				if test.limit.Algorithm == LeakyBucket {
					within = time.Hour
				}
				first := c.book(3, within)
				c.book(3, within)
				before := c.peek()
				c.cancel(first)
				after := c.peek()
				back := after.Remaining - before.Remaining
				if test.limit.Algorithm == LeakyBucket {
					back = int64((before.ResetAfter - after.ResetAfter) / time.Second)
					if test.taken > 0 {
						test.back = 0 // it shapes, so they stand in line
					}
				}
				if back != test.back {
					t.Errorf("%d of 3 permits came back, want %d: %+v, then %+v", back, test.back, before, after)
				}
			})
		}
	})
}

// TestRefilledPermitsDoNotComeBack: while a bucket was full nothing was added to
// it, and that time is not lent afterwards.
func TestRefilledPermitsDoNotComeBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for after, want := range map[time.Duration]int64{0: 4, time.Second: 3, 3 * time.Second: 1, 4 * time.Second: 0, time.Minute: 0} {
			c := newClocked(t, client, bucket("1/s", 20))
			old := c.book(4, 0)
			c.now = c.now.Add(after)
			c.book(2, 0)
			c.book(3, 0)
			before := c.peek().Remaining
			c.cancel(old)
			if back := c.peek().Remaining - before; back != want {
				t.Errorf("cancelled after %v: %d permits came back, want %d", after, back, want)
			}
		}
		// More commits than are remembered: what comes back may be less, never more.
		c := newClocked(t, client, bucket("1/s", 100))
		var booked []*Reservation
		for range 12 {
			booked = append(booked, c.book(5, 0))
			c.now = c.now.Add(3 * time.Second)
		}
		before := c.peek().Remaining
		c.cancel(booked[0])
		if back := c.peek().Remaining - before; back > 2 {
			t.Errorf("%d permits came back of those that had refilled but for 2", back)
		}
	})
}

// TestSettle: less is given back and more is charged, exactly, up to twice what
// the limit holds.
func TestSettle(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, limit := range map[string]Limit{
			"token bucket": bucket("60/min", 60), "fixed window": window("60/min", nil),
			"sliding window log": logged("60/min"), "sliding window counter": counted("60/min"),
		} {
			t.Run(name, func(t *testing.T) {
				c := newClocked(t, client, limit)
				left := func(want int64, when string) {
					t.Helper()
					if got := c.peek().Remaining; got != want {
						t.Fatalf("%s: %d left, want %d", when, got, want)
					}
				}
				r := c.book(40, 0)
				left(20, "reserved 40")
				c.settle(r, 10)
				left(50, "settled at 10")
				c.settle(r, 0)
				left(50, "settled again")
				r = c.book(5, 0)
				c.settle(r, 30)
				left(20, "reserved 5, settled at 30")
				r = c.book(1, 0)
				c.settle(r, 1)
				left(19, "settled at what was reserved")
				r = c.book(1, 0)
				c.settle(r, 1<<62)
				left(0, "settled at too much")
				wait := c.peek().RetryAfter
				want := map[Algorithm]time.Duration{
					TokenBucket: 61 * time.Second, // 120 owed, until 59 are
					FixedWindow: time.Minute, SlidingWindowLog: time.Minute,
					SlidingWindowCounter: 60*time.Second + 30*time.Second + time.Microsecond, // 120 weigh less than 60 after 30 s of the next window
				}[limit.Algorithm]
				if wait != want {
					t.Errorf("after a charge beyond bounds the next call waits %v, want %v", wait, want)
				}
				if err := c.book(1, day).Settle(t.Context(), -1); err == nil {
					t.Error("settled at -1")
				}
			})
		}
	})
}

// TestLawOverCancelledSlots: whatever is cancelled and settled for less, the
// calls that were made keep the law: no permit comes back twice, and none at a
// moment at which others rest on it.
func TestLawOverCancelledSlots(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, algorithm := range []Algorithm{TokenBucket, LeakyBucket} {
			back := 0
			rapid.Check(t, func(rt *rapid.T) {
				limit := Limit{Name: "l", Algorithm: algorithm, Rate: Rate{Count: rapid.Int64Range(1, 60).Draw(rt, "count"), Period: time.Minute}}
				burst := int64(1)
				if algorithm == TokenBucket {
					burst = rapid.Int64Range(1, 12).Draw(rt, "burst")
					limit.Burst = burst
				}
				c := newClocked(t, client, limit)
				var open []*Reservation
				used := map[*Reservation]int64{}
				for range rapid.IntRange(2, 24).Draw(rt, "steps") {
					c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 5e6).Draw(rt, "after")) * time.Microsecond)
					if len(open) > 0 && rapid.Bool().Draw(rt, "settle") {
						i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
						r := open[i]
						open = append(open[:i], open[i+1:]...)
						actual := rapid.Int64Range(0, used[r]).Draw(rt, "actual")
						c.settle(r, actual)
						used[r] = actual
						back++
						continue
					}
					n := rapid.Int64Range(1, burst).Draw(rt, "n")
					r, err := c.Reserve(t.Context(), n, time.Duration(rapid.SampledFrom([]int{0, 5, 600}).Draw(rt, "within"))*time.Second, "k")
					if err != nil {
						rt.Fatal(err)
					}
					if r.Allowed {
						open = append(open, r)
						used[r] = n
					}
				}
				var grants []grant
				for r, n := range used {
					if n > 0 {
						grants = append(grants, grant{r.At, n})
					}
				}
				if over := excess(grants, limit.Rate, burst); len(grants) > 0 && over.Sign() > 0 {
					rt.Fatalf("%s permits over %v + %d: %v", over.FloatString(4), limit.Rate, burst, grants)
				}
			})
			if back == 0 {
				t.Error("nothing was settled")
			}
		}
	})
}

// TestMeteredLimitIsUsed: a budget under load whose estimates are far too high
// is used to the last permit, for what is not used comes back.
func TestMeteredLimitIsUsed(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("1000/min", 1000))
		begin := c.now
		var used int64
		var underWay []*Reservation
		for c.now.Sub(begin) < 5*time.Minute {
			r, err := c.Reserve(t.Context(), 200, 0, "k")
			if err != nil {
				t.Fatal(err)
			}
			if r.Allowed {
				underWay = append(underWay, r)
			}
			if !r.Allowed || len(underWay) > 3 {
				// The oldest call is answered while others have been let through since.
				if len(underWay) > 0 {
					actual := 40 + int64(len(underWay))*5
					c.settle(underWay[0], actual)
					used += actual
					underWay = underWay[1:]
				}
				c.now = c.now.Add(200 * ms)
			}
		}
		allowed := int64(1000 + 5*1000)
		if used > allowed || used < allowed*95/100 {
			t.Errorf("used %d of %d", used, allowed)
		}
	})
}

func TestWait(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		limits := func(name string, limits ...Limit) *Limiter {
			l, err := New(client, fmt.Sprintf("wait:%s:%d", name, time.Now().UnixNano()), limits...)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		// The next slot is an hour away: nobody waits for it here.
		far := limits("far", leaky("1/h", 2))
		if r, err := far.Wait(t.Context(), 1, "k"); err != nil || !r.Allowed || r.Delay != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err := far.Wait(soon, 1, "k")
		if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Limit != "lb" || refused.Delay < 59*time.Minute {
			t.Errorf("behind the deadline: %v", err)
		}
		// A caller that leaves gives its slot back.
		leaving, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := far.Wait(leaving, 1, "k")
			left <- err
		}()
		for {
			if d, err := far.Peek(t.Context(), 1, "k"); err != nil {
				t.Fatal(err)
			} else if d.ResetAfter > time.Hour {
				break // it has its slot
			}
		}
		if _, err := far.Wait(t.Context(), 1, "k"); err == nil {
			t.Error("a third call fits into a queue of two")
		}
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want the context's error", err)
		}
		if d, err := far.Peek(t.Context(), 1, "k"); err != nil || d.ResetAfter > time.Hour {
			t.Errorf("%+v, %v: its slot did not come back", d, err)
		}

		// Waiting takes as long as it says.
		short := limits("short", leaky("20/s", 0), bucket("1000/s", 1000))
		begin := time.Now()
		for range 4 {
			if r, err := short.Wait(t.Context(), 1, "k"); err != nil || !r.Allowed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if took := time.Since(begin); took < 150*ms {
			t.Errorf("four calls at 20/s within %v", took)
		}
	})
}

// TestPeek: it says what a call would be told, and nothing changes for it.
func TestPeek(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{bucket("1/s", 5), leaky("1/s", 5), window("5/min", nil), logged("5/min"), counted("5/min"), inFlightOf(5, time.Minute)} {
			c := newClocked(t, client, limit)
			if d := c.peek(); !d.Allowed || d.Remaining != 5 || d.Quota != 5 || d.ResetAfter != 0 {
				t.Errorf("%s: %+v of a bucket that nobody used", limit.Name, d)
			}
			if n := client.Exists(t.Context(), c.bucket(limit, "k")).Val(); n != 0 {
				t.Errorf("%s: peeking made a key", limit.Name)
			}
			for i := range int64(5) {
				if d := c.peek(); !d.Allowed || d.Remaining != 5-i {
					t.Errorf("%s: %+v after %d permits", limit.Name, d, i)
				}
				c.take(1)
			}
			peeked := c.peek()
			if taken := c.take(1); peeked != taken || taken.Allowed || taken.ResetAfter < taken.RetryAfter {
				t.Errorf("%s: peeked %+v, taken %+v", limit.Name, peeked, taken)
			}
			if d, err := c.Peek(t.Context(), 6, "k"); err == nil && limit.Algorithm != Concurrency {
				t.Errorf("%s: %+v for a cost that is never admitted", limit.Name, d)
			}
		}
	})
}
