package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestShortCallsSeeFarSlots: a bucket is shared by calls that look far ahead and
// calls that do not; what the first were given counts for the second.
func TestShortCallsSeeFarSlots(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]Limit{
		"plain windows":   window("2/day", nil),
		"calendar":        window("2/day", time.UTC),
		"token bucket":    bucket("2/day", 2),
		"leaky bucket":    leaky("2/day", 0),
		"bounded, leaky":  leaky("2/day", 5),
		"slow and narrow": bucket("1/day", 1),
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, client redis.UniversalClient) {
				c := newClocked(t, client, limit)
				c.now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
				var last time.Time
				for range 5 {
					d := c.reserve(1, 10*day)
					if !d.Allowed {
						t.Fatalf("%+v", d)
					}
					last = d.At
				}
				if d := c.take(1); d.Allowed {
					t.Errorf("taken at %v with slots given until %v", d.At, last)
				}
				if d := c.reserve(1, time.Minute); d.Allowed {
					t.Errorf("a slot at %v with slots given until %v", d.At, last)
				}
				if limit.Capacity > 0 {
					return // it is full
				}
				if d := c.reserve(1, 10*day); !d.Allowed || d.At.Before(last) {
					t.Errorf("%+v; want a slot from %v on", d, last)
				}
			})
		})
	}
}

// TestFarSlotsOutliveAFasterRate: a short call under a raised rate neither gives
// the far slots again nor forgets them.
func TestFarSlotsOutliveAFasterRate(t *testing.T) {
	for _, limit := range []Limit{leaky("1/h", 0), bucket("1/h", 1)} {
		onBoth(t, func(t *testing.T, client redis.UniversalClient) {
			c := newClocked(t, client, limit)
			var last time.Time
			for range 8 {
				last = c.reserve(1, day).At
			}
			faster := limit
			faster.Rate = mustRate("20/h")
			c.change(faster)
			if d := c.reserve(1, time.Hour); d.Allowed {
				t.Errorf("%s: a slot at %v among those given until %v", limit.Name, d.At, last)
			}
			// The last slot was given under 1/h; after it the new rate holds.
			if d := c.reserve(1, day); d.At.Sub(last) != 3*time.Minute {
				t.Errorf("%s: the next slot is %v after the last one; want 3m", limit.Name, d.At.Sub(last))
			}
		})
	}
}
