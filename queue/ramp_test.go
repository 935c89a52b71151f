package queue

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// rampedTo is a ramp of each tenant from 50 permits a day to 2,000 over 30 days.
func rampedTo(algorithm throttle.Algorithm, in *time.Location) limits.Limit {
	rate := throttle.Rate{Count: 2000, Period: 24 * time.Hour}
	return limits.Limit{
		Name: "new-domains", Algorithm: algorithm, Rate: rate, Location: in, Per: []string{"tenant"},
		Ramp: &limits.Ramp{From: throttle.Rate{Count: 50, Period: rate.Period}, Over: 30 * rate.Period},
	}
}

// grownTo is what a ramp admits on a day of its growth.
func grownTo(day int) int {
	if day >= 30 {
		return 2000
	}
	return int(50*math.Pow(40, float64(day)/30) + 1e-6)
}

// warming takes permits of tenant a as the scripts do, at moments of a test.
type warming struct {
	*rig
	t        *testing.T
	calendar limits.Queue
	script   *redisscript.Script
}

func warm(t *testing.T, limit limits.Limit) *warming {
	t.Helper()
	r := startRig(t, 1, limitsOf(limit), nil)
	return &warming{r, t, limits.Queue{Limits: []limits.Limit{limit}}, store.NewScript(`
local now, rejects, took = tonumber(ARGV[3]), tonumber(ARGV[4]), 0
set_calendars(ARGV[2])
while took < 3000 do
  local limits = lane_limits(ARGV[5], now)
  if earliest_all(limits.all, now, now, costs_read()) > now then break end
  commit_all(limits.all, now, now, costs_read())
  took = took + 1
  hear(limits, now, took <= rejects and '!1;' or '!0;')
end
return took`)}
}

// take takes all that the limit admits at a moment, of which so many are rejected.
func (w *warming) take(now time.Time, tenant string, rejected int) int {
	w.t.Helper()
	calendars, err := effective.StoreQueue(w.calendar, nil).Calendars(now)
	if err != nil {
		w.t.Fatal(err)
	}
	took, err := w.script.Run(w.t.Context(), w.server.Client(), store.ScriptKeys(w.queue), w.queue, calendars, now.UnixMicro(), rejected, tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(took.(int64))
}

// TestRampOverDays: each day has so many times as many calls as the day before, from the first call on to the end of
// the ramp, and all of the limit after that; also on days that have 23 or 25 hours.
func TestRampOverDays(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]*time.Location{"windows of the clock": nil, "windows of a calendar": berlin} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := warm(t, rampedTo(throttle.FixedWindow, in))
			zone := time.UTC
			if in != nil {
				zone = in
			}
			for day := range 34 {
				calls := 0
				for _, hour := range []int{9, 13, 23} {
					// The clocks of the zone change on the 28th of March.
					calls += w.take(time.Date(2027, 3, 10+day, hour, 30, 0, 0, zone), "a", 0)
				}
				if want := grownTo(day); calls != want {
					t.Errorf("%d calls on day %d, want %d", calls, day, want)
				}
			}
		})
	}
}

// TestRampIsKept: a sender is not new again while it calls, be its calls counted or not, nor because the limit's period is
// long.
func TestRampIsKept(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for period, least := range map[time.Duration]time.Duration{day: 29 * day, 1000 * time.Hour: 83 * day} {
		limit := rampedTo(throttle.TokenBucket, nil)
		limit.Rate.Period, limit.Ramp.From.Period, limit.Ramp.Over, limit.Burst = period, period, 30*period, 2000
		w := warm(t, limit)
		client, key := w.server.Client(), store.Key(w.queue, "ramp:new-domains:a")
		w.script = store.NewScript(`
local now = tonumber(ARGV[3])
commit_all(lane_limits(ARGV[5], now).all, now, now, costs_read())
return 1`)
		begins := time.Now()
		for calls, later := range []time.Duration{0, time.Hour, 2 * day, 4 * day} {
			w.take(begins.Add(later), "a", 0)
			kept := client.PTTL(t.Context(), key).Val()
			if again := later != time.Hour; kept > least != again {
				t.Errorf("a limit for %v: after call %d, %v later, its ramp is kept for %v; want more than %v: %v", period, calls+1, later, kept, least, again)
			}
			client.PExpire(t.Context(), key, 20*day)
		}
	}
}

// TestRampOfAnAttribute: the ramp of a sender begins with its own first call, and all tenants share it.
func TestRampOfAnAttribute(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.FixedWindow, nil)
	limit.Per = []string{"sender"}
	w := warm(t, limit)
	for _, step := range []struct {
		day, hour int
		lane      string
		want      int
	}{
		{0, 9, "a;sender=one", grownTo(0)},
		{0, 13, "b;sender=one", 0},
		{10, 9, "b;sender=one", grownTo(10)},
		{10, 13, "a;sender=two", grownTo(0)},
		{11, 9, "a;sender=two", grownTo(1)},
		{11, 13, "a;sender=one", grownTo(11)},
	} {
		if calls := w.take(time.Date(2027, 3, 10+step.day, step.hour, 30, 0, 0, time.UTC), step.lane, 0); calls != step.want {
			t.Errorf("day %d, %d o'clock, %s: %d calls, want %d", step.day, step.hour, step.lane, calls, step.want)
		}
	}
}

// TestRampOfARate: a limit without windows grows with the day, and its burst with it.
func TestRampOfARate(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.TokenBucket, nil)
	limit.Burst = 200
	w := warm(t, limit)
	begins := time.Now().Add(time.Hour).Truncate(time.Second)
	for day := range 32 {
		calls := 0
		for minute := 0; minute < 24*60; minute += 10 {
			calls += w.take(begins.Add(time.Duration(day)*24*time.Hour+time.Duration(minute)*time.Minute), "a", 0)
		}
		want, burst := grownTo(day), max(1, 200*grownTo(day)/2000)
		if day == 0 {
			want += burst - 1
		}
		// What the burst has grown by, and permits that come in the last minutes of a day.
		if calls < want-4 || calls > want+burst-max(1, 200*grownTo(day-1)/2000)+4 {
			t.Errorf("%d calls on day %d, want %d", calls, day, want)
		}
	}
}

// TestRampIsHeld: while more than a twentieth of the calls are rejected, each day has as many calls as the one before;
// after that it grows again from there. Few calls say nothing.
func TestRampIsHeld(t *testing.T) {
	t.Parallel()
	w := warm(t, rampedTo(throttle.FixedWindow, nil))
	day := func(n int) time.Time { return time.Date(2027, 3, 10+n, 12, 0, 0, 0, time.UTC) }
	if calls := w.take(day(0), "a", 0); calls != 50 {
		t.Fatalf("%d calls, want 50", calls)
	}
	for n, test := range []struct{ rejected, grown int }{
		1: {12, 1}, 2: {9, 1}, 3: {9, 1}, 4: {9, 1},
		5: {0, 1}, 6: {0, 1}, // of its latest calls still more were rejected
		7: {0, 2}, 8: {0, 3},
	} {
		if n == 0 {
			continue
		}
		if calls, want := w.take(day(n), "a", test.rejected), grownTo(test.grown); calls != want {
			t.Errorf("%d calls on day %d, want %d", calls, n, want)
		}
	}
	w.take(day(0), "b", 50) // all are rejected
	state := w.server.Client().Get(t.Context(), store.Key(w.queue, "ramp:new-domains:b")).Val()
	if fields := strings.Fields(state); len(fields) != 4 || fields[2] != fields[3] {
		t.Errorf("state of a tenant of whose calls all were rejected: %q", state)
	}
	if calls := w.take(day(3), "b", 0); calls != 50 {
		t.Errorf("%d calls of a tenant of whose calls all were rejected, want 50", calls)
	}
}

// TestLostRamp: if the state of a ramp was lost, calls that end make none, and the ramp begins with the next one.
func TestLostRamp(t *testing.T) {
	t.Parallel()
	w := warm(t, rampedTo(throttle.FixedWindow, nil))
	client, key := w.server.Client(), store.Key(w.queue, "ramp:new-domains:a")
	now := time.Now()
	w.take(now, "a", 0)
	if n := client.Del(t.Context(), key).Val(); n != 1 {
		t.Fatal("it has no state")
	}
	ends := store.NewScript(`hear(lane_limits('a', clock()), clock(), '!0;')`)
	if _, err := ends.Run(t.Context(), client, store.ScriptKeys(w.queue), w.queue); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if n := client.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("a call that ended made a state")
	}
	if calls := w.take(now.Add(24*time.Hour), "a", 0); calls != 50 {
		t.Errorf("%d calls on the next day, want 50", calls)
	}
}

// TestRampBeginsAnew: each tenant's ramp begins with its own first call, and is kept for 30 days without one.
// An override ends it, and a tenant's own rate is its end.
func TestRampBeginsAnew(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.FixedWindow, nil)
	w := warm(t, limit)
	client, day := w.server.Client(), func(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }
	w.take(day(0), "a", 0)
	if a, b := w.take(day(10), "a", 0), w.take(day(10), "b", 0); a != grownTo(10) || b != 50 {
		t.Errorf("on the tenth day of a and the first of b: %d and %d calls, want %d and 50", a, b, grownTo(10))
	}
	kept := client.PTTL(t.Context(), store.Key(w.queue, "ramp:new-domains:a")).Val()
	if kept < 30*24*time.Hour-time.Minute || kept > 30*24*time.Hour {
		t.Errorf("kept for %v, want 30 days", kept)
	}
	by := operate.Override{Change: limits.Change{Rate: &throttle.Rate{Count: 700, Period: 24 * time.Hour}}, Actor: "ann", Reason: "a test"}
	if err := operate.SetOverride(t.Context(), client, w.queue, "c", limit.Name, by); err != nil {
		t.Fatal(err)
	}
	if calls := w.take(day(0), "c", 0); calls != 700 {
		t.Errorf("%d calls with an override of 700/day", calls)
	}
	set := limits.Set{
		Queues:  map[string]limits.Queue{w.queue: {Limits: []limits.Limit{limit}}},
		Tenants: map[string]limits.Tenant{"d": {Limits: map[string]map[string]limits.Change{w.queue: {limit.Name: {Rate: &throttle.Rate{Count: 60, Period: 24 * time.Hour}}}}}},
	}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	if first, then, last := w.take(day(0), "d", 0), w.take(day(20), "d", 0), w.take(day(40), "d", 0); first != 50 || then != 60 || last != 60 {
		t.Errorf("%d calls on the first day, %d on the 20th and %d after the ramp of a tenant with 60/day", first, then, last)
	}
}

// TestRampIsTold: handlers report what receivers reject, and a tenant's page says how far it has grown.
func TestRampIsTold(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.FixedWindow, nil)
	r := startRig(t, 50, limitsOf(limit), nil)
	var calls atomic.Int64
	r.answer = func(ctx context.Context, _ Running) error {
		if calls.Add(1)%2 == 0 {
			return SetRejected(ctx)
		}
		return nil
	}
	in := inspect.New(r.server.Client())
	state := func() *inspect.RampState {
		t.Helper()
		d, err := in.Tenant(t.Context(), r.queue, "a")
		if err != nil || len(d.Limits) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.Limits[0].Ramp
	}
	if s := state(); s == nil || *s != (inspect.RampState{Rate: "50/day", From: "50/day", To: "2000/day"}) {
		t.Errorf("before the first call: %+v", s)
	}
	r.enqueue(t, "a", 60)
	r.run(t)
	r.wait(t)
	until(t, "the calls are counted", func() bool {
		fields := strings.Fields(r.server.Client().Get(t.Context(), store.Key(r.queue, "ramp:new-domains:a")).Val())
		const all = 39_000 // of 50 calls, the older for less
		counted, err := strconv.Atoi(append(fields, "", "", "")[2])
		return err == nil && counted > all
	})
	if s := state(); s == nil || !s.Held || s.Rejected < 0.4 || s.Rejected > 0.6 || s.Until.Sub(s.Since) != 30*24*time.Hour {
		t.Errorf("after 50 calls, half of which were rejected: %+v", s)
	}
	if err := SetRejected(t.Context()); err == nil {
		t.Error("SetRejected outside of a handler succeeded")
	}
}

// TestTimedRamp: at the receiver, a limit grows second by second, all of it is used, and no call comes before it may.
func TestTimedRamp(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		const from, to, seconds, rest = 50, 200, 8, 2
		limit := sharedBy(to)
		limit.Ramp = &limits.Ramp{From: throttle.Rate{Count: from, Period: time.Second}, Over: seconds * time.Second}
		r := startRig(t, -1, limitsOf(limit), nil)
		r.enqueue(t, "a", 2000)
		r.run(t)
		time.Sleep((seconds + rest) * time.Second) // the time that it takes to grow
		fields := strings.Fields(r.server.Client().Get(t.Context(), store.Key(r.queue, "ramp:"+limit.Name+":")).Val())
		if len(fields) != 4 {
			t.Fatalf("state of the ramp: %q", fields)
		}
		start, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		began := time.UnixMicro(start)
		// due returns how many calls may have come after a time.
		due := func(after time.Duration) (n float64) {
			for second := range seconds + rest + 1 {
				part := min(max(after.Seconds()-float64(second), 0), 1)
				n += part * math.Floor(from*math.Pow(to/from, float64(min(second, seconds))/seconds)+1e-6)
			}
			return n
		}
		calls, early, worst, behind := r.all(), 0.0, began, 0.0
		for i, at := range calls {
			// The worst window that ends with this call begins with the one that was furthest behind.
			n := float64(i)
			behind = min(behind, n-due(at.Sub(began)))
			if over := n - due(at.Sub(began)+pacer.Tolerance) - behind; over > early || i == 0 {
				early, worst = over, at
			}
		}
		run.Number("calls that came too early", began, worst, early, 1)
		end := began.Add((seconds + rest - 1) * time.Second)
		n := 0
		for _, at := range calls {
			if at.Before(end) {
				n++
			}
		}
		run.Number("calls that did not come, in percent", began, end, 100*(1-float64(n)/due(end.Sub(began))), 3)
	})
}
