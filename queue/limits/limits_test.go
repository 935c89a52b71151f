package limits

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// TestRaises: a change that lets more go at once, or over any time, raises a limit.
func TestRaises(t *testing.T) {
	rate := func(text string) throttle.Rate {
		r, err := throttle.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	token := Limit{Algorithm: throttle.TokenBucket, Rate: rate("10/s"), Burst: 5}
	leaky := Limit{Algorithm: throttle.LeakyBucket, Rate: rate("10/s"), Capacity: 20}
	window := Limit{Algorithm: throttle.FixedWindow, Rate: rate("10/s")}
	month := Limit{Algorithm: throttle.FixedWindow, Rate: rate("1000/month"), Location: time.UTC}
	calls := Limit{Algorithm: throttle.Concurrency, Concurrency: 3}
	grows := func(l Limit, from string) Limit {
		l.Ramp = &Ramp{From: rate(from), Over: 30 * 24 * time.Hour}
		return l
	}
	for _, test := range []struct {
		limit  Limit
		change Change
		want   bool
	}{
		// A changed limit does not grow, so it has all of its rate at once.
		{grows(token, "2/s"), Change{Burst: new(int64(1))}, true},
		{grows(token, "2/s"), Change{Rate: new(rate("9/s"))}, true},
		{grows(token, "2/s"), Change{Rate: new(rate("2/s"))}, true}, // with the burst of 10/s
		{grows(token, "2/s"), Change{Rate: new(rate("2/s")), Burst: new(int64(1))}, false},
		{grows(leaky, "2/s"), Change{Rate: new(rate("121/min"))}, true},
		{grows(leaky, "2/s"), Change{Rate: new(rate("120/min"))}, false},
		{grows(window, "3/s"), Change{Rate: new(rate("4/s"))}, true},
		{grows(window, "3/s"), Change{Rate: new(rate("3/s"))}, false},
		{grows(month, "70/month"), Change{Rate: new(rate("71/month"))}, true},
		{grows(month, "70/month"), Change{Rate: new(rate("70/month"))}, false},
		{grows(window, "300/s"), Change{Rate: new(rate("11/s"))}, true}, // a tenant's own rate is lower than the ramp's
		{grows(window, "300/s"), Change{Rate: new(rate("10/s"))}, false},
		{token, Change{Rate: new(rate("10/s"))}, false},
		{token, Change{Rate: new(rate("600/m"))}, false},
		{token, Change{Rate: new(rate("601/m"))}, true},
		{token, Change{Rate: new(rate("1/m")), Burst: new(int64(6))}, true},
		{token, Change{Burst: new(int64(0))}, false},
		{Limit{Algorithm: throttle.TokenBucket, Rate: rate("10/s")}, Change{Burst: new(int64(2))}, true},
		{leaky, Change{Capacity: new(int64(20))}, false},
		{leaky, Change{Capacity: new(int64(21))}, true},
		{leaky, Change{Capacity: new(int64(0))}, true},
		{Limit{Algorithm: throttle.LeakyBucket, Rate: rate("10/s")}, Change{Capacity: new(int64(9))}, false},
		{window, Change{Rate: new(rate("600/m"))}, true}, // all at once
		{window, Change{Rate: new(rate("9/m"))}, false},
		{window, Change{Rate: new(rate("83/9s"))}, true},
		{window, Change{Rate: new(rate("8/900ms"))}, true}, // 16 in a second, though fewer than 10 on average
		{window, Change{Rate: new(rate("5/500ms"))}, false},
		{window, Change{Rate: new(rate("3/334ms"))}, false},
		{window, Change{Rate: new(rate("3/333ms"))}, true}, // four times in a second
		{month, Change{Rate: new(rate("999/month"))}, false},
		{month, Change{Rate: new(rate("1001/month"))}, true},
		{month, Change{Rate: new(rate("1/s"))}, true},
		{calls, Change{Concurrency: new(int64(3))}, false},
		{calls, Change{Concurrency: new(int64(4))}, true},
	} {
		if got := test.limit.Raises(test.change); got != test.want {
			t.Errorf("%s %v, %+v: raises %v", test.limit.Algorithm, test.limit.Rate, test.change, got)
		}
	}
}

// TestZonesByName: Redis and limits files name the zone of a limit, so another one of that name would take its place.
func TestZonesByName(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		zone *time.Location
		ok   bool
	}{
		{berlin, true}, {time.UTC, true}, {time.Local, false},
		{time.FixedZone("", 3600), false}, {time.FixedZone("UTC+3", 3*3600), false}, {time.FixedZone("CET", 3600), false}, {time.FixedZone("UTC", 3600), false},
	} {
		l := Limit{Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 5, Period: 24 * time.Hour}, Location: test.zone, Per: []string{"tenant"}}
		if err := l.Validate(); (err == nil) != test.ok || err != nil && !strings.HasPrefix(err.Error(), "timezone: ") {
			t.Errorf("%q: %v", test.zone, err)
		}
	}
}

// TestZeroSendWindows: a kind without a window has none in the set. A zero one would be published and could not be read.
func TestZeroSendWindows(t *testing.T) {
	window, err := sendwindow.Parse("09:00-18:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	set := Set{Queues: map[string]Queue{"email": {Kinds: []string{"a", "b"}, SendWindows: map[string]sendwindow.Window{"a": window, "b": {}, AllKinds: {}}}}}
	got := validation.Unjoin(set.Validate())
	if len(got) != 2 || !strings.HasPrefix(got[0].Error(), "queues.email.send_windows.*: ") || !strings.HasPrefix(got[1].Error(), "queues.email.send_windows.b: ") {
		t.Errorf("%q", got)
	}
}

// TestBudgetsOfASet: all queues of a budget have the same limit, and no other queue has one of its name.
func TestBudgetsOfASet(t *testing.T) {
	budget := func(change func(*Limit), queues ...string) Limit {
		l := Limit{Name: "spend", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 5, Period: 24 * time.Hour}, Queues: queues}
		if change != nil {
			change(&l)
		}
		return l
	}
	for want, all := range map[string][3]Limit{
		"": {budget(nil, "a", "b"), budget(nil, "a", "b"), budget(func(l *Limit) { l.Name = "own" }, "a", "c")},
		"queues.a.limits[0]: queue b must have the same limit, because they share it": {budget(nil, "a", "b"), budget(func(l *Limit) { l.Location = time.UTC }, "a", "b")},
		"queues.c.limits[0].queues: c is missing, whose limit this is":                {budget(nil, "a", "b"), budget(nil, "a", "b"), budget(nil, "a", "b")},
		"queues.c.limits[0].name: \"spend\" is the name of another budget":            {budget(nil, "a", "b"), budget(nil, "a", "b"), budget(nil, "c", "a")},
		"queues.a.limits[0].queues[1]: unknown queue \"d\"":                           {budget(nil, "a", "d")},
	} {
		set := Set{Queues: map[string]Queue{}}
		for i, limit := range all {
			q := Queue{}
			if limit.Name != "" {
				q.Limits = []Limit{limit}
			}
			set.Queues[string(rune('a'+i))] = q
		}
		if want == "" {
			q := set.Queues["a"]
			q.Limits = append(q.Limits, all[2])
			set.Queues["a"] = q
		}
		if err := set.Validate(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
