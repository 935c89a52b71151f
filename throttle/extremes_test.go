package throttle

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestExtremeRates: from one permit in a year to a million a second, and costs of
// 10⁹, the answers are exact, or the limit is refused with what is wrong.
func TestExtremeRates(t *testing.T) {
	t.Parallel()
	// A start of windows of 1000 s, and 12:13:20 on 28 March 2026.
	begin := time.Unix(1774700000, 0).UTC()
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC).Sub(begin)
	const us, year = time.Microsecond, 366 * day
	yearly := year - time.Duration(begin.UnixMicro()%year.Microseconds())*us // until the next window of a year
	huge := Rate{Count: 1e9, Period: 1000 * time.Second}
	tests := map[string]struct {
		limit Limit
		steps []step
	}{
		"one in a month": {window("1/month", time.UTC), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, april, 0}, {april - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0}, {0, 1, -1, false, 30 * day, 0},
		}},
		"months ahead": {window("1/month", time.UTC), []step{
			{0, 1, day, true, 0, 0}, {0, 1, day, false, april - day, 0}, {0, 1, 4 * day, true, april, 0}, {0, 1, 366 * day, true, april + 30*day, 0}, {0, 1, 366 * day, true, april + 61*day, 0},
		}},
		"one in a day": {bucket("1/day", 1), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, day, 0}, {day - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"one in 366 days": {bucket("1/8784h", 1), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, year, 0}, {year - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"one in 366 days, metered": {leaky("1/8784h", 1), []step{
			{0, 1, -1, true, 0, 0}, {year - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"one in 366 days, logged": {Limit{Name: "log", Algorithm: SlidingWindowLog, Rate: mustRate("1/8784h")}, []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, year, 0}, {year - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"one in 366 days, windows": {window("1/8784h", nil), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, yearly, 0}, {yearly - us, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"one in 366 days, weighed": {Limit{Name: "counter", Algorithm: SlidingWindowCounter, Rate: mustRate("1/8784h")}, []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, yearly + us, 0}, {yearly, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0}, {0, 1, -1, false, year, 0},
		}},
		"a million a second": {bucket("1000000/s", 1), []step{
			{0, 1, -1, true, 0, 0}, {0, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0}, {0, 1, time.Second, true, us, 0}, {0, 1, time.Second, true, 2 * us, 0},
		}},
		"a million a second, windows": {window("1000000/s", nil), []step{
			{0, 1e6, -1, true, 0, 0}, {0, 1, -1, false, time.Second, 0}, {time.Second, 1e6, -1, true, 0, 0},
		}},
		"a million a second, weighed": {Limit{Name: "counter", Algorithm: SlidingWindowCounter, Rate: mustRate("1000000/s")}, []step{
			{0, 1e6, -1, true, 0, 0}, {0, 1, -1, false, time.Second + us, 0}, {time.Second, 1, -1, false, us, 0}, {us, 1, -1, true, 0, 0},
		}},
		"a cost of 10⁹": {bucket("1000000/s", 1e9), []step{
			{0, 1e9, -1, true, 0, 0}, {0, 1e9, -1, false, 1000 * time.Second, 0}, {time.Second, 1e6, -1, true, 0, 0}, {0, 1, -1, false, us, 0}, {999 * time.Second, 999e6, -1, true, 0, 0},
		}},
		"a cost of 10⁹, metered": {leaky("1000000/s", 1e9), []step{
			{0, 1e9, -1, true, 0, 0}, {0, 1e9, -1, false, 1000 * time.Second, 0}, {1000 * time.Second, 1e9, -1, true, 0, 0},
		}},
		"a cost of 10⁹, windows": {Limit{Name: "fw", Algorithm: FixedWindow, Rate: huge}, []step{
			{0, 1e9, -1, true, 0, 0}, {0, 1, -1, false, 1000 * time.Second, 0}, {1000 * time.Second, 1e9, -1, true, 0, 0},
		}},
		// Too much for µs: it is weighed in ms, rounded against the caller.
		"a cost of 10⁹, weighed": {Limit{Name: "counter", Algorithm: SlidingWindowCounter, Rate: huge}, []step{
			{0, 1e9, -1, true, 0, 0}, {0, 1, -1, false, 1000*time.Second + ms, 0}, {1500 * time.Second, 5e8, -1, true, 0, 0}, {0, 1, -1, false, ms, 0},
		}},
		"a cost of 10⁹ is one call": {Limit{Name: "cc", Algorithm: Concurrency, Concurrency: 2}, []step{
			{0, 1e9, -1, true, 0, 1}, {0, 1e9, -1, true, 0, 0}, {0, 1, -1, false, DefaultLease, 0},
		}},
		"all of the longest log": {Limit{Name: "log", Algorithm: SlidingWindowLog, Rate: Rate{Count: maxLogged, Period: year}}, []step{
			{0, maxLogged, -1, true, 0, 0}, {0, 1, -1, false, year, 0}, {year, maxLogged, -1, true, 0, 0},
		}},
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		for name, test := range tests {
			c := newClocked(t, client, test.limit)
			c.now = begin
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
					t.Errorf("%s: step %d %+v: %+v", name, i, s, d)
				}
			}
		}
	})
	for says, limit := range map[string]Limit{
		"finer than the clock":    {Name: "tb", Algorithm: TokenBucket, Rate: PerSecond(1_000_001)},
		"longer than 8784h":       {Name: "tb", Algorithm: TokenBucket, Rate: Rate{Count: 1, Period: 367 * day}},
		"counted exactly":         {Name: "tb", Algorithm: TokenBucket, Rate: Rate{Count: 1, Period: year}, Burst: 1e9},
		"months differ in length": {Name: "tb", Algorithm: TokenBucket, Rate: Rate{Count: 1, Months: 1}},
		"weighed exactly":         {Name: "sc", Algorithm: SlidingWindowCounter, Rate: Rate{Count: exact / 1024, Period: year}},
		"a log of 10001 permits":  {Name: "sl", Algorithm: SlidingWindowLog, Rate: Rate{Count: maxLogged + 1, Period: time.Second}},
	} {
		if _, err := New(redistest.Shared(t).Client(), "", limit); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; want an error with %q", limit, err, says)
		}
	}
}
