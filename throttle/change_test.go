package throttle

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// grant is one admitted call: where its slot is.
type grant struct {
	at time.Time
	n  int64
}

// excess is by how many permits the worst stretch of the grants is over
// burst + rate × its length; not more than 0 where the law holds.
func excess(grants []grant, rate Rate, burst int64) *big.Rat {
	sorted := slices.Clone(grants)
	slices.SortStableFunc(sorted, func(a, b grant) int { return a.at.Compare(b.at) })
	worst := big.NewRat(-burst, 1)
	perMicro := big.NewRat(rate.Count, rate.Period.Microseconds())
	for i, first := range sorted {
		sum := int64(0)
		for _, last := range sorted[i:] {
			sum += last.n
			// Slots are whole µs: two may stand one closer than their exact moments.
			length := big.NewRat(last.at.Sub(first.at).Microseconds()+1, 1)
			over := new(big.Rat).Sub(big.NewRat(sum-burst, 1), length.Mul(length, perMicro))
			if over.Cmp(worst) > 0 {
				worst = over
			}
		}
	}
	return worst
}

// TestLawOverChanges: whatever the rate and the burst are changed to, and
// however often, all that was given together stays within the largest rate and
// burst there were: no change gives a burst afresh or a slot twice.
func TestLawOverChanges(t *testing.T) {
	t.Parallel()
	for _, shaping := range []bool{false, true} {
		for _, algorithm := range []Algorithm{TokenBucket, LeakyBucket} {
			name := string(algorithm) + map[bool]string{false: ", taken", true: ", reserved"}[shaping]
			t.Run(name, func(t *testing.T) {
				onBoth(t, func(t *testing.T, client redis.UniversalClient) {
					rapid.Check(t, func(rt *rapid.T) {
						c := newClocked(t, client, bucket("1/s", 1))
						var grants []grant
						var fastest Rate
						var largest int64
						for range rapid.IntRange(2, 4).Draw(rt, "limits") {
							rate := Rate{Count: rapid.Int64Range(1, 60).Draw(rt, "count"), Period: time.Minute}
							size := rapid.Int64Range(1, 8).Draw(rt, "size")
							limit := Limit{Name: "l", Algorithm: algorithm, Rate: rate, Burst: size}
							if algorithm == LeakyBucket {
								limit.Burst, limit.Capacity = 0, size
								if shaping {
									limit.Capacity, size = 0, 1 // one at a time, whatever it costs
								}
							}
							fastest.Period, fastest.Count = time.Minute, max(fastest.Count, rate.Count)
							largest = max(largest, size)
							c.change(limit)
							for range rapid.IntRange(1, 8).Draw(rt, "calls") {
								c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 20e6).Draw(rt, "after")) * time.Microsecond)
								n := rapid.Int64Range(1, size).Draw(rt, "n")
								d := Decision{}
								if shaping {
									d = c.reserve(n, time.Duration(rapid.SampledFrom([]int{0, 30, 600}).Draw(rt, "within"))*time.Second)
								} else {
									d = c.take(n)
								}
								if d.Allowed {
									grants = append(grants, grant{d.At, n})
								}
							}
						}
						if over := excess(grants, fastest, largest); over.Sign() > 0 {
							rt.Fatalf("%s permits over %v + %d: %v", over.FloatString(4), fastest, largest, grants)
						}
					})
				})
			})
		}
	}
}

// TestLoweringAppliesAtOnce: slots that were given are honoured, and the next
// one keeps the new distance.
func TestLoweringAppliesAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, leaky("10/s", 0))
		var last time.Time
		for range 3 {
			last = c.reserve(1, time.Hour).At
		}
		c.change(leaky("1/min", 0))
		first := c.reserve(1, time.Hour).At
		if gap := first.Sub(last); gap < time.Minute {
			t.Errorf("the first slot under 1/min is %v after the last under 10/s", gap)
		}
		if gap := c.reserve(1, time.Hour).At.Sub(first); gap != time.Minute {
			t.Errorf("and the second one %v after the first", gap)
		}

		full := newClocked(t, client, bucket("10/s", 10))
		full.take(4)
		full.change(bucket("10/s", 3)) // 4 are owed, 3 may be
		if d := full.take(1); d.Allowed || d.RetryAfter != 200*ms {
			t.Errorf("%+v; want a refusal until 2 are owed", d)
		}
		full.change(bucket("10/s", 5))
		if d := full.take(2); d.Allowed {
			t.Errorf("%+v; the bucket of 5 has room for 1", d)
		}
		if d := full.take(1); !d.Allowed {
			t.Errorf("%+v; the bucket of 5 has room for 1", d)
		}

		large := newClocked(t, client, bucket("1/day", 10_000))
		large.take(10_000)
		large.change(bucket("1/day", 2)) // it holds a small part of what is owed
		if d := large.take(1); d.Allowed || d.RetryAfter != 9_999*24*time.Hour {
			t.Errorf("%+v; want a refusal until 1 is owed", d)
		}
		slot := large.reserve(1, 10_000*24*time.Hour)
		large.change(bucket("1/day", 10_000))
		if d := large.take(1); d.Allowed {
			t.Errorf("%+v; a slot at %v made the bucket forget what was owed", d, slot.At)
		}
	})
}

// TestRaisingAppliesAtOnce: a bucket that was emptied at a slow rate does not
// make the calls of a fast one wait for the slow one's time.
func TestRaisingAppliesAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][2]Limit{
			{bucket("1/day", 10), bucket("10/s", 10)},
			{leaky("1/day", 10), leaky("10/s", 10)},
		} {
			c := newClocked(t, client, limits[0])
			c.take(10)
			c.change(limits[1:]...)
			d := c.take(1)
			if d.Allowed {
				t.Errorf("%s: raising the rate gave a fresh burst", limits[1].Name)
			}
			if d.RetryAfter != 100*ms {
				t.Errorf("%s: %+v; want one interval of the new rate", limits[1].Name, d)
			}
			c.now = c.now.Add(d.RetryAfter)
			if d := c.take(1); !d.Allowed {
				t.Errorf("%s: %+v after RetryAfter", limits[1].Name, d)
			}
		}
	})
}

// TestChangedWindows: a window of another length starts no count afresh while
// the calls that were counted lie in it, by either script.
func TestChangedWindows(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		t.Run("short", func(t *testing.T) { changeWindows(newClocked(t, client, window("5/10s", nil)), func(*Limiter) {}) })
		t.Run("long", func(t *testing.T) {
			changeWindows(newClocked(t, client, window("5/10s", nil)), func(l *Limiter) { l.short[police] = nil })
		})
	})
}

// changeWindows puts a window under other limits; script selects what decides.
func changeWindows(c *clocked, script func(*Limiter)) {
	change := func(limit Limit) {
		c.change(limit)
		script(c.Limiter)
	}
	script(c.Limiter)
	c.now = c.now.Add(13 * time.Second)
	c.take(5)
	for _, rate := range []string{"5/min", "5/3s", "5/h", "4/10s", "1/10s"} {
		change(window(rate, nil))
		if d := c.take(1); d.Allowed {
			c.t.Errorf("changing to %s gave a fresh window", rate)
		}
	}
	change(window("7/10s", nil))
	if d := c.take(3); d.Allowed || d.Remaining != 2 {
		c.t.Errorf("%+v; want 2 more", d)
	}
	if d := c.take(2); !d.Allowed || d.Remaining != 0 {
		c.t.Errorf("%+v; want 2 more", d)
	}
	change(window("7/day", location(c.t, "Asia/Tokyo")))
	if d := c.take(1); d.Allowed {
		c.t.Errorf("putting it on a calendar gave a fresh window: %+v", d)
	}
}

// TestRefusalsFollowTheNewRate: from the first call that sees it, refused or
// not, what is owed drains at the new rate and not at the old one.
func TestRefusalsFollowTheNewRate(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][2]Limit{
			{bucket("10/s", 100), bucket("1/s", 100)},
			{leaky("10/s", 100), leaky("1/s", 100)},
		} {
			c := newClocked(t, client, limits[0])
			c.take(100)
			c.change(limits[1:]...)
			if d := c.take(1); d.Allowed || d.RetryAfter != time.Second {
				t.Errorf("%+v; want a second", d)
			}
			c.now = c.now.Add(10 * time.Second)
			if d := c.take(11); d.Allowed || d.Remaining != 10 {
				t.Errorf("%+v; 10 drained in 10 s", d)
			}
			if d := c.take(10); !d.Allowed {
				t.Errorf("%+v; 10 drained in 10 s", d)
			}
			// The other refusals after a change write nothing, as ever.
			key := c.bucket(limits[1], "k")
			before := client.Get(t.Context(), key).Val()
			c.now = c.now.Add(time.Microsecond)
			if d := c.take(1); d.Allowed || client.Get(t.Context(), key).Val() != before {
				t.Errorf("%+v; %q became %q", d, before, client.Get(t.Context(), key).Val())
			}
		}
	})
}

// TestUseOutlivesTheAlgorithm: what was used under one algorithm counts under any
// other, and no more.
func TestUseOutlivesTheAlgorithm(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("10/10s", 10), leaky("10/10s", 10), window("10/10s", nil), window("10/day", time.UTC), logged("10/10s"), counted("10/10s")}
		for _, was := range all {
			for _, is := range all {
				is.Name = was.Name
				t.Run(string(was.Algorithm)+" to "+string(is.Algorithm), func(t *testing.T) {
					c := newClocked(t, client, was)
					c.take(3)
					c.change(is)
					if d := c.take(8); d.Allowed || d.Remaining != 7 {
						t.Fatalf("3 of 10 were used: %+v", d)
					}
					if d := c.take(7); !d.Allowed || d.Remaining != 0 {
						t.Errorf("3 of 10 were used: %+v", d)
					}
					if d := c.take(1); d.Allowed {
						t.Errorf("%+v; want all of it used", d)
					}
					c.change(was)
					if d := c.take(1); d.Allowed {
						t.Errorf("changed back, a fresh burst: %+v", d)
					}
					if c.now = c.now.Add(20 * time.Second); is.Location == nil && was.Location == nil && !c.take(1).Allowed {
						t.Error("never admitted again")
					}
				})
			}
		}
	})
}

// TestSlotsOutliveTheAlgorithm: under no other algorithm a slot is given before
// one that was given already.
func TestSlotsOutliveTheAlgorithm(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("10/10s", 2), leaky("10/10s", 0), window("2/s", nil), logged("2/s"), counted("2/s")}
		for _, was := range all {
			for _, is := range all {
				is.Name = was.Name
				c := newClocked(t, client, was)
				var last time.Time
				for range 6 {
					last = c.reserve(1, time.Hour).At
				}
				c.change(is)
				if d := c.take(1); d.Allowed {
					t.Errorf("%s to %s: taken before slots that were given until %v", was.Algorithm, is.Algorithm, last)
				}
				if d := c.reserve(1, time.Hour); !d.Allowed || d.At.Before(last) {
					t.Errorf("%s to %s: a slot at %v among those given until %v", was.Algorithm, is.Algorithm, d.At, last)
				}
			}
		}
	})
}

// TestChangeToAndFromConcurrency: calls in flight are not permits used; neither
// form of state stands in the way of the other.
func TestChangeToAndFromConcurrency(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, other := range []Limit{bucket("10/10s", 10), window("10/10s", nil), logged("10/10s")} {
			held := inFlightOf(2, time.Minute)
			held.Name = other.Name
			c := newClocked(t, client, other)
			c.take(10)
			c.change(held)
			for range 2 {
				if d := c.take(1); !d.Allowed {
					t.Errorf("%s: %+v", other.Algorithm, d)
				}
			}
			if d := c.take(1); d.Allowed {
				t.Errorf("%s: a third call in flight", other.Algorithm)
			}
			c.change(other)
			if d := c.take(10); !d.Allowed {
				t.Errorf("%s: %+v", other.Algorithm, d)
			}
			if d := c.take(1); d.Allowed {
				t.Errorf("%s: %+v", other.Algorithm, d)
			}
		}
	})
}

// TestWhatIsNoBucketStays: a limit takes over the bucket of another algorithm, and nothing
// else that a key may hold.
func TestWhatIsNoBucketStays(t *testing.T) {
	limits := []Limit{
		bucket("10/s", 20), window("50/s", nil), counted("60/10s"), logged("1/s"),
		inFlightOf(2, time.Minute),
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range limits {
			for what, damage := range map[string]func(key string) error{
				"a hash": func(key string) error { return client.HSet(t.Context(), key, "a", "b").Err() },
				"a set":  func(key string) error { return client.SAdd(t.Context(), key, "a").Err() },
				"a text": func(key string) error { return client.Set(t.Context(), key, "damaged", 0).Err() },
			} {
				c := newClocked(t, client, limit)
				key := c.bucket(limit, "k")
				if err := damage(key); err != nil {
					t.Fatal(err)
				}
				is := client.Type(t.Context(), key).Val()
				if d, err := c.Take(t.Context(), 1, "k"); err == nil {
					t.Errorf("%v: %s answered %+v", limit, what, d)
				}
				if now := client.Type(t.Context(), key).Val(); now != is {
					t.Errorf("%v: %s is a %s now", limit, what, now)
				}
			}
		}
	})
}

// TestChargesKeepWhatWasUsed: a charge is at most twice what a limit holds, and what was used before it stays, although
// the limit was larger then.
func TestChargesKeepWhatWasUsed(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{window("1000/day", nil), counted("1000/day"), logged("1000/day"), bucket("1000/day", 1000)} {
			smaller := limit
			smaller.Rate.Count = 100
			if limit.Algorithm == TokenBucket {
				smaller.Rate, smaller.Burst = limit.Rate, 100
			}
			c := newClocked(t, client, limit)
			c.now = c.now.Truncate(day)
			r := c.book(900, 0)
			c.change(smaller)
			r.limiter = c.Limiter // of a process that has the smaller limit by now
			c.settle(r, 901)
			c.change(limit)
			if d := c.take(101); d.Allowed {
				t.Errorf("%s: %+v, of 1000 permits of which 900 were used", limit.Name, d)
			}
		}
	})
}

// TestHugeUseBecomesAQueue: a leaky bucket without a Capacity takes over what it can count, of however much was used.
func TestHugeUseBecomesAQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for rate, longest := range map[string]time.Duration{"1/day": 366 * day, "1/8784h": 366 * day, "9973/s": 366 * day, "1000000/s": 366 * day} {
			was, is := window("86400000000/day", nil), leaky(rate, 0)
			is.Name = was.Name
			c := newClocked(t, client, was)
			c.now = c.now.Truncate(day)
			c.take(was.Rate.Count)
			c.change(is)
			first := c.reserve(1, 2*366*day)
			second := c.reserve(1, 2*366*day)
			if first.Delay <= 0 || first.Delay > longest || second.Delay < first.Delay {
				t.Errorf("%s: %+v, then %+v", rate, first, second)
			}
		}
	})
}
