package throttle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestReserveRetryAfter: a refused reservation says when the same call would be
// admitted, which is before its slot by what it may wait, and how far that slot is.
func TestReserveRetryAfter(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range map[string]struct {
			limits []Limit
			before int // calls that were given slots
			within time.Duration
			retry  time.Duration
			slot   time.Duration
		}{
			"a bucket":                {[]Limit{bucket("3/s", 1)}, 2, 332 * ms, 334667 * time.Microsecond, 666667 * time.Microsecond},
			"a queue by time":         {[]Limit{leaky("1/min", 0)}, 4, 4*time.Minute - ms, ms, 4 * time.Minute},
			"a full queue":            {[]Limit{leaky("1/min", 4)}, 4, time.Hour, time.Minute, 4 * time.Minute},
			"a full queue, near":      {[]Limit{leaky("1/min", 4)}, 4, 90 * time.Second, 150 * time.Second, 4 * time.Minute},
			"now or not at all":       {[]Limit{bucket("1/min", 1)}, 1, 0, time.Minute, time.Minute},
			"the farther of two":      {[]Limit{bucket("1/s", 1), bucket("1/min", 2).named("slow")}, 2, 40 * time.Second, 20 * time.Second, time.Minute},
			"a full queue behind one": {[]Limit{leaky("1/min", 4), bucket("4/min", 4).named("fast")}, 4, time.Hour, time.Minute, 4 * time.Minute},
		} {
			c := newClocked(t, client, test.limits...)
			for range test.before {
				c.reserve(1, time.Hour)
			}
			d := c.reserve(1, test.within)
			if d.Allowed || d.RetryAfter != test.retry || d.Delay != test.slot || !d.At.IsZero() {
				t.Errorf("%s: %+v; want RetryAfter %v, and %v to the slot", name, d, test.retry, test.slot)
			}
		}
	})
}

// TestRetryAfterIsTheMoment: whatever was taken before, a call that was refused is
// refused until RetryAfter has passed and admitted then, by Take and by Reserve.
func TestRetryAfterIsTheMoment(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		refused := map[bool]int{}
		rapid.Check(t, func(rt *rapid.T) {
			algorithms := rapid.SampledFrom([][]Algorithm{
				{TokenBucket}, {LeakyBucket}, {FixedWindow}, {SlidingWindowLog}, {SlidingWindowCounter},
				{LeakyBucket, TokenBucket}, {FixedWindow, LeakyBucket}, {SlidingWindowCounter, LeakyBucket, TokenBucket}, {LeakyBucket, Concurrency}, {Concurrency, TokenBucket},
			}).Draw(rt, "algorithms")
			var limits []Limit
			most := int64(12)
			for _, algorithm := range algorithms {
				limit, _ := modelled(rt, algorithm)
				limits = append(limits, limit)
				if m := limit.maxCost(true); m > 0 {
					most = min(most, m)
				}
			}
			c := newClocked(t, client, limits...)
			begin := c.now
			for range rapid.IntRange(5, 40).Draw(rt, "calls") {
				n := rapid.Int64Range(1, most).Draw(rt, "n")
				within := time.Duration(rapid.SampledFrom([]int64{-1, 0, 1e6, 30e6, 300e6}).Draw(rt, "within")) * time.Microsecond
				ask := func() Decision {
					if within < 0 {
						return c.take(n)
					}
					r, err := c.Reserve(t.Context(), n, within, "k")
					if err != nil {
						rt.Fatal(err)
					}
					c.leases.remove(r) // nobody renews its permit, so RetryAfter is when it lapses
					return r.Decision
				}
				if d := ask(); !d.Allowed {
					refused[within > 0]++
					c.now = c.now.Add(d.RetryAfter - time.Microsecond)
					if early := ask(); early.Allowed {
						rt.Fatalf("%+v: admitted within %v before it had to be: %+v", limits, within, d)
					}
					c.now = c.now.Add(time.Microsecond)
					if late := ask(); !late.Allowed {
						rt.Fatalf("%+v: at %v, within %v: %+v; then it was %+v", limits, c.now.Sub(begin), within, d, late)
					}
				}
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 5e6).Draw(rt, "after")) * time.Microsecond)
			}
		})
		if enough := 2 * randomCases; refused[true] < enough || refused[false] < enough {
			t.Errorf("refusals: %v", refused)
		}
	})
}

// TestFarSlotHoldsNoPermitTooMany: while all permits of a concurrency limit are held,
// a call whose slot lies behind the moment at which one may lapse is refused as well.
func TestFarSlotHoldsNoPermitTooMany(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][]Limit{{bucket("1/min", 1), inFlightOf(1, 10*time.Second)}, {inFlightOf(1, 10*time.Second), bucket("1/min", 1)}} {
			c := newClocked(t, client, limits...)
			c.take(1)
			d := c.reserve(1, time.Hour)
			if d.Allowed || d.RetryAfter != 10*time.Second || d.Limit != "cc" {
				t.Errorf("%+v, while the only permit is held", d)
			}
		}
	})
}

// holder keeps reservations, which may have permits that are renewed.
type holder struct {
	c    *clocked
	held []*Reservation
}

func (h *holder) reserve(n int64, within time.Duration) Decision {
	h.c.t.Helper()
	r, err := h.c.Reserve(h.c.t.Context(), n, within, "k")
	if err != nil {
		h.c.t.Fatal(err)
	}
	h.held = append(h.held, r)
	return r.Decision
}

func (h *holder) release() {
	h.c.t.Helper()
	for _, r := range h.held {
		if err := r.Release(h.c.t.Context()); err != nil {
			h.c.t.Error(err)
		}
	}
}

// TestRemaining: whatever the algorithm, and whatever went before, as many calls of one permit go at once as
// Remaining says, and no more.
func TestRemaining(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		limits := []Limit{
			bucket("7/s", 12), leaky("7/s", 0), leaky("7/s", 20).named("queue"), window("20/10s", nil), logged("20/10s"), counted("20/10s"),
			inFlightOf(5, time.Hour),
		}
		rapid.Check(t, func(rt *rapid.T) {
			c := newClocked(t, client, rapid.SampledFrom(limits).Draw(rt, "limit"))
			most := c.limits[0].maxCost(false)
			reserving := rapid.Bool().Draw(rt, "reserving")
			held := holder{c: c}
			defer held.release()
			ask := func(n int64, within time.Duration) Decision {
				if reserving {
					return held.reserve(n, within)
				}
				return c.take(n)
			}
			for range rapid.IntRange(0, 8).Draw(rt, "calls") {
				ask(rapid.Int64Range(1, max(min(most, 6), 1)).Draw(rt, "n"), rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(rt, "within"))
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 3e6).Draw(rt, "after")) * time.Microsecond)
			}
			seen, err := c.Peek(t.Context(), 1, "k")
			if reserving {
				seen, err = c.PeekReserve(t.Context(), 1, 0, "k")
			}
			if err != nil || seen.Remaining > seen.Quota {
				rt.Fatal(seen, err)
			}
			went := int64(0)
			for ask(1, 0).Allowed {
				if went++; went > seen.Quota {
					break
				}
			}
			if went != seen.Remaining {
				rt.Fatalf("%+v, but %d went at once", seen, went)
			}
		})
	})
}

// TestPeekReserve: it answers as Reserve does, with slots ahead, full queues and pauses, and takes nothing.
func TestPeekReserve(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][]Limit{
			{bucket("10/s", 3)}, {leaky("10/s", 4)}, {leaky("10/s", 0)}, {window("3/10s", nil)}, {logged("3/10s")}, {counted("3/10s")},
			{inFlightOf(3, time.Hour)}, {leaky("10/s", 0), bucket("2/s", 3)},
		} {
			c := newClocked(t, client, limits...)
			held := holder{c: c}
			for i := range 12 {
				if i == 6 && limits[0].Algorithm != Concurrency {
					if err := c.Pause(t.Context(), limits[0].Name, "k", c.now.Add(300*ms), "why"); err != nil {
						t.Fatal(err)
					}
				}
				for _, within := range []time.Duration{0, 250 * ms, time.Hour} {
					first, err := c.PeekReserve(t.Context(), 1, within, "k")
					again, err2 := c.PeekReserve(t.Context(), 1, within, "k")
					if err != nil || err2 != nil || first != again {
						t.Fatalf("%v: peeked %+v, %v, then %+v, %v", limits, first, err, again, err2)
					}
					got := held.reserve(1, within)
					if got.Allowed { // what is left is counted after the permit was taken
						first.Limit, first.Remaining, first.ResetAfter = got.Limit, got.Remaining, got.ResetAfter
					}
					if first != got {
						t.Fatalf("%v, call %d within %v: peeked %+v; reserved %+v", limits, i, within, first, got)
					}
				}
				c.now = c.now.Add(70 * ms)
			}
			held.release()
		}
		c := newClocked(t, client, leaky("10/s", 4))
		if _, err := c.PeekReserve(t.Context(), 5, time.Hour, "k"); err == nil {
			t.Error("a cost that Reserve never admits was peeked")
		}
	})
}

// TestSettleGivesBackAnyPart: settled for any part of what was reserved last, a
// limit is as if just that part had been reserved.
func TestSettleGivesBackAnyPart(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("7/s", 12), leaky("7/s", 0), leaky("7/s", 20).named("queue"), window("20/10s", nil), logged("20/10s"), counted("20/10s")}
		for _, limits := range [][]Limit{all[:1], all[1:2], all[2:3], all[3:4], all[4:5], all[5:], all} {
			for used := range int64(9) {
				for _, after := range []time.Duration{0, 130 * ms, 2 * time.Second} {
					settled, plain := newClocked(t, client, limits...), newClocked(t, client, limits...)
					settled.reserve(3, time.Minute)
					plain.reserve(3, time.Minute)
					r := settled.book(8, time.Minute)
					if used > 0 {
						plain.book(used, time.Minute)
					}
					settled.now, plain.now = settled.now.Add(after), plain.now.Add(after)
					settled.settle(r, used)
					for i := range 6 {
						if got, want := settled.reserve(2, time.Hour), plain.reserve(2, time.Hour); got != want {
							t.Fatalf("%d limits from %q, %d of 8 used, settled after %v: call %d: %+v; without the rest %+v", len(limits), limits[0].Name, used, after, i, got, want)
						}
						settled.now, plain.now = settled.now.Add(90*ms), plain.now.Add(90*ms)
					}
				}
			}
		}
	})
}

// TestRefusedWaitSaysWhen: also of several limits, whose far slots are not taken, a
// Wait that was refused is admitted when RetryAfter has passed.
func TestRefusedWaitSaysWhen(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][]Limit{{bucket("1/h", 1)}, {bucket("1/h", 1), bucket("2/h", 2).named("two")}} {
			c := newClocked(t, client, limits...)
			c.take(1)
			for _, patience := range []time.Duration{30 * time.Minute, 10 * time.Second} {
				_, err := c.Wait(withDeadline(t, patience), 1, "k")
				refused, ok := errors.AsType[*RefusedError](err)
				if want := time.Hour - patience; !ok || (refused.RetryAfter-want).Abs() > 10*time.Second || refused.Delay != time.Hour {
					t.Errorf("%d limits: %+v, %v; want RetryAfter %v, and an hour to the slot", len(limits), refused, err, want)
				}
			}
		}
	})
}

func withDeadline(t *testing.T, after time.Duration) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), after)
	t.Cleanup(stop)
	return ctx
}
