package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestClockSetBackHeals: after a step back nothing is given afresh, and the
// answer's RetryAfter is true: the bucket works again from then on.
func TestClockSetBackHeals(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]Limit{
		"token bucket":   bucket("10/s", 5),
		"leaky bucket":   leaky("10/s", 5),
		"unbounded":      leaky("1/s", 0),
		"fixed window":   window("2/min", nil),
		"a day in UTC":   window("2/day", time.UTC),
		"slow and large": bucket("1/90s", 4),
	} {
		for _, back := range []time.Duration{time.Millisecond, 2 * time.Second, time.Hour, 30 * day, 1000 * day} {
			t.Run(name+" "+back.String(), func(t *testing.T) {
				onBoth(t, func(t *testing.T, client redis.UniversalClient) {
					c := newClocked(t, client, limit)
					most := limit.maxCost(false)
					c.take(most)
					c.now = c.now.Add(-back)
					start := c.now
					refused := 0
					d := c.take(1)
					for ; !d.Allowed; d = c.take(1) {
						if d.RetryAfter <= 0 {
							t.Fatalf("refused without a wait: %+v", d)
						}
						if refused++; refused > 3 {
							t.Fatalf("still refused after %v: %+v", c.now.Sub(start), d)
						}
						c.now = c.now.Add(d.RetryAfter)
					}
					if limit.Algorithm != FixedWindow && c.now == start {
						t.Error("a clock that was set back gave a permit")
					}
					// Never longer than the bucket owed, and a step too small to
					// be seen: a bucket that is one number shows only what is
					// more than it can owe.
					longest := (limit.Rate.Period+time.Duration(limit.Rate.Count)-1)/time.Duration(limit.Rate.Count) + min(back, time.Minute)
					if limit.Algorithm == FixedWindow {
						longest = limit.Rate.Period
						if back <= time.Second { // too small to be seen
							longest += back
						}
					}
					if waited := c.now.Sub(start); waited > longest {
						t.Errorf("refused for %v, longer than %v", waited, longest)
					}
					// And from there on the bucket is as ever.
					for range 3 * most {
						if d := c.take(1); !d.Allowed {
							return
						}
					}
					t.Error("no longer a limit")
				})
			})
		}
	}
}

// TestClockSetForward: at most one bucket is gained.
func TestClockSetForward(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("1/s", 5))
		c.take(5)
		c.now = c.now.Add(1000 * day)
		if d := c.take(5); !d.Allowed {
			t.Errorf("%+v", d)
		}
		if d := c.take(1); d.Allowed {
			t.Errorf("more than a bucket was gained: %+v", d)
		}
	})
}
