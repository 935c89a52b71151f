package throttle

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestExpiry: a key lives until its bucket is full again and hardly longer, on
// Redis's own clock.
func TestExpiry(t *testing.T) {
	client := redistest.Shared(t).Client()
	for name, test := range map[string]struct {
		limit  Limit
		n      int64
		within time.Duration // -1: Take
		full   time.Duration // after the last call
	}{
		"one permit of a large bucket": {bucket("10/s", 1000), 1, -1, 100 * ms},
		"a whole bucket":               {bucket("10/s", 1000), 1000, -1, 100 * time.Second},
		"less than a ms":               {bucket("1000000/s", 10), 1, -1, 0},
		"a bucket of months":           {bucket("100/day", 10_000), 10_000, -1, 100 * day},
		"years of debt":                {leaky("1/day", 0), 10_000, time.Second, 10_000 * day},
		"a leaky bucket":               {leaky("3/s", 10), 10, -1, 3334 * ms},
	} {
		c := newClocked(t, client, test.limit)
		c.Limiter.now = nil
		if test.within < 0 {
			c.take(test.n)
		} else {
			c.reserve(test.n, test.within)
		}
		ttl := client.PTTL(t.Context(), c.bucket(test.limit, "k")).Val()
		// Two seconds over, less what passed since the call.
		if ttl > test.full+2*time.Second+ms || ttl < test.full-ms {
			t.Errorf("%s: full in %v, expires in %v", name, test.full, ttl)
		}
	}
	// A window's key outlives its window, also where its slot lies ahead.
	for _, limit := range []Limit{window("2/h", nil), window("2/day", time.UTC), window("2/month", location(t, "Europe/Berlin"))} {
		c := newClocked(t, client, limit)
		c.Limiter.now = nil
		for range 3 {
			if d := c.reserve(1, 60*day); !d.Allowed {
				t.Fatalf("%v: %+v", limit.Rate, d)
			}
		}
		now := time.Now()
		ttl := client.PTTL(t.Context(), c.bucket(limit, "k")).Val()
		next := now.Truncate(time.Hour).Add(2 * time.Hour)
		if limit.Location != nil {
			next = time.UnixMicro(limit.lua().Windows(now, 3)[3])
		}
		if over := now.Add(ttl).Sub(next); over < 0 || over > 3*time.Second {
			t.Errorf("%v: expires %v after the window of its last slot", limit.Rate, over)
		}
	}
}

// TestKeyIsGoneOnceFull waits for it.
func TestKeyIsGoneOnceFull(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, bucket("10/s", 3))
	c.Limiter.now = nil
	c.take(3)
	key := c.bucket(c.limits[0], "k")
	begin := time.Now()
	for client.Exists(t.Context(), key).Val() == 1 {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the key stays")
		}
		time.Sleep(20 * ms)
	}
	if lived := time.Since(begin); lived < 290*ms {
		t.Errorf("the key was gone after %v, before its bucket was full", lived)
	}
	if d := c.take(3); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a full bucket without a key: %+v", d)
	}
}

// TestRefusalsExtendNothing: hammering neither writes a key nor keeps it alive.
func TestRefusalsExtendNothing(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, limit := range []Limit{bucket("1/min", 2), leaky("1/min", 2), window("2/h", nil)} {
		c := newClocked(t, client, limit)
		c.take(2)
		key := c.bucket(limit, "k")
		if err := client.PExpire(t.Context(), key, 30*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		before := client.Get(t.Context(), key).Val()
		for range 200 {
			if c.take(1).Allowed || c.reserve(1, 0).Allowed {
				t.Fatalf("%s: not refused", limit.Name)
			}
		}
		if after := client.Get(t.Context(), key).Val(); after != before {
			t.Errorf("%s: a refusal wrote %q over %q", limit.Name, after, before)
		}
		if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 30*time.Second {
			t.Errorf("%s: refusals changed the time to live to %v", limit.Name, ttl)
		}
		fresh := newClocked(t, client, limit, bucket("1/min", 1).named("other"))
		fresh.take(1, "a", "b")
		if fresh.take(1, "unseen", "b").Allowed {
			t.Fatal("not refused")
		}
		if n := client.Exists(t.Context(), fresh.bucket(limit, "unseen")).Val(); n != 0 {
			t.Errorf("%s: a refusal by another limit made a key", limit.Name)
		}
	}
}

func (l Limit) named(name string) Limit {
	l.Name = name
	return l
}
