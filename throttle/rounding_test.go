package throttle

import (
	"math/big"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

// TestCapacityIsUsed drives a limit by its own answers for many intervals: what
// rounding takes is below 0.1 %, what it gives is nothing, and the slots end
// less than a permit from where exact fractions put them.
func TestCapacityIsUsed(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	for _, test := range []struct {
		rate  string
		burst int64
		calls int64
	}{
		{"7/s", 1, 10_000}, {"9973/s", 1, 30_000}, {"9973/s", 50, 10_000}, {"10000/s", 1, 10_000}, {"1/90s", 1, 10_000}, {"1/90s", 7, 10_000},
	} {
		if !testlong.On() {
			test.calls /= 10
		}
		for _, limit := range []Limit{bucket(test.rate, test.burst), leaky(test.rate, 0)} {
			c := newClocked(t, redistest.Shared(t).Client(), limit)
			begin, burst := c.now, limit.maxCost(true)
			if burst == 0 {
				burst = 1
			}
			interval := big.NewRat(limit.Rate.Period.Microseconds(), limit.Rate.Count)
			var at time.Time
			for i := range test.calls {
				at = c.reserve(1, day).At
				// Permit i is due when the i+1 - burst before it have drained.
				due := new(big.Rat).Mul(interval, big.NewRat(max(0, i+1-burst), 1))
				got := big.NewRat(at.Sub(begin).Microseconds(), 1)
				if got.Cmp(due) < 0 {
					t.Fatalf("%s %s: permit %d at %v µs, due at %s", limit.Name, test.rate, i, got, due.FloatString(3))
				}
				if late := new(big.Rat).Sub(got, due); late.Cmp(big.NewRat(1, 1)) >= 0 {
					t.Fatalf("%s %s: permit %d is %s µs late", limit.Name, test.rate, i, late.FloatString(3))
				}
				// The queue is kept short, so the clock moves with the slots.
				if i%3 == 0 {
					c.now = at
				}
			}
			exact := new(big.Rat).Mul(interval, big.NewRat(test.calls-burst, 1))
			lost := new(big.Rat).Sub(big.NewRat(at.Sub(begin).Microseconds(), 1), exact)
			if lost.Quo(lost, exact); lost.Sign() < 0 || lost.Cmp(big.NewRat(1, 1000)) >= 0 {
				t.Errorf("%s %s: %s of the capacity is lost", limit.Name, test.rate, lost.FloatString(6))
			}
		}
	}
}

// TestPolicingNeverGains: a caller that comes back exactly when it was told, or
// hammers a µs before, never gets more than burst + rate × t.
func TestPolicingNeverGains(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	for _, test := range []struct {
		rate  string
		burst int64
	}{{"7/s", 1}, {"9973/s", 1}, {"9973/s", 20}, {"10000/s", 3}, {"1/90s", 2}, {"3/s", 5}} {
		c := newClocked(t, redistest.Shared(t).Client(), bucket(test.rate, test.burst))
		rate := c.limits[0].Rate
		begin := c.now
		var taken int64
		for i := range 4_000 {
			d := c.take(1)
			if !d.Allowed {
				if i%2 == 0 {
					c.now = c.now.Add(d.RetryAfter - time.Microsecond)
					if early := c.take(1); early.Allowed {
						t.Fatalf("%s: admitted before RetryAfter", test.rate)
					}
					c.now = c.now.Add(time.Microsecond)
				} else {
					c.now = c.now.Add(d.RetryAfter)
				}
				continue
			}
			taken++
			// (taken - burst) × period <= t × count, in whole numbers
			elapsed := c.now.Sub(begin).Microseconds()
			if (taken-test.burst)*rate.Period.Microseconds() > elapsed*rate.Count {
				t.Fatalf("%s, burst %d: %d permits within %d µs", test.rate, test.burst, taken, elapsed)
			}
		}
		if taken < 1_900 {
			t.Errorf("%s: only %d of 4000 calls were admitted; every other one had waited as told", test.rate, taken)
		}
	}
}
