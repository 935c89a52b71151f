package conformance

import (
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestRule: how long the windows of a limit are, and what it allows in one.
func TestRule(t *testing.T) {
	const ms = int64(1000)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	summer := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	for name, test := range map[string]struct {
		limit        limits.Limit
		from         int64 // where the window begins that ends with a call in summer, before that
		allowed      int64 // if its last call took 1
		allowedThree int64 // 3
		none         bool
	}{
		"token bucket":  {limit: limits.Limit{Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 20}, from: 995*ms - 1, allowed: 29, allowedThree: 29},
		"leaky bucket":  {limit: limits.Limit{Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(10), Capacity: 50}, from: 995*ms - 1, allowed: 10, allowedThree: 12},
		"short period":  {limit: limits.Limit{Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 4, Period: 4 * time.Millisecond}, Burst: 1}, from: 2*ms - 1, allowed: 3, allowedThree: 3},
		"log":           {limit: limits.Limit{Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 7, Period: time.Minute}}, from: 59_995*ms - 1, allowed: 7, allowedThree: 7},
		"counter":       {limit: limits.Limit{Algorithm: throttle.SlidingWindowCounter, Rate: throttle.Rate{Count: 7, Period: time.Minute}}, from: 59_995*ms - 1, allowed: 14, allowedThree: 14},
		"window":        {limit: limits.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 7, Period: 5 * time.Hour}}, from: summer % (5 * hour), allowed: 7, allowedThree: 7},
		"day in Berlin": {limit: limits.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 7, Period: 24 * time.Hour}, Location: berlin}, from: 14 * hour, allowed: 7, allowedThree: 7},
		"month":         {limit: limits.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 7, Months: 1}, Location: berlin}, from: 14 * hour, allowed: 7, allowedThree: 7},
		"concurrency":   {limit: limits.Limit{Algorithm: throttle.Concurrency, Concurrency: 7}, none: true},
		"fast":          {limit: limits.Limit{Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: math.MaxInt64 / 2, Period: time.Second}, Burst: 1}, from: 995*ms - 1, allowed: 1 + 4588627588335250963, allowedThree: 1 + 4588627588335250963},
	} {
		rule, ok := RuleOf(test.limit, effective.Spec(test.limit), summer, summer)
		if ok == test.none {
			t.Errorf("%s: it says something about windows: %v", name, ok)
			continue
		}
		if test.none {
			continue
		}
		if from := summer - rule.begin(summer); from != test.from {
			t.Errorf("%s: the window begins %d µs before; want %d", name, from, test.from)
		}
		if one, three := rule.allowed(1), rule.allowed(3); one != test.allowed || three != test.allowedThree {
			t.Errorf("%s: it allows %d, and %d with a last call of three; want %d and %d", name, one, three, test.allowed, test.allowedThree)
		}
	}
	days, _ := RuleOf(limits.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 7, Period: 24 * time.Hour}, Location: berlin}, effective.Spec(limits.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 7}, Location: berlin}), summer, summer+10*Day)
	for i := range int64(11) { // nobody counted for so long
		if from := summer + i*Day - days.begin(summer+i*Day); from != 14*hour {
			t.Errorf("day %d begins %d µs before", i, from)
		}
	}
}
