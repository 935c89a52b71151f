package effective

import (
	"maps"
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

// TestTextsOfLimitsWithNamesOfSettings: neither hides the other.
func TestTextsOfLimitsWithNamesOfSettings(t *testing.T) {
	q := limits.Queue{Kinds: []string{"ai"}}
	own := map[string]limits.Change{}
	for _, name := range []string{"kinds", "weight"} {
		q.Limits = append(q.Limits, limits.Limit{Name: name, Per: []string{"tenant"}, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Burst: 1})
		own[name] = limits.Change{Rate: new(throttle.PerSecond(2))}
	}
	tenants := StoreTenants(limits.Set{
		Queues:  map[string]limits.Queue{"ai": q},
		Tenants: map[string]limits.Tenant{"acme": {Weight: 3, Limits: map[string]map[string]limits.Change{"ai": own}}},
	}, "ai")
	e := Limits{Queue: StoreQueue(q, tenants), Tenants: tenants}
	want := map[string]string{
		"kinds": "ai", "limit kinds": "token_bucket 5/s, burst 1, per tenant", "limit weight": "token_bucket 5/s, burst 1, per tenant",
		"acme: weight": "3", "acme: limit kinds": "2/s, burst 1", "acme: limit weight": "2/s, burst 1",
	}
	if got := e.Texts(); !maps.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}
