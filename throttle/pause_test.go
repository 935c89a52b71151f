package throttle

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func (c *clocked) pause(length time.Duration, reason string) {
	c.t.Helper()
	if err := c.Pause(c.t.Context(), c.limits[0].Name, "k", c.now.Add(length), reason); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clocked) resume() {
	c.t.Helper()
	if err := c.Resume(c.t.Context(), c.limits[0].Name, "k"); err != nil {
		c.t.Fatal(err)
	}
}

func pausable() []Limit {
	return []Limit{bucket("10/s", 5), leaky("10/s", 5), window("5/s", nil), logged("5/s"), counted("5/s")}
}

// TestPause: nothing is admitted before its end, by any process, and everybody
// is told why; of a bucket that was full one permit goes then, not five.
func TestPause(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range pausable() {
			for _, used := range []int64{0, 2} {
				t.Run(limit.Name, func(t *testing.T) {
					c := newClocked(t, client, limit)
					if used > 0 {
						c.take(used)
					}
					c.pause(30*time.Second, "429 from the provider")
					c.change(limit) // as another process would find it
					held := func(wait time.Duration) {
						t.Helper()
						reserved := c.reserve(1, wait-time.Microsecond)
						reserved.RetryAfter = reserved.Delay
						for _, d := range []Decision{c.peek(), c.take(1), reserved} {
							if d.Allowed || d.RetryAfter != wait || d.Paused != "429 from the provider" || d.Remaining != 0 || d.Limit != limit.Name {
								t.Fatalf("%+v; want it held for %v", d, wait)
							}
						}
					}
					held(30 * time.Second)
					c.pause(10*time.Second, "a shorter one")
					c.pause(-time.Hour, "one that is over")
					held(30 * time.Second)
					c.now = c.now.Add(30*time.Second - time.Microsecond)
					held(time.Microsecond)
					c.now = c.now.Add(time.Microsecond)
					if d := c.take(1); !d.Allowed || d.Paused != "" {
						t.Fatalf("%+v at the end of the pause", d)
					}
					d := c.take(1)
					if limit.drains() && (d.Allowed || d.RetryAfter != 100*ms) {
						t.Errorf("%+v: a burst after the pause", d)
					}
					if !limit.drains() && !d.Allowed {
						t.Errorf("%+v: the window was not used", d)
					}
				})
			}
		}
	})
}

// TestResume ends a pause early: from then on it is as after any pause.
func TestResume(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range pausable() {
			c := newClocked(t, client, limit)
			c.resume() // of nothing
			if n := client.Exists(t.Context(), c.bucket(limit, "k")).Val(); n != 0 {
				t.Errorf("%s: resuming nothing made a key", limit.Name)
			}
			c.pause(time.Hour, "")
			c.now = c.now.Add(time.Second)
			c.resume()
			if d := c.take(1); !d.Allowed {
				t.Errorf("%s: %+v after it was resumed", limit.Name, d)
			}
			if d := c.take(1); limit.drains() && (d.Allowed || d.RetryAfter != 100*ms) {
				t.Errorf("%s: %+v: a burst after it was resumed", limit.Name, d)
			}
		}
	})
}

// TestPauseKeepsSlots: what was reserved is honoured, what is reserved during
// the pause stands at its end, in line.
func TestPauseKeepsSlots(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{leaky("10/s", 0), bucket("10/s", 3)} {
			c := newClocked(t, client, limit)
			c.take(1)
			c.pause(10*time.Second, "maintenance")
			for i := range 4 {
				if d := c.reserve(1, time.Minute); d.Delay != 10*time.Second+time.Duration(i)*100*ms || !d.Allowed {
					t.Errorf("%s: slot %d: %+v", limit.Name, i, d)
				}
			}
			c.now = c.now.Add(5 * time.Second)
			c.resume()
			if d := c.reserve(1, time.Minute); d.Delay < 5400*ms-time.Duration(limit.maxCost(false)-1)*100*ms {
				t.Errorf("%s: %+v among the slots that were given", limit.Name, d)
			}
		}
	})
}

// TestEarlierPermitsStayGoneAfterAPause: what was reserved before a pause and comes back after it gives no burst.
func TestEarlierPermitsStayGoneAfterAPause(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, back := range map[string]func(c *clocked, r *Reservation){
			"cancelled": func(c *clocked, r *Reservation) { c.cancel(r) },
			"settled":   func(c *clocked, r *Reservation) { c.settle(r, 1) },
		} {
			for _, ended := range []bool{false, true} {
				c := newClocked(t, client, bucket("10/s", 100))
				r := c.book(50, 0)
				if ended {
					c.pause(time.Hour, "429")
					c.now = c.now.Add(30 * time.Second)
					c.resume()
				} else {
					c.pause(30*time.Second, "429")
					c.now = c.now.Add(30 * time.Second)
				}
				back(c, r)
				if left := c.peek().Remaining; left != 1 {
					t.Errorf("%s, resumed: %v: %d permits left after the pause, want 1", name, ended, left)
				}
				// A call after the pause gives its permits back as any other.
				c.now = c.now.Add(5 * time.Second)
				before := c.peek().Remaining
				r = c.book(10, 0)
				c.book(2, 0)
				if c.cancel(r); c.peek().Remaining != before-2 {
					t.Errorf("%s, resumed: %v: %d permits left of %d, of which 2 were used", name, ended, c.peek().Remaining, before)
				}
			}
		}
	})
}

// TestPauseEndsByItself: a key that holds nothing but a pause goes with it.
func TestPauseEndsByItself(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, limit := range pausable() {
		c := newClocked(t, client, limit)
		c.Limiter.now = nil
		if err := c.Pause(t.Context(), limit.Name, "k", time.Now().Add(time.Minute), "x"); err != nil {
			t.Fatal(err)
		}
		if ttl := client.PTTL(t.Context(), c.bucket(limit, "k")).Val(); ttl < 59*time.Second || ttl > 65*time.Second {
			t.Errorf("%s: expires in %v", limit.Name, ttl)
		}
	}
}

// TestPausesThatAreOver: a pause that is over, or shorter than a µs, does nothing, and ends none that holds. What cannot
// be paused is an error nevertheless.
func TestPausesThatAreOver(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		sharded := bucket("10/s", 10)
		sharded.Shards = 2
		for _, limit := range []Limit{bucket("10/s", 10), sharded} {
			for _, length := range []time.Duration{-time.Hour, 0, 1, time.Microsecond - 1} {
				c := newClocked(t, client, limit)
				for _, shard := range c.shards {
					shard.now = c.Limiter.now
				}
				c.pause(time.Minute, "a longer one")
				c.pause(length, "short")
				if d := c.take(1); d.Allowed || d.Paused != "a longer one" {
					t.Errorf("%+v after a pause of %v in a longer one", d, length)
				}
				if err := c.Pause(t.Context(), "none", "k", c.now.Add(length), ""); err == nil {
					t.Errorf("a limit that there is not was paused for %v", length)
				}
				if err := c.Pause(t.Context(), limit.Name, strings.Repeat("k", 5000), c.now.Add(length), ""); err == nil {
					t.Errorf("a key that is too long was paused for %v", length)
				}
			}
		}
	})
}

func TestHostilePauses(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range pausable() {
			for reason, want := range map[string]string{
				"": "", "!": "!", " !9 x": " !9 x", "a\nb": "a b", "\x00\xff": " ", "1 2 3 4 5 6 7": "1 2 3 4 5 6 7", strings.Repeat("ü", 1000): strings.Repeat("ü", 100),
			} {
				c := newClocked(t, client, limit)
				c.take(2)
				c.pause(time.Second, reason)
				d := c.take(1)
				if d.Allowed || d.RetryAfter != time.Second || d.Paused != want {
					t.Errorf("%s, %.20q: %+v", limit.Name, reason, d)
				}
				c.now = c.now.Add(time.Second)
				if d := c.take(1); !d.Allowed {
					t.Errorf("%s, %.20q: %+v after the pause", limit.Name, reason, d)
				}
			}
			c := newClocked(t, client, limit)
			c.pause(1e6*time.Hour, "for ever") // a year at most
			if d := c.take(1); d.Allowed || d.RetryAfter > maxWithin {
				t.Errorf("%s: %+v", limit.Name, d)
			}
		}
		c := newClocked(t, client, bucket("1/s", 1), inFlightOf(1, 0))
		for _, limit := range []string{"", "none", "cc", strings.Repeat("x", 1<<20)} {
			if err := c.Pause(t.Context(), limit, "k", c.now.Add(time.Second), ""); err == nil || len(err.Error()) > 300 {
				t.Errorf("limit %.20q was paused: %v", limit, err)
			}
		}
	})
}

// TestPausesOfAQueue: a queue goes on at the end of its pause, also if the pause was extended, came after another one or
// was ended early. Its meter starts with one permit then.
func TestPausesOfAQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, paused := range map[string]func(c *clocked){
			"once": func(c *clocked) {
				c.pause(10*time.Second, "429")
				c.now = c.now.Add(11 * time.Second)
			},
			"extended": func(c *clocked) {
				c.pause(10*time.Second, "429")
				c.pause(11*time.Second, "429 of another call")
				c.now = c.now.Add(11 * time.Second)
			},
			"again": func(c *clocked) {
				c.pause(time.Second, "429")
				c.now = c.now.Add(2 * time.Second)
				c.pause(time.Second, "429")
				c.now = c.now.Add(time.Second)
			},
			"resumed": func(c *clocked) {
				c.pause(10*time.Second, "429")
				c.now = c.now.Add(time.Second)
				c.resume()
			},
		} {
			c := newClocked(t, client, leaky("10/s", 100))
			paused(c)
			if d := c.reserve(1, time.Hour); !d.Allowed || d.Delay != 0 {
				t.Errorf("%s: %+v after the pause", name, d)
			}
			c = newClocked(t, client, leaky("10/s", 100))
			paused(c)
			left := int64(1)
			if name == "once" {
				left += 10 // a second passed since
			}
			for range left {
				if d := c.take(1); !d.Allowed {
					t.Errorf("%s: %+v after the pause", name, d)
				}
			}
			if d := c.take(1); d.Allowed || d.RetryAfter != 100*ms {
				t.Errorf("%s: %+v: a burst after the pause", name, d)
			}
		}
	})
}
