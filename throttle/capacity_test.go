package throttle

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCapacityOfUnevenIntervals: slots are rounded up to whole µs, the queue in
// front of a leaky bucket is not shorter for it.
func TestCapacityOfUnevenIntervals(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, rate := range []string{"3/s", "7/s", "9973/s", "1/s", "10/s", "1/90s", "7/90s"} {
			for _, capacity := range []int64{1, 2, 3, 10, 40} {
				c := newClocked(t, client, leaky(rate, capacity))
				for i := range capacity {
					if d := c.reserve(1, day); !d.Allowed {
						t.Fatalf("%s, capacity %d: refused with %d waiting", rate, capacity, i)
					}
				}
				if d := c.reserve(1, day); d.Allowed || d.Limit != "lb" {
					t.Errorf("%s, capacity %d: %+v; want it full", rate, capacity, d)
				}
			}
		}
	})
}

// TestCostsOfLargeWindows: a window counts permits, so what its rate is per µs
// does not bound a cost.
func TestCostsOfLargeWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{window("1000003/day", nil), window("1000003/day", time.UTC), window("1000003/month", time.UTC), window("599999999989/week", nil)} {
			c := newClocked(t, client, limit)
			n := limit.Rate.Count - 1
			if d := c.take(n); !d.Allowed || d.Remaining != 1 {
				t.Errorf("%v: %d permits: %+v", limit.Rate, n, d)
			}
			if d := c.take(1); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%v: the last permit: %+v", limit.Rate, d)
			}
			if d := c.take(1); d.Allowed {
				t.Errorf("%v: one too many: %+v", limit.Rate, d)
			}
		}
	})
}

// TestCountable: the cost named as the largest is taken, one more is refused.
func TestCountable(t *testing.T) {
	for _, rate := range []string{"7/day", "1/90s", "9973/s", "1000000/s", "1/1us"} {
		limit := leaky(rate, 0)
		most := limit.countable()
		if !limit.Rate.fits(most) || limit.Rate.fits(most+1) || most < 1 || most == math.MaxInt64 {
			t.Errorf("%s: %d is not the largest cost that fits", rate, most)
		}
	}
}
