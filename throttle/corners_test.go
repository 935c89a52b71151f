package throttle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
)

// TestCancelledTogether: two reservations that come back do not give the same permits
// back. What flowed back while both were out came back by itself once.
func TestCancelledTogether(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("10/s", 10))
		reserve := func(n int64) *Reservation {
			t.Helper()
			r, err := c.Reserve(t.Context(), n, 0, "k")
			if err != nil || !r.Allowed {
				t.Fatal(r, err)
			}
			return r
		}
		first, second := reserve(5), reserve(5)
		c.now = c.now.Add(400 * ms) // 4 of the 10 are back
		reserve(1)
		for _, r := range []*Reservation{first, second} {
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if left := c.left(); left != 9 {
			t.Errorf("%d of 10 left; want all but that of the third call", left)
		}
	})
}

// TestOnePermitOutlivesTheAlgorithm: not even a single permit is forgotten when the
// limit becomes another one, nor the part of one that a sliding counter still weighs.
func TestOnePermitOutlivesTheAlgorithm(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		all := []Limit{bucket("10/20s", 10), leaky("10/20s", 10), window("10/20s", nil), logged("10/20s"), counted("10/10s")}
		for _, was := range all {
			for _, is := range all {
				is.Name = was.Name
				c := newClocked(t, client, was)
				c.take(1)
				if was.Algorithm == SlidingWindowCounter {
					c.now = c.now.Add(11 * time.Second) // nine tenths of it count
					if is.Algorithm == SlidingWindowCounter {
						is.Rate.Period *= 2
					}
				}
				c.change(is)
				if left := c.left(); left != 9 {
					t.Errorf("from %s to %s: %d of 10 left; want 9", was.Algorithm, is.Algorithm, left)
				}
			}
		}
	})
}

// TestPermitsExpire: a set of permits lives as long as the lease of its last one.
func TestPermitsExpire(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, inFlightOf(2, 10*time.Second))
	c.take(1)
	if ttl := client.PTTL(t.Context(), c.bucket(c.limits[0], "k")).Val(); ttl < 10*time.Second || ttl > 12*time.Second {
		t.Errorf("it expires in %v; want the lease of 10 s and two more", ttl)
	}
}

// TestPauseOverAStepBack: a pause lasts as long as it was to last when the clock is set
// back meanwhile.
func TestPauseOverAStepBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for _, limit := range []Limit{bucket("10/min", 10), leaky("10/min", 10), window("10/min", nil), window("10/day", time.UTC), logged("10/min"), counted("10/min")} {
			c := newClocked(t, client, limit)
			c.take(1)
			if err := c.Pause(t.Context(), limit.Name, "k", c.now.Add(time.Hour), "stop"); err != nil {
				t.Fatal(err)
			}
			c.now = c.now.Add(-24 * time.Hour)
			// A bucket starts with one permit after it, which the call waits for.
			if d := c.take(1); d.Allowed || d.Paused != "stop" || d.RetryAfter > time.Hour+time.Second || d.RetryAfter < time.Hour-time.Second {
				t.Errorf("%s: %+v; want the hour that the pause had left", limit.Algorithm, d)
			}
		}
	})
}

// TestTakeBeyondTheCalendar: a call that is taken now looks no further than a few
// windows ahead. It waits for slots that were given beyond them all the same.
func TestTakeBeyondTheCalendar(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, window("1/day", time.UTC))
		var last Decision
		for range 10 {
			last = c.reserve(1, 30*day)
		}
		if d := c.take(1); d.Allowed || d.RetryAfter < last.Delay {
			t.Errorf("%+v; the last slot that was given is %v away", d, last.Delay)
		}
	})
}

// TestCancelAfterTheWindow: what a log does not count any more does not come back.
func TestCancelAfterTheWindow(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, logged("3/10s"))
		r, err := c.Reserve(t.Context(), 3, 0, "k")
		if err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(10 * time.Second)
		c.take(2)
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := c.left(); left != 1 {
			t.Errorf("%d of 3 left; want 1", left)
		}
	})
}

// TestPlainLeavesOtherCenturies: a moment that the short form of a bucket cannot hold is
// kept in the long one.
func TestPlainLeavesOtherCenturies(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, year := range []int{2021, 2050} {
		c := newClocked(t, client, bucket("1/s", 3))
		c.now = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if d := c.take(3); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%d: %+v", year, d)
		}
		if d := c.take(1); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("%d: %+v; want all of it taken", year, d)
		}
	}
}

// TestLayersAfterAStepBack: of several limits, too, a bucket that cannot owe what its
// text says is one of a clock that was set back.
func TestLayersAfterAStepBack(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, bucket("10/s", 3), bucket("10/s", 3).named("two"))
	c.take(3)
	c.now = c.now.Add(-time.Hour)
	if d := c.take(1); d.Allowed || d.RetryAfter != 100*ms {
		t.Errorf("%+v; want 3 permits owed, as before the step", d)
	}
}

// TestDamagedTexts: what looks like a bucket and is none is an error, and stays.
func TestDamagedTexts(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, text := range []string{
		"r 99999999999999999999 0 1 1 0 0 0", "r 1 0 1 1 0 0 1 99999999999999999999:1", "1234567890123450000", "f 1 2 3 4 99999999999999999999",
		"123456789012345:0/1+0@1", "123456789012345:1/0+0@1",
	} {
		c := newClocked(t, client, bucket("10/s", 20))
		key := c.bucket(c.limits[0], "k")
		client.Set(t.Context(), key, text, 0)
		if d, err := c.Take(t.Context(), 1, "k"); err == nil || client.Get(t.Context(), key).Val() != text {
			t.Errorf("%q is answered with %+v", text, d)
		}
	}
	c := newClocked(t, client, logged("10/s"))
	key := c.bucket(c.limits[0], "k")
	client.RPush(t.Context(), key, "@1 !99999999999999999999 why")
	if d, err := c.Take(t.Context(), 1, "k"); err == nil {
		t.Errorf("a log with a pause that cannot be is answered with %+v", d)
	}
}

// TestDamageConcernsItsOwnCalls: calls that share a round trip with one of a damaged bucket have their answers.
func TestDamageConcernsItsOwnCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		damage := map[string]func(key, digits string){
			"a hash":          func(key, _ string) { client.HSet(t.Context(), key, "a", "b") },
			"a text":          func(key, _ string) { client.Set(t.Context(), key, "no bucket", 0) },
			"nearly a bucket": func(key, digits string) { client.Set(t.Context(), key, "no bucket at al"+digits, 0) },
			"a log of words":  func(key, _ string) { client.RPush(t.Context(), key, "@1", "word") },
		}
		stored := func(key string) string {
			return fmt.Sprint(client.Get(t.Context(), key).Val(), client.HGetAll(t.Context(), key).Val(), client.LRange(t.Context(), key, 0, -1).Val())
		}
		for name, damaged := range damage {
			for _, limits := range append([][]Limit{{bucket("10/s", 10), window("10/s", nil)}}, alone(kinds(10))...) {
				for _, mode := range []string{modeTake, modeReserve} {
					c := newClocked(t, client, limits...)
					key := c.bucket(limits[0], "damaged")
					digits, _ := limits[0].lua().Spec(false, 0).Code()
					damaged(key, digits)
					before := stored(key)
					var calls []*call
					for _, key := range []string{"a", "damaged", "b", "damaged"} {
						one, err := c.ask(form(mode), 1, 0, []string{key})
						if err != nil {
							t.Fatal(err)
						}
						calls = append(calls, one)
					}
					err := c.send(t.Context(), mode, calls)
					for i, one := range calls {
						if bad := i%2 == 1; bad != (one.err != nil) || bad == one.decision.Allowed || err != nil {
							t.Errorf("%s, %s, %s, call %d: %+v, %v, %v", name, limits[0].Name, mode, i, one.decision, one.err, err)
						}
					}
					if after := stored(key); after != before {
						t.Errorf("%s, %s, %s: %s became %s", name, limits[0].Name, mode, before, after)
					}
				}
			}
		}
	})
}

// alone returns each limit by itself.
func alone(limits []Limit) (each [][]Limit) {
	for _, limit := range limits {
		each = append(each, []Limit{limit})
	}
	return each
}

// TestChargeBeyondTheCalendar: a charge of a caller whose clock is days wrong, so that its calendar does not hold the time of
// Redis, forgets nothing of what was used.
func TestChargeBeyondTheCalendar(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, window("1/day", time.UTC))
	script := limitlua.NewScript(`
local now = 1700000000000000
local function limit(from) return {a = 'fw', b = 10, ahead = 1e12, c = {from - 10, from, from + 10}} end
local left = {}
for i, far in ipairs({-3e11, 3e11}) do
  local b = limit_open(limit(now), KEYS[i], now)
  limit_commit(limit(now), b, now, now, 5)
  limit_charge(limit(now + far), b, now, 2)
  limit_save(b, now)
  left[i] = limit_left(limit(now), limit_open(limit(now), KEYS[i], now), now)
end
return left`)
	reply, err := script.Run(t.Context(), client, []string{c.prefix + ":a", c.prefix + ":b"})
	if err != nil || fmt.Sprint(reply) != "[3 3]" {
		t.Errorf("%v, %v left of 10 after 5 and 2", reply, err)
	}
}

// TestScriptsRefuseCosts: a cost that no limit ever admits is refused by the script, too,
// whoever asks it.
func TestScriptsRefuseCosts(t *testing.T) {
	client := redistest.Shared(t).Client()
	for _, limit := range kinds(10) {
		if limit.Algorithm == Concurrency {
			continue // any cost takes one permit
		}
		c := newClocked(t, client, limit)
		question := &call{n: 11, buckets: []string{c.bucket(limit, "k")}}
		err := errors.Join(c.do(t.Context(), c.takeRequest(modeTake, []*call{question})), question.err)
		if _, is := errors.AsType[*CostError](err); !is {
			t.Errorf("%s: %+v, %v; want a CostError", limit.Name, question.decision, err)
		}
		if left := c.left(); left != 10 {
			t.Errorf("%s: %d of 10 left", limit.Name, left)
		}
	}
}

// TestLibraryInAnyOrder: scripts on limits.lua may commit, place and reset without
// having asked, give back two parts of one moment, and meet the end of a calendar.
func TestLibraryInAnyOrder(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, bucket("1/s", 1))
	script := limitlua.NewScript(`
local now = 1700000000000000
local function limit(a) return {a = a, p = 1000, r = 1, b = 5, ahead = 1e12, w = a ~= 'tb' and 1000000 or nil} end
local out = {}
local tb = limit_open(limit('tb'), KEYS[1], now)
limit_commit(limit('tb'), tb, now, now, 2)
out[1] = limit_left(limit('tb'), tb, now)
local lb = limit('lb')
out[2] = limit_place(lb, limit_open(lb, KEYS[1], now), now, now, 1) - now
out[3] = limit_reset(lb, limit_open(lb, KEYS[1], now), now)
local sl = limit('sl')
local log = limit_open(sl, KEYS[2], now)
limit_commit(sl, log, now, now, 5)
limit_save(log, now)
log = limit_open(sl, KEYS[2], now)
limit_refund(sl, log, now, now, 1)
limit_refund(sl, log, now, now, 2)
limit_save(log, now)
out[4] = limit_left(sl, limit_open(sl, KEYS[2], now), now)
local day = {a = 'fw', b = 5, ahead = 1e12, c = {now - 10, now + 10}}
local fw = limit_open(day, KEYS[3], now)
limit_commit(day, fw, now, now + 1000, 2)
out[5] = limit_earliest(day, fw, now, now, 3) - now
return out`)
	keys := []string{c.prefix + ":tb", c.prefix + ":sl", c.prefix + ":fw"}
	reply, err := script.Run(t.Context(), client, keys)
	// After two of five: three left; a queue of nothing; nothing owed, for nothing was
	// saved; three of five given back; the slot beyond the calendar is waited for.
	if want := "[3 -4000 0 3 10]"; err != nil || fmt.Sprint(reply) != want {
		t.Errorf("%v, %v; want %s", reply, err, want)
	}
}

// TestSlotBeforeAStepBack: a moment that was given before the clock was set back by less than
// a second does not come back once calls are placed by the new clock: what it took is not
// owed any more, and it would give back what another call took.
func TestSlotBeforeAStepBack(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, leaky("10/s", 1))
	script := limitlua.NewScript(`
local limit, now = {a = 'lb', p = 100000, r = 1, b = 1, ahead = 1000000}, 1700000000000000
local b = limit_open(limit, KEYS[1], now)
local old
repeat
  old = limit_earliest(limit, b, now, now, 1)
  limit_commit(limit, b, now, old, 1)
until old == now + 1000000
limit_save(b, now)
now = now - 900000
b = limit_open(limit, KEYS[1], now)
local new = limit_earliest(limit, b, now, now, 1)
limit_commit(limit, b, now, new, 1)
local back = limit_refund(limit, b, now, old, 1)
return {new - now, back and 1 or 0, limit_earliest(limit, b, now, now, 1) - new}`)
	reply, err := script.Run(t.Context(), client, []string{c.prefix + ":lb"})
	// The new one is as far ahead as a slot may be, and a permit; the next a tenth of a second later.
	if want := "[1100000 0 100000]"; err != nil || fmt.Sprint(reply) != want {
		t.Errorf("%v, %v; want %s", reply, err, want)
	}
}
