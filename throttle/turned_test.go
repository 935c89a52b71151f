package throttle

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestReservationsOfTurnedBuckets: what was reserved under one algorithm ends
// well under any other, though nothing may come back.
func TestReservationsOfTurnedBuckets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("5/h", 5), leaky("5/h", 5), window("5/h", nil), logged("5/h"), counted("5/h"), inFlightOf(5, time.Hour)}
		for _, was := range all {
			for _, is := range all {
				is.Name = was.Name
				c := newClocked(t, client, was)
				cancelled, settled := c.book(1, 0), c.book(1, 10*time.Hour)
				c.change(is)
				c.take(1)
				for _, r := range []*Reservation{cancelled, settled} {
					r.limiter.now = c.Limiter.now
				}
				if err := cancelled.Cancel(t.Context()); err != nil {
					t.Errorf("%s, cancelled as %s: %v", was.Algorithm, is.Algorithm, err)
				}
				if err := settled.Settle(t.Context(), 2); err != nil {
					t.Errorf("%s, settled as %s: %v", was.Algorithm, is.Algorithm, err)
				}
				if d := c.peek(); d.Remaining > d.Quota {
					t.Errorf("%s, then %s: %+v", was.Algorithm, is.Algorithm, d)
				}
			}
		}
	})
}

// TestCancelAfterAStepBack: the first to see that the clock was set back may be
// a caller who gives back.
func TestCancelAfterAStepBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, logged("5/h"))
		c.take(4)
		r := c.book(1, 0)
		c.now = c.now.Add(-10 * time.Second)
		c.cancel(r)
		if ttl := client.PTTL(t.Context(), c.bucket(c.limits[0], "k")).Val(); ttl < 50*time.Minute {
			t.Errorf("the log of an hour expires in %v", ttl)
		}
		if d := c.take(1); !d.Allowed {
			t.Errorf("%+v: the permit did not come back", d)
		}
		if d := c.take(1); d.Allowed {
			t.Errorf("%+v: one too many", d)
		}
	})
}

// TestChargeBehindLaterWindows: what a call took more than was reserved counts,
// also when windows far ahead were used since.
func TestChargeBehindLaterWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{window("2/day", time.UTC), window("2/day", nil), counted("2/day"), logged("2/day")} {
			c := newClocked(t, client, limit)
			near := c.book(1, 0)
			for range 20 {
				c.book(1, 60*day)
			}
			before := c.reserve(1, maxWithin)
			c.settle(near, 3)
			if after := c.reserve(1, maxWithin); !after.Allowed || after.At.Sub(before.At) < day/4 {
				t.Errorf("%s: slots at %v and %v, with a charge of 2 between them", limit.Name, before.At, after.At)
			}
		}
	})
}

// TestPeekOfAShortenedLease writes nothing either; the next call puts it right.
func TestPeekOfAShortenedLease(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, inFlightOf(1, time.Hour))
		c.take(1)
		key := c.bucket(c.limits[0], "k")
		before := client.ZRangeWithScores(t.Context(), key, 0, -1).Val()
		c.change(inFlightOf(1, time.Minute))
		peeked := c.peek()
		if after := client.ZRangeWithScores(t.Context(), key, 0, -1).Val(); after[0] != before[0] {
			t.Errorf("peeking changed %v to %v", before, after)
		}
		if d := c.take(1); d != peeked || d.RetryAfter != time.Minute {
			t.Errorf("%+v, peeked %+v; want a minute", d, peeked)
		}
		c.now = c.now.Add(time.Minute)
		if d := c.take(1); !d.Allowed {
			t.Errorf("%+v after the shorter lease", d)
		}
	})
}
