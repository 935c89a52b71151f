package throttle

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/testlong"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestCounterSustainsItsRate: a caller that takes whatever there is as soon as it is
// there gets the whole rate of a sliding window counter, and so does one that comes
// half an interval late each time.
func TestCounterSustainsItsRate(t *testing.T) {
	t.Parallel()
	windows := int64(4)
	if testlong.On() {
		windows = 20
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, rate := range []string{"1/s", "2/s", "5/s", "10/s", "60/s", "7/3s"} {
			limit := counted(rate)
			interval := limit.Rate.Period / time.Duration(limit.Rate.Count)
			for _, late := range []time.Duration{0, interval / 2} {
				c := newClocked(t, client, limit)
				end := c.now.Add(time.Duration(windows) * limit.Rate.Period)
				var got int64
				for c.now.Before(end) {
					d := c.take(1)
					if d.Allowed {
						got++
						continue
					}
					c.now = c.now.Add(d.RetryAfter + late)
				}
				if want := windows * limit.Rate.Count; got != want {
					t.Errorf("%s, %v late: %d permits in %d windows, %.3f of %d", rate, late, got, windows, float64(got)/float64(want), want)
				}
			}
		}
	})
}

// TestCounterLaw: with the estimate in exact fractions, rounded down, plus what was
// taken never above the limit, whatever is asked when; in any period at most twice the
// count; and a refusal is never unfounded: what is refused would break the law, until
// RetryAfter has passed.
func TestCounterLaw(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	rapid.Check(t, func(rt *rapid.T) {
		limit := Limit{Name: "sc", Algorithm: SlidingWindowCounter, Rate: Rate{
			Count:  rapid.Int64Range(1, 70).Draw(rt, "count"),
			Period: time.Duration(rapid.Int64Range(100, 5_000_000).Draw(rt, "period")) * time.Microsecond,
		}}
		c := newClocked(t, client, limit)
		length, most := limit.Rate.Period.Microseconds(), limit.Rate.Count
		used := map[int64]int64{}
		fits := func(at, n int64) bool {
			w, d := at/length, at%length
			weighed := big.NewRat(used[w-1]*(length-d), length)
			whole := new(big.Int).Quo(weighed.Num(), weighed.Denom())
			return whole.Int64()+used[w]+n <= most
		}
		type taken struct{ at, n int64 }
		var all []taken
		for range rapid.IntRange(10, 60).Draw(rt, "calls") {
			n := rapid.Int64Range(1, max(1, most/3)).Draw(rt, "n")
			d := c.take(n)
			now := c.now.UnixMicro()
			if d.Allowed != fits(now, n) {
				rt.Fatalf("%d at %d: %+v, but by the law %v: %v", n, now, d, !d.Allowed, used)
			}
			if d.Allowed {
				used[now/length] += n
				all = append(all, taken{now, n})
			} else if wait := d.RetryAfter.Microseconds(); !fits(now+wait, n) || fits(now+wait-1, n) {
				rt.Fatalf("%d at %d: %+v is not the moment from which it fits: %v", n, now, d, used)
			}
			if !d.Allowed && rapid.Bool().Draw(rt, "come back") {
				c.now = c.now.Add(d.RetryAfter)
			} else {
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, length/most).Draw(rt, "after")) * time.Microsecond)
			}
		}
		for i := range all {
			sum := int64(0)
			for _, one := range all[i:] {
				if one.at < all[i].at+length {
					sum += one.n
				}
			}
			if sum > 2*most {
				rt.Fatalf("%d permits in a period that begins at %d: %v", sum, all[i].at, fmt.Sprint(all))
			}
		}
	})
}
