package throttle

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

const ms = time.Millisecond

// step is one call of a hand-computed sequence.
type step struct {
	after   time.Duration // since the call before
	n       int64         // permits
	within  time.Duration // -1: Take
	allowed bool
	wait    time.Duration // Delay, or RetryAfter
	left    int64         // -1: not looked at
}

func TestSequences(t *testing.T) {
	t.Parallel()
	berlin := location(t, "Europe/Berlin")
	tests := map[string]struct {
		limit Limit
		steps []step
	}{
		"token bucket, taken": {bucket("10/s", 3), []step{
			{0, 1, -1, true, 0, 2}, {0, 2, -1, true, 0, 0}, {0, 1, -1, false, 100 * ms, 0},
			{99 * ms, 1, -1, false, ms, 0}, {ms, 1, -1, true, 0, 0}, {50 * ms, 2, -1, false, 150 * ms, 0},
			{150 * ms, 2, -1, true, 0, 0}, {time.Hour, 3, -1, true, 0, 0}, {0, 3, -1, false, 300 * ms, 0},
		}},
		"token bucket, reserved": {bucket("10/s", 2), []step{
			{0, 1, time.Second, true, 0, -1}, {0, 1, time.Second, true, 0, -1}, {0, 1, time.Second, true, 100 * ms, -1},
			{0, 2, time.Second, true, 300 * ms, -1}, {0, 1, 350 * ms, false, 50 * ms, -1}, {100 * ms, 1, 350 * ms, true, 300 * ms, -1},
		}},
		"token bucket of thirds": {bucket("3/s", 1), []step{
			{0, 1, time.Minute, true, 0, -1}, {0, 1, time.Minute, true, 333334 * time.Microsecond, -1},
			{0, 1, time.Minute, true, 666667 * time.Microsecond, -1}, {0, 1, time.Minute, true, time.Second, -1},
		}},
		"one in 90 s": {bucket("1/90s", 1), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, 90 * time.Second, 0}, {89 * time.Second, 1, -1, false, time.Second, 0}, {time.Second, 1, -1, true, 0, 0},
		}},
		"leaky bucket, policing": {leaky("10/s", 3), []step{
			{0, 3, -1, true, 0, 0}, {0, 1, -1, false, 100 * ms, 0}, {100 * ms, 1, -1, true, 0, 0}, {200 * ms, 3, -1, false, 100 * ms, 2},
		}},
		"leaky bucket, shaping": {leaky("10/s", 3), []step{
			{0, 1, time.Minute, true, 0, -1}, {0, 1, time.Minute, true, 100 * ms, -1}, {0, 1, time.Minute, true, 200 * ms, -1},
			{0, 1, time.Minute, false, 100 * ms, -1}, {100 * ms, 1, time.Minute, true, 200 * ms, -1},
		}},
		"leaky bucket never bursts": {leaky("10/s", 0), []step{
			{time.Hour, 1, time.Minute, true, 0, -1}, {0, 1, time.Minute, true, 100 * ms, -1}, {0, 5, time.Minute, true, 200 * ms, -1}, {0, 1, time.Minute, true, 700 * ms, -1},
		}},
		// Around the edge of two windows twice the count goes: that is what a fixed window is.
		"fixed window": {window("3/10s", nil), []step{
			{9 * time.Second, 3, -1, true, 0, 0}, {0, 1, -1, false, time.Second, 0}, {time.Second, 3, -1, true, 0, 0}, {0, 1, -1, false, 10 * time.Second, 0},
		}},
		"fixed window, reserved": {window("2/10s", nil), []step{
			{0, 2, time.Minute, true, 0, -1}, {0, 2, time.Minute, true, 10 * time.Second, -1}, {0, 1, time.Minute, true, 20 * time.Second, -1},
			{0, 1, 15 * time.Second, false, 5 * time.Second, -1}, {0, 1, time.Minute, true, 20 * time.Second, -1},
		}},
		// A permit counts in (t - 10 s, t]: it is free again 10 s after it was taken, on the µs.
		"sliding window log": {logged("3/10s"), []step{
			{9 * time.Second, 3, -1, true, 0, 0}, {0, 1, -1, false, 10 * time.Second, 0}, {time.Second, 1, -1, false, 9 * time.Second, 0},
			{9*time.Second - time.Microsecond, 1, -1, false, time.Microsecond, 0}, {time.Microsecond, 3, -1, true, 0, 0},
		}},
		"sliding window log, one by one": {logged("3/10s"), []step{
			{0, 1, -1, true, 0, 2}, {4 * time.Second, 1, -1, true, 0, 1}, {4 * time.Second, 1, -1, true, 0, 0},
			{time.Second, 2, -1, false, 5 * time.Second, 0}, {time.Second, 1, -1, true, 0, 0}, {time.Second, 3, -1, false, 9 * time.Second, 0},
		}},
		"sliding window log, reserved": {logged("2/10s"), []step{
			{0, 2, time.Minute, true, 0, -1}, {0, 2, time.Minute, true, 10 * time.Second, -1}, {0, 1, 15 * time.Second, false, 5 * time.Second, -1},
			{0, 1, time.Minute, true, 20 * time.Second, -1}, {0, 1, time.Minute, true, 20 * time.Second, -1}, {0, 1, time.Minute, true, 30 * time.Second, -1},
		}},
		// At the edge all 10 of the window before count, 5 s later 5 of them; what is
		// left of a permit that passes counts no more.
		"sliding window counter": {counted("10/10s"), []step{
			{9 * time.Second, 10, -1, true, 0, 0}, {time.Second, 1, -1, false, time.Microsecond, 0}, {time.Microsecond, 1, -1, true, 0, 0},
			{0, 1, -1, false, time.Second, 0}, {time.Second, 1, -1, true, 0, 0}, {3999999 * time.Microsecond, 4, -1, false, time.Microsecond, 3},
			{time.Microsecond, 4, -1, true, 0, 0}, {4999999 * time.Microsecond, 5, -1, false, time.Microsecond, 4},
		}},
		"sliding window counter, reserved": {counted("2/10s"), []step{
			{0, 2, time.Minute, true, 0, -1}, {0, 1, time.Minute, true, 10*time.Second + time.Microsecond, -1}, {0, 1, time.Minute, true, 15*time.Second + time.Microsecond, -1},
			{0, 2, time.Minute, true, 25*time.Second + time.Microsecond, -1},
		}},
		"sliding window counter of thirds": {counted("3/10s"), []step{
			{0, 3, -1, true, 0, 0}, {10 * time.Second, 2, -1, false, 3333334 * time.Microsecond, 0},
			{3333333 * time.Microsecond, 2, -1, false, time.Microsecond, 1}, {time.Microsecond, 2, -1, true, 0, 0},
		}},
		"concurrency": {inFlightOf(2, 10*time.Second), []step{
			{0, 1, -1, true, 0, 1}, {4 * time.Second, 5, -1, true, 0, 0}, {0, 1, -1, false, 6 * time.Second, 0},
			{6 * time.Second, 1, -1, true, 0, 0}, {0, 1, time.Minute, false, 4 * time.Second, 0},
		}},
		"a day in Berlin": {window("2/day", berlin), []step{
			{0, 2, -1, true, 0, 0}, {0, 1, -1, false, 12 * time.Hour, 0}, {12 * time.Hour, 2, -1, true, 0, 0}, {0, 1, -1, false, 23 * time.Hour, 0},
		}},
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				c := newClocked(t, client, test.limit)
				c.now = time.Date(2026, 3, 28, 12, 0, 0, 0, berlin) // the next day has 23 hours
				for i, s := range test.steps {
					c.now = c.now.Add(s.after)
					var d Decision
					if s.within < 0 {
						d = c.take(s.n)
					} else {
						d = c.reserve(s.n, s.within)
					}
					wait := d.RetryAfter
					if d.Allowed {
						wait = d.Delay
					}
					if d.Allowed != s.allowed || wait != s.wait || s.left >= 0 && d.Remaining != s.left {
						t.Fatalf("step %d %+v: %+v", i, s, d)
					}
					if d.Allowed && !d.At.Equal(c.now.Add(d.Delay)) {
						t.Errorf("step %d: the slot is at %v, %v after now", i, d.At, d.At.Sub(c.now))
					}
				}
			})
		}
	})
}

func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		// Redis forgets buckets by its own clock, and must not forget these while the test runs.
		c := newClocked(t, client, bucket("100/h", 10), leaky("1/m", 2), window("100/day", time.UTC))
		keys := []string{"user", "ip", "route"}
		if d := c.take(2, keys...); !d.Allowed || d.Remaining != 0 {
			t.Fatalf("%+v", d)
		}
		dump := func() string {
			var all []string
			keys := client.Keys(t.Context(), "*"+c.prefix+"*").Val()
			slices.Sort(keys) // the order of Redis changes with the keys of other tests
			for _, key := range keys {
				all = append(all, key+"="+client.Get(t.Context(), key).Val())
			}
			return fmt.Sprint(len(all), all)
		}
		before := dump()
		for range 100 {
			if d := c.take(1, keys...); d.Allowed || d.Limit != "lb" || d.RetryAfter != time.Minute {
				t.Fatalf("%+v; want it refused by lb", d)
			}
		}
		if d := c.take(1, "user2", "ip", "route"); d.Allowed || d.Limit != "lb" {
			t.Errorf("%+v", d)
		}
		if after := dump(); after != before {
			t.Errorf("a refusal wrote:\n%s\n%s", before, after)
		}
		if d := c.take(1, "user", "ip2", "route"); !d.Allowed {
			t.Errorf("another ip: %+v", d)
		}
	})
}

func TestUnusableQuestions(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, bucket("10/s", 20), leaky("10/s", 5))
	for what, n := range map[string]int64{"0": 0, "-1": -1} {
		if _, err := c.Take(t.Context(), n, "k"); err == nil || !strings.Contains(err.Error(), "at least 1") {
			t.Errorf("%s permits: %v", what, err)
		}
	}
	if _, err := c.Take(t.Context(), 1, "a", "b", "c"); err == nil {
		t.Error("three keys for two limits")
	}
	for what, limits := range map[string][]Limit{
		"none": nil, "twice the same name": {bucket("1/s", 1), bucket("2/s", 1)}, "an unusable one": {{Name: "x"}},
	} {
		if _, err := New(client, "", limits...); err == nil {
			t.Errorf("limits: %s: no error", what)
		}
	}
	if _, err := New(client, "a{b}", bucket("1/s", 1)); err == nil {
		t.Error("braces in the prefix")
	}
}

// TestModel holds random calls against a model in exact fractions.
func TestModel(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			rate := Rate{Count: rapid.Int64Range(1, 1000).Draw(rt, "count"), Period: time.Duration(rapid.Int64Range(1e3, 1e7).Draw(rt, "period")) * time.Microsecond}
			burst := rapid.Int64Range(1, 20).Draw(rt, "burst")
			shaping := rapid.Bool().Draw(rt, "shaping")
			c := newClocked(t, client, Limit{Name: "tb", Algorithm: TokenBucket, Rate: rate, Burst: burst})
			// The model's bucket: permits owed, which drain at the rate.
			owed, at := new(big.Rat), c.now
			perMicro := big.NewRat(rate.Count, rate.Period.Microseconds())
			for range 30 {
				c.now = c.now.Add(time.Duration(rapid.Int64Range(0, 2*rate.Period.Microseconds()/rate.Count).Draw(rt, "after")) * time.Microsecond)
				n := rapid.Int64Range(1, burst).Draw(rt, "n")
				owed.Sub(owed, new(big.Rat).Mul(perMicro, big.NewRat(c.now.Sub(at).Microseconds(), 1)))
				if owed.Sign() < 0 {
					owed.SetInt64(0)
				}
				at = c.now
				// Too much owed, in µs until it has drained, rounded up.
				over := new(big.Rat).Sub(new(big.Rat).Add(owed, big.NewRat(n, 1)), big.NewRat(burst, 1))
				wait := int64(0)
				if over.Sign() > 0 {
					q := new(big.Rat).Quo(over, perMicro)
					wait = new(big.Int).Div(new(big.Int).Add(q.Num(), new(big.Int).Sub(q.Denom(), big.NewInt(1))), q.Denom()).Int64()
				}
				want := time.Duration(wait) * time.Microsecond
				var d Decision
				if shaping {
					d = c.reserve(n, 24*time.Hour)
				} else {
					d = c.take(n)
				}
				got := d.Delay
				if !shaping {
					got = d.RetryAfter
				}
				// Less than a µs of idle time is not told from none: the part of a
				// permit that it is worth may be kept.
				if got != want && got != want-time.Microsecond && got != want+time.Microsecond {
					rt.Fatalf("rate %v burst %d: %d permits wait %v, the model says %v", rate, burst, n, got, want)
				}
				if d.Allowed != (shaping || want == 0) && got != 0 {
					rt.Fatalf("allowed = %v with a wait of %v", d.Allowed, want)
				}
				if d.Allowed {
					owed.Add(owed, big.NewRat(n, 1))
				}
			}
		})
	})
}

// TestNothingIsLostOrWonByRounding: slots of rates whose interval is no whole µs.
func TestNothingIsLostOrWonByRounding(t *testing.T) {
	t.Parallel()
	calls := int64(2_000)
	if testlong.On() {
		calls = 20_000
	}
	for _, text := range []string{"7/s", "9973/s", "10000/s", "3/s", "300000/s"} {
		c := newClocked(t, redistest.Shared(t).Client(), bucket(text, 1))
		rate := c.limits[0].Rate
		begin := c.now
		for i := range calls {
			d := c.reserve(1, 24*time.Hour)
			// In µs, exactly: slot i is at i * period / count, rounded up.
			exact := (i*rate.Period.Microseconds() + rate.Count - 1) / rate.Count
			if got := d.At.Sub(begin).Microseconds(); got != exact {
				t.Fatalf("%s: slot %d at %d µs, exactly %d", text, i, got, exact)
			}
			if i%7 == 0 {
				c.now = d.At // also from a clock that stands on the slot
			}
		}
	}
}

func TestChangedLimit(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, bucket("10/s", 10))
	change := func(rate string, burst int64) { c.change(bucket(rate, burst)) }
	c.take(10)
	change("100/s", 10)
	if d := c.take(1); d.Allowed {
		t.Error("raising the rate gave a fresh burst")
	}
	change("10/s", 100)
	if d := c.take(100); d.Allowed {
		t.Errorf("raising the burst gave it afresh: %+v", d)
	}
	if d := c.take(90); !d.Allowed {
		t.Errorf("what the larger burst adds: %+v", d)
	}
	change("1/s", 10)
	if d := c.take(1); d.Allowed || d.RetryAfter.Round(time.Second) != 91*time.Second {
		t.Errorf("lowering: the 100 permits that are owed drain at 1/s until 9 are left: %+v", d)
	}

	// Slots that were given are honoured: none is given again under the new rate.
	r := newClocked(t, client, leaky("10/s", 0))
	var last time.Time
	for range 5 {
		last = r.reserve(1, time.Minute).At
	}
	r.change(leaky("1000/s", 0))
	if d := r.reserve(1, time.Minute); !d.At.After(last) {
		t.Errorf("the slot %v lies %v before one that was given", d.At, last.Sub(d.At))
	}
}
