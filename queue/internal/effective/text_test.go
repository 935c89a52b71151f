package effective

import (
	"testing"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestRateOf: rates of one limit have one period, that of the limit's own rate, wherever that is
// possible.
func TestRateOf(t *testing.T) {
	for _, test := range []struct {
		algorithm       throttle.Algorithm
		rate, own, want string
	}{
		{throttle.TokenBucket, "60000/min", "60000/min", "60000/min"},
		{throttle.TokenBucket, "2000/s", "60000/min", "120000/min"},
		{throttle.TokenBucket, "2/hour", "1/day", "48/day"},
		{throttle.TokenBucket, "2/hour", "20/s", "2/h"},
		{throttle.LeakyBucket, "90/min", "1/s", "90/min"},
		{throttle.LeakyBucket, "7/3s", "1/s", "140/min"},
		{throttle.SlidingWindowLog, "10000/day", "5000/day", "10000/day"},
		{throttle.FixedWindow, "300/month", "1000/month", "300/month"},
	} {
		rate, err := throttle.ParseRate(test.rate)
		if err != nil {
			t.Fatal(err)
		}
		limit := limits.Limit{Name: "x", Algorithm: test.algorithm, Rate: rate, Burst: 1}
		if got := RateOf(Spec(limit), test.own); got != test.want {
			t.Errorf("%s of a limit of %s: %s; want %s", test.rate, test.own, got, test.want)
		}
	}
}

// TestTextOfABudget: a budget that gets another queue is another limit to who reads the differences.
func TestTextOfABudget(t *testing.T) {
	budget := limits.Limit{Name: "spend", Algorithm: throttle.FixedWindow, Rate: throttle.PerSecond(5), Unit: "cents", Queues: []string{"ai", "email"}}
	e := Limits{Queue: Queue{Limits: []Limit{Store(budget)}}}
	if got, want := e.Texts()["spend"], "fixed_window 5/s, unit cents, one budget of ai, email"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}
