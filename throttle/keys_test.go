package throttle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// TestKeysDoNotCollide: no pair of limit names and keys shares a Redis key with
// another, and all keys of one decision share a hash tag.
func TestKeysDoNotCollide(t *testing.T) {
	hostile := []string{"", "a", "a:b", "b", "a:{b}", "{b}", "}", "{", "*", "%", "%3A", "a\nb", "ü", strings.Repeat("x", 1024)}
	seen := map[string]string{}
	for _, prefix := range []string{"p", "p:a", "p:a:b"} {
		for _, many := range []bool{false, true} {
			for _, name := range hostile {
				for _, key := range hostile {
					l := &Limiter{prefix: prefix, company: many}
					redisKey := l.bucket(Limit{Name: name}, key)
					from := strings.Join([]string{prefix, map[bool]string{false: "one", true: "many"}[many], name, key}, " | ")
					if other, taken := seen[redisKey]; taken {
						t.Errorf("%q: of %q and of %q", redisKey, from, other)
					}
					seen[redisKey] = from
					// Redis hashes what lies between the first { and the } after it.
					_, rest, _ := strings.Cut(redisKey, "{")
					if tag, _, closed := strings.Cut(rest, "}"); !closed || many && tag != prefix {
						t.Errorf("%q: hash tag %q", redisKey, tag)
					}
				}
			}
		}
	}
}

// TestOnly: a limiter over some of a limiter's limits takes from the same buckets.
func TestOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("1/h", 5), window("1/h", nil), bucket("1/h", 9).named("nine"))
		left := func(l *Limiter, keys ...string) (all int64) {
			t.Helper()
			d, err := l.Take(t.Context(), 1, keys...)
			if err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			return d.Remaining
		}
		only := func(names ...string) *Limiter {
			t.Helper()
			l, err := c.Only(names...)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		c.take(1)
		one, two := only("nine"), only("nine", c.limits[0].Name)
		if got := []int64{left(one, "k"), left(two, "k", "k"), left(two, "other", "k"), left(one, "k")}; !slices.Equal(got, []int64{7, 3, 2, 5}) {
			t.Errorf("%d left; want 7 and 5 of nine, 3 and 2 of the first", got)
		}
		for _, names := range [][]string{nil, {"none"}, {"nine", "nine"}} {
			if _, err := c.Only(names...); err == nil {
				t.Errorf("no error for %q", names)
			}
		}
		alone := newClocked(t, client, bucket("1/h", 5))
		alone.take(2)
		same, err := alone.Only(alone.limits[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := left(same, "k"); got != 2 {
			t.Errorf("%d left of a limit that was alone; want 2", got)
		}
	})
}

// TestStrangersAreLeftAlone: a call touches its own keys and no other, whatever its key is.
func TestStrangersAreLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limits := range [][]Limit{{bucket("1/h", 1)}, {bucket("1/h", 1), window("1/h", nil)}} {
			c := newClocked(t, client, limits...)
			stranger := c.prefix + ":stranger"
			if err := client.Set(t.Context(), stranger, "mine", 0).Err(); err != nil {
				t.Fatal(err)
			}
			keys := []string{
				"", "a", "A", "a:b", "a\nb", "a\x00b", "\n", "a\r\nDEL " + stranger, "stranger", "*", "?", "{}", "{a}", "}{", "%", "%41",
				"\xff", "ü", "ключ", strings.Repeat("k", 1024), strings.Repeat("k", 1025),
			}
			for _, key := range keys {
				if d := c.take(1, key); !d.Allowed {
					t.Errorf("%.20q shares a bucket", key)
				}
				if d := c.take(1, key); d.Allowed {
					t.Errorf("%.20q has no bucket", key)
				}
			}
			if got := client.Get(t.Context(), stranger).Val(); got != "mine" {
				t.Errorf("a stranger's key became %q", got)
			}
			if n := len(client.Keys(t.Context(), "*"+c.prefix+"*").Val()); n != len(limits)*len(keys)+1 {
				t.Errorf("%d keys; want %d for each of %d and the stranger's", n, len(limits), len(keys))
			}
		}
	})
}

// TestOneKeyForAllLimits: each limit charges a bucket of its own, once.
func TestOneKeyForAllLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, keys := range [][]string{{"k"}, {"k", "k", "k"}} {
			c := newClocked(t, client, bucket("1/min", 5), bucket("1/min", 4).named("four"), window("6/h", nil))
			if d := c.take(1, keys...); !d.Allowed || d.Remaining != 3 {
				t.Errorf("%d keys: %+v; want 3 left of the bucket of 4", len(keys), d)
			}
			if d := c.take(3, keys...); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%d keys: %+v", len(keys), d)
			}
			if d := c.take(1, keys...); d.Allowed || d.Limit != "four" || d.RetryAfter != time.Minute {
				t.Errorf("%d keys: %+v; want it refused by four", len(keys), d)
			}
		}
	})
}

// TestLayersAtRandom: of several limits all take or none does, for the call is
// admitted if and only if each alone would admit it, the slowest one is named,
// and the slot is one that suits all.
func TestLayersAtRandom(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			limits := []Limit{
				bucket("6/min", rapid.Int64Range(2, 6).Draw(rt, "burst")),
				leaky("10/min", rapid.Int64Range(2, 6).Draw(rt, "capacity")),
				window("4/30s", nil),
			}
			c := newClocked(t, client, limits...)
			models := []model{
				newDrain(limits[0].Rate, limits[0].Burst, false),
				newDrain(limits[1].Rate, limits[1].Capacity, true),
				&counters{length: 30e6, most: 4, used: map[int64]int64{}},
			}
			for range 12 {
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 15e6).Draw(rt, "after")) * time.Microsecond)
				now := c.now.UnixMicro()
				n := rapid.Int64Range(1, 2).Draw(rt, "n")
				latest := now
				slowest := map[string]bool{}
				for i, m := range models {
					m.arrive(now)
					switch at := m.earliest(now, n, false); {
					case at > latest:
						latest, slowest = at, map[string]bool{limits[i].Name: true}
					case at == latest && at > now:
						slowest[limits[i].Name] = true
					}
				}
				d := c.take(n)
				if d.Allowed != (latest == now) {
					rt.Fatalf("%d permits at %d µs: %+v; the models say %d", n, now, d, latest)
				}
				if !d.Allowed {
					// The wait suits all, so one may push another further.
					if !slowest[d.Limit] && d.RetryAfter.Microseconds() == latest-now || d.RetryAfter.Microseconds() < latest-now {
						rt.Fatalf("%d permits at %d µs: %+v; the models say %d µs by %v", n, now, d, latest-now, slowest)
					}
					continue
				}
				for _, m := range models {
					m.take(now, now, n)
				}
			}
		})
	})
}
