package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestBurstAroundAnEdge offers a call each ms from 100 ms before the edge of two
// windows to 100 ms after it: a fixed window lets twice its count through, the
// others no more than they allow in a period, and a sliding window counter one more.
func TestBurstAroundAnEdge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit Limit
		most  int
	}{
		"fixed window":           {window("10/10s", nil), 20},
		"sliding window log":     {logged("10/10s"), 10},
		"sliding window counter": {counted("10/10s"), 11},
		"token bucket":           {bucket("10/10s", 10), 10},
		"leaky bucket":           {leaky("10/10s", 10), 10},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, client redis.UniversalClient) {
				c := newClocked(t, client, test.limit)
				c.now = c.now.Add(9900 * ms)
				got := 0
				for range 200 {
					if c.take(1).Allowed {
						got++
					}
					c.now = c.now.Add(ms)
				}
				if got != test.most {
					t.Errorf("%d calls within 200 ms around the edge, want %d", got, test.most)
				}
			})
		})
	}
}

// TestCounterAtItsWorst is what a weighted estimate does not see: a burst right
// before an edge, then a call whenever it allows one. In the period that begins
// with the burst twice the count goes, evenly; the log lets none of it.
func TestCounterAtItsWorst(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, test := range []struct {
			limit Limit
			most  int64
		}{{counted("100/10s"), 200}, {logged("100/10s"), 100}} {
			c := newClocked(t, client, test.limit)
			edge := c.now.Add(10 * time.Second)
			c.now = edge.Add(-time.Microsecond)
			first := c.now
			got := int64(100)
			c.take(got)
			for {
				d := c.take(1)
				if d.Allowed {
					got++
					continue
				}
				if c.now = c.now.Add(d.RetryAfter); c.now.Sub(first) >= 10*time.Second {
					break
				}
			}
			if got != test.most {
				t.Errorf("%s: %d calls in one period, want %d", test.limit.Algorithm, got, test.most)
			}
		}
	})
}
