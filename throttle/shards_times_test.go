package throttle

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// breaker is a hook that fails what is sent while it is broken.
type breaker struct{ broken atomic.Bool }

func (b *breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.broken.Load() {
			cmd.SetErr(errDown)
			return errDown
		}
		return next(ctx, cmd)
	}
}

// TestRefusalOfShards: of two parts that refuse, what is said is of the one that
// admits earlier.
func TestRefusalOfShards(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for range 4 { // whichever is asked first
			c := newSplit(t, client, bucket("2/min", 4), 2)
			first, second := c.shards[0], c.shards[1]
			for i, shard := range []*Limiter{first, second} {
				if d, err := shard.Take(t.Context(), 2, part("k", i)); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				c.now = c.now.Add(10 * time.Second)
			}
			if d := c.take(1); d.Allowed || d.RetryAfter != 40*time.Second {
				t.Errorf("%+v; want the 40 s of the first part, not the 50 s of the second", d)
			}
			if d := c.reserve(1, 30*time.Second); d.Allowed || d.RetryAfter != 10*time.Second || d.Delay != 40*time.Second {
				t.Errorf("%+v; want the 40 s of the first part, of which 30 s may pass before the slot", d)
			}
			if d := c.peek(); d.Allowed || d.RetryAfter != 40*time.Second || d.Remaining != 0 || d.Quota != 4 {
				t.Errorf("%+v; want the 40 s of the first part", d)
			}
			c.now = c.now.Add(40 * time.Second)
			if d := c.take(1); !d.Allowed {
				t.Errorf("%+v when RetryAfter has passed", d)
			}
		}
	})
}

// TestNearSlotsOfShards: no later slot is taken in a shard while the other one that was chosen has permits, and a slot of
// two that are known to have none takes one round trip.
func TestNearSlotsOfShards(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	defer client.Close()
	watch := &gate{}
	client.AddHook(watch)
	for range 8 { // whichever is asked first
		c := newSplit(t, client, bucket("2/h", 20), 2)
		if _, err := c.shards[0].Take(t.Context(), 10, part("k", 0)); err != nil { // as another process, so that this one does not know it
			t.Fatal(err)
		}
		for i := range 10 {
			if d := c.reserve(1, 24*time.Hour); !d.Allowed || d.Delay != 0 {
				t.Fatalf("slot %d: %+v", i, d)
			}
		}
		for i := range 4 {
			before := watch.trips.Load()
			d := c.reserve(1, 24*time.Hour)
			if !d.Allowed || d.Delay < time.Hour || d.Delay > 3*time.Hour {
				t.Fatalf("slot %d: %+v", 10+i, d)
			}
			if n := watch.trips.Load() - before; i > 0 && n != 1 {
				t.Errorf("slot %d took %d round trips", 10+i, n)
			}
		}
	}
}

// TestPeekOfShards: it adds up what the parts have, admits what any of them does,
// and changes nothing.
func TestPeekOfShards(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range splittable(11) {
			c := newSplit(t, client, limit, 4)
			if d := c.peek(); !d.Allowed || d.Remaining != 11 || d.Quota != 11 || d.Limit != limit.Name {
				t.Errorf("%s: %+v of what nobody used", limit.Name, d)
			}
			for i := range c.shards {
				if n := client.Exists(t.Context(), c.bucket(limit, part("k", i))).Val(); n != 0 {
					t.Errorf("%s: peeking made a key", limit.Name)
				}
			}
			left := int64(11)
			for range 1000 {
				d := c.take(1)
				if !d.Allowed {
					continue // two empty ones
				}
				left--
				peeked := c.peek()
				if peeked.Remaining != left || peeked.Quota != 11 || peeked.Allowed != (left > 0) {
					t.Errorf("%s: %+v with %d left", limit.Name, peeked, left)
				}
				if d.Quota != 2 && d.Quota != 3 || d.Remaining >= d.Quota {
					t.Errorf("%s: %+v; want what is said of the part", limit.Name, d)
				}
				if left == 0 {
					break
				}
			}
			if left != 0 {
				t.Errorf("%s: %d permits were not found", limit.Name, left)
			}
		}
	})
}

// TestPausesOfShards: a pause is one of all parts, and so is its end.
func TestPausesOfShards(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range splittable(12) {
			c := newSplit(t, client, limit, 4)
			err := c.Pause(t.Context(), limit.Name, "k", c.now.Add(90*time.Second), "why")
			if limit.Algorithm == Concurrency {
				if err == nil {
					t.Errorf("%s: paused", limit.Name)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			c.now = c.now.Add(90*time.Second - time.Microsecond)
			for range 20 {
				if d := c.take(1); d.Allowed || d.Paused != "why" || d.RetryAfter != time.Microsecond {
					t.Errorf("%s: %+v during the pause", limit.Name, d)
				}
			}
			if got := c.drain(); got != 0 {
				t.Errorf("%s: %d permits of parts that are not paused", limit.Name, got)
			}
			if d := c.peek(); d.Allowed || d.Paused != "why" || d.Remaining != 0 {
				t.Errorf("%s: %+v during the pause", limit.Name, d)
			}
			if d := c.take(1, "another"); !d.Allowed {
				t.Errorf("%s: %+v of another key", limit.Name, d)
			}
			if err := c.Resume(t.Context(), limit.Name, "k"); err != nil {
				t.Fatal(err)
			}
			want := int64(12)
			if limit.Algorithm == TokenBucket {
				want = 4 // one of each part
			}
			if got := c.drain(); got != want {
				t.Errorf("%s: %d permits after the pause; want %d", limit.Name, got, want)
			}
			if err := c.Pause(t.Context(), "none", "k", c.now.Add(time.Second), ""); err == nil {
				t.Errorf("%s: a limit that is not there was paused", limit.Name)
			}
		}
	})
}

// TestReservationsOfShards: what becomes of a call is the part's that gave its
// slot.
func TestReservationsOfShards(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range splittable(40) {
			c := newSplit(t, client, limit, 4)
			full := c.lefts()
			for i := range 12 {
				r := c.book(3, 0)
				taken := c.lefts()
				which := slices.IndexFunc(c.shards, func(l *Limiter) bool { return l == r.limiter })
				cost := int64(3)
				if limit.Algorithm == Concurrency {
					cost = 1
				}
				for j := range full {
					want := full[j]
					if j == which {
						want -= cost
					}
					if taken[j] != want {
						t.Fatalf("%s: the parts have %d after a call of part %d, and had %d", limit.Name, taken, which, full)
					}
				}
				if i%2 == 0 || limit.Algorithm == Concurrency {
					c.cancel(r)
				} else {
					c.settle(r, 1)
					full[which]--
				}
				if got := c.lefts(); !slices.Equal(got, full) {
					t.Fatalf("%s: the parts have %d after the call was settled, want %d", limit.Name, got, full)
				}
			}
		}
		// Slots of one part are in order, and Wait's slot comes back to it.
		c := newSplit(t, client, kinds(4)[0], 2)
		c.drain()
		last := map[*Limiter]time.Time{}
		for range 8 {
			r := c.book(1, day)
			if !r.At.After(last[r.limiter]) {
				t.Errorf("a slot at %v after one at %v", r.At, last[r.limiter])
			}
			last[r.limiter] = r.At
		}
		if len(last) != 2 {
			t.Errorf("%d parts gave slots", len(last))
		}
		before := []time.Duration{c.resetOf(0), c.resetOf(1)}
		ctx, end := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := c.Wait(ctx, 1, "k")
			left <- err
		}()
		for begin := time.Now(); c.resetOf(0) == before[0] && c.resetOf(1) == before[1]; time.Sleep(ms) {
			if time.Since(begin) > patience {
				t.Fatal("nobody waits")
			}
		}
		end()
		if err := soon(t, "Wait", left); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if after := []time.Duration{c.resetOf(0), c.resetOf(1)}; !slices.Equal(after, before) {
			t.Errorf("%v until the parts are full; want %v as before", after, before)
		}
		soonDone, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := c.Wait(soonDone, 1, "k"); err == nil {
			t.Error("a slot hours away within a minute")
		} else if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Limit != "token" {
			t.Error(err)
		}
	})
}

// resetOf is how long it takes until a part is full.
func (c *clocked) resetOf(i int) time.Duration {
	c.t.Helper()
	d, err := c.shards[i].Peek(c.t.Context(), 1, part("k", i))
	if err != nil {
		c.t.Fatal(err)
	}
	return d.ResetAfter
}

// TestClockOfShards: every shard goes by the limiter's clock.
func TestClockOfShards(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, Limit{Name: "fw", Algorithm: FixedWindow, Rate: Rate{Count: 4, Period: time.Hour}, Shards: 2})
		l := c.WithClock(func() time.Time { return c.now })
		for range 3 {
			for went := range 5 {
				d, err := l.Take(t.Context(), 1, "k")
				if err != nil || d.Allowed != (went < 4) || d.Allowed && !d.At.Equal(c.now) {
					t.Fatalf("call %d at %v: %+v, %v", went, c.now, d, err)
				}
			}
			c.now = c.now.Add(time.Hour)
		}
	})
}
