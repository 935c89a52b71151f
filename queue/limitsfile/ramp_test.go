package limitsfile

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

func TestRamps(t *testing.T) {
	set, err := Parse([]byte(`
queues:
  email:
    kinds: [email]
    limits:
      - {name: new, per: [tenant], algorithm: fixed_window, ramp: {from: 50/day, to: 20000/day, over: 30d}}
      - {name: sms, per: [sender], algorithm: token_bucket, burst: 5, ramp: {from: 1/s, to: 10/s, over: 90m, hold_above: 2.5%}}
tenants:
  acme: {limits: {email: {new: {rate: 40/day}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	want := []limits.Limit{
		{
			Name: "new", Per: []string{"tenant"}, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 20000, Period: day},
			Ramp: &limits.Ramp{From: throttle.Rate{Count: 50, Period: day}, Over: 30 * day},
		},
		{
			Name: "sms", Per: []string{"sender"}, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 5,
			Ramp: &limits.Ramp{From: throttle.PerSecond(1), Over: 90 * time.Minute, HoldAbove: 0.025},
		},
	}
	if got := set.Queues["email"].Limits; !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %+v", got, got[0].Ramp)
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil || !reflect.DeepEqual(again, set) {
		t.Errorf("%v; written as\n%s", err, text)
	}
}

func TestRampMistakes(t *testing.T) {
	_, err := Parse([]byte(`
queues:
  email:
    limits:
      - {name: a, algorithm: fixed_window, rate: 9/day, ramp: {from: 1/day, to: 9/day, over: 3d}}
      - {name: b, algorithm: fixed_window, ramp: {from: 1/day, over: 3d}}
      - {name: c, algorithm: fixed_window, ramp: {from: 9/day, to: 9/day, over: 3d}}
      - {name: d, algorithm: fixed_window, ramp: {from: 1/h, to: 9/day, over: 3d}}
      - {name: e, algorithm: fixed_window, ramp: {from: 1/day, to: 9/day, over: 3h}}
      - {name: f, algorithm: fixed_window, ramp: {from: 1/day, to: 9/day, over: 4000d}}
      - {name: g, algorithm: fixed_window, ramp: {from: 1/day, to: 9/day, over: 3 days, hold_above: 0.05}}
      - {name: h, concurrency: 3, ramp: {from: 1/day, to: 9/day, over: 3d}}
      - {name: i, algorithm: fixed_window, adaptive: true, ramp: {from: 1/day, to: 9/day, over: 3d}}
      - {name: j, algorithm: fixed_window, reserve: {direct: 20%}, ramp: {from: 1/day, to: 9/day, over: 3d}}
      - {name: k, algorithm: fixed_window, ramp: {from: 1/day, to: 9/day, over: 3d, hold_above: 101%}}
  sms:
budgets:
  - {name: l, queues: [email, sms], ramp: {from: 1/day, to: 9/day, over: 3d}}
`))
	want := `line 5: queues.email.limits[0].rate: leave it out: the limit's rate is ramp.to
line 6: queues.email.limits[1].ramp: must have from, to and over, as in {from: 50/day, to: 20000/day, over: 30d}
line 7: queues.email.limits[2].ramp.from: 9/day must be less than 9/day, to which it grows
line 8: queues.email.limits[3].ramp.from: 1/h must have the period of 9/day, to which it grows
line 9: queues.email.limits[4].ramp.over: 3h0m0s must be one period of the rate to 10 years
line 10: queues.email.limits[5].ramp.over: 96000h0m0s must be one period of the rate to 10 years
line 11: queues.email.limits[6].ramp.hold_above: must be more than 0% and at most 100%, not "0.05"
line 11: queues.email.limits[6].ramp.over: must be a duration such as 24h or 30d, not "3 days"
line 12: queues.email.limits[7].ramp: only a limit with a rate grows
line 12: queues.email.limits[7].rate: a concurrency has none
line 13: queues.email.limits[8].ramp: an adaptive limit does not grow: make it two limits, which hold together
line 14: queues.email.limits[9].reserve: a limit with a ramp keeps nothing: use two limits with for
line 15: queues.email.limits[10].ramp.hold_above: must be more than 0% and at most 100%, not "101%"
line 18: budgets[0].ramp: a budget does not grow: give it to a limit of each queue`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
