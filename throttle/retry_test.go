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

// TestRemainingOfAQueue: of a leaky bucket that shapes, Remaining is how many more
// may wait.
func TestRemainingOfAQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, leaky("10/s", 5))
		for i, want := range []int64{4, 3, 2, 1, 0, 0} {
			if d := c.reserve(1, time.Minute); d.Allowed != (i < 5) || d.Remaining != want || d.Quota != 5 {
				t.Errorf("call %d: %+v; want %d of 5 left", i+1, d, want)
			}
		}
		c.now = c.now.Add(250 * ms)
		if d := c.reserve(1, time.Minute); !d.Allowed || d.Remaining != 1 {
			t.Errorf("%+v; want 1 of 5 left", d)
		}
	})
}

// TestRemainingIsThePlaces: what is left of a queue may be reserved, and no more.
func TestRemainingIsThePlaces(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			limit := Limit{Name: "lb", Algorithm: LeakyBucket, Rate: Rate{Count: rapid.Int64Range(1, 70).Draw(rt, "count"), Period: time.Second}, Capacity: rapid.Int64Range(1, 20).Draw(rt, "capacity")}
			c := newClocked(t, client, limit)
			for range rapid.IntRange(1, 10).Draw(rt, "calls") {
				d := c.reserve(rapid.Int64Range(1, limit.Capacity).Draw(rt, "n"), time.Hour)
				left := d.Remaining
				if left < limit.Capacity && c.reserve(left+1, time.Hour).Allowed {
					rt.Fatalf("%+v, but one more could wait", d)
				}
				if left > 0 && !c.reserve(left, time.Hour).Allowed {
					rt.Fatalf("%+v, but so many could not wait", d)
				}
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(rt, "after")) * time.Microsecond)
			}
		})
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
