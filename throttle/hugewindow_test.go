package throttle

import (
	"math/big"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestCounterOfHugeWindows: where permits times the µs of a window are 2^53 or more, a sliding window counter counts in
// a coarser unit than µs. It never admits a call earlier than the law allows, and less than a unit later.
func TestCounterOfHugeWindows(t *testing.T) {
	client := redistest.Shared(t).Client()
	// The two are decided by scripts of their own: windows.lua, and take.lua on limits.lua.
	scripts := map[string]func(c *clocked, n int64) Decision{
		"Take":    func(c *clocked, n int64) Decision { return c.take(n) },
		"Reserve": func(c *clocked, n int64) Decision { return c.reserve(n, 0) },
	}
	for rate, unit := range map[string]time.Duration{
		"100000/day":     time.Microsecond, // 8.64e15, just below 2^53
		"1000000/day":    ms,
		"1000000/week":   ms,
		"10000000/8784h": time.Second,
	} {
		limit := counted(rate)
		length, most := limit.Rate.Period.Microseconds(), limit.Rate.Count
		// fits is the law, in exact integers: floor(most * (length - d) / length) + n <= most, d µs into the window
		// after one in which all was used.
		fits := func(d, n int64) bool {
			weighed := new(big.Int).Mul(big.NewInt(most), big.NewInt(length-d))
			return weighed.Quo(weighed, big.NewInt(length)).Int64()+n <= most
		}
		for name, ask := range scripts {
			// One more than a round number leaves room until a moment that floats round to, and is too early.
			for _, n := range []int64{most / 7, most/3 + 1, most/10 + 1, most/2 + 1, most*9/10 + 1, most} {
				c := newClocked(t, client, limit)
				start := c.now.UnixMicro()
				start += length - start%length
				c.now = time.UnixMicro(start - 1)
				if d := ask(c, most); !d.Allowed {
					t.Fatalf("%s, %s: %+v of a limit that was never used", rate, name, d)
				}
				c.now = time.UnixMicro(start)
				d := ask(c, n)
				wait := d.RetryAfter.Microseconds()
				if d.Allowed || !fits(wait, n) {
					t.Errorf("%s, %s of %d: %+v is too early", rate, name, n, d)
				}
				if fits(wait-unit.Microseconds(), n) {
					t.Errorf("%s, %s of %d: %+v is late by %v or more", rate, name, n, d, unit)
				}
				c.now = c.now.Add(d.RetryAfter)
				if d := ask(c, n); !d.Allowed {
					t.Errorf("%s, %s of %d: %+v after RetryAfter", rate, name, n, d)
				}
			}
		}
	}
}
