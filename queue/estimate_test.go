package queue

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

func windowOf(name string, count int64, period time.Duration, per ...string) limits.Limit {
	return limits.Limit{Per: per, Name: name, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: count, Period: period}}
}

// TestTimedForecastIsRight lets a worker send short backlogs and compares forecasts made on the
// way with what the receiver saw: within 5 % of the time, plus delays of the machine. The
// minimum tolerance of 80 ms is half a horizon, because the time of held jobs is uncertain,
// plus a few calls at these rates.
func TestTimedForecastIsRight(t *testing.T) {
	t.Parallel()
	burst := perTenant(50)
	burst.Burst = 30
	tests := map[string]struct {
		limits  []limits.Limit
		weights map[string]float64
		own     map[string]int64 // per second, of limit "tenant"
		jobs    map[string]int
		after   int // calls, before it is forecast
		window  time.Duration
		heldBy  map[string]string
	}{
		"one tenant, token bucket": {
			limits: []limits.Limit{burst}, jobs: map[string]int{"a": 180}, after: 5, heldBy: map[string]string{"a": "tenant"},
		},
		"three share a leaky bucket 1:2:3": {
			limits: []limits.Limit{sharedBy(120)}, weights: map[string]float64{"b": 2, "c": 3},
			jobs: map[string]int{"a": 80, "b": 120, "c": 150}, after: 20,
			heldBy: map[string]string{"a": "account", "b": "account", "c": "account"},
		},
		"some bound by their own, some by what they share": {
			limits: []limits.Limit{sharedBy(100), perTenant(1000)}, own: map[string]int64{"a": 11, "b": 23},
			jobs: map[string]int{"a": 30, "b": 60, "c": 120, "d": 70}, after: 20,
			heldBy: map[string]string{"a": "tenant", "b": "tenant", "c": "account", "d": "account"},
		},
		"fixed windows": {
			limits: []limits.Limit{windowOf("quota", 60, time.Second, "tenant"), sharedBy(600)},
			jobs:   map[string]int{"a": 200, "b": 150}, after: 10, window: time.Second, heldBy: map[string]string{"a": "quota", "b": "quota"},
		},
		"sliding windows of a few": {
			limits: []limits.Limit{slidingOf("quota", 3, 400*time.Millisecond, "tenant"), sharedBy(600)},
			jobs:   map[string]int{"a": 20, "b": 15}, after: 6, window: 400 * time.Millisecond, heldBy: map[string]string{"a": "quota", "b": "quota"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			measured(t, func(t *testing.T, run *pacer.Run) {
				set := limitsOf(test.limits...)
				set.Tenants = map[string]limits.Tenant{}
				all := 0
				for tenant, n := range test.jobs {
					own := limits.Tenant{Weight: test.weights[tenant]}
					if rate := test.own[tenant]; rate > 0 {
						perSecond := throttle.PerSecond(rate)
						own.Limits = map[string]map[string]limits.Change{"": {"tenant": {Rate: &perSecond}}}
					}
					set.Tenants[tenant] = own
					all += n
				}
				r := startRig(t, all, set, nil)
				r.served(t) // its worker may not have published its kinds yet
				for tenant, n := range test.jobs {
					r.enqueue(t, tenant, n)
				}
				r.run(t)
				r.seen.wait(t, string(lifecycle.Done), test.after)
				forecast := map[string]inspect.Outlook{}
				for tenant := range test.jobs {
					o, err := inspect.New(r.server.Client()).Outlook(t.Context(), r.queue, tenant)
					if err != nil {
						t.Fatal(err)
					}
					forecast[tenant] = o
				}
				r.receiver.wait(t)
				r.seen.wait(t, string(lifecycle.Done), all)
				for tenant, o := range forecast {
					calls := r.calls[tenant]
					last := calls[len(calls)-1]
					off, took := last.Sub(o.DrainsAt).Abs(), last.Sub(o.Now)
					t.Logf("%s: %v; off by %v of %v (%.1f %%), %d missed", tenant, o, last.Sub(o.DrainsAt).Round(time.Millisecond),
						took.Round(time.Millisecond), 100*off.Seconds()/took.Seconds(), r.seen.outcomes("missed"))
					run.Most(tenant+"'s forecast was off by", o.Now, last, off, took/20+80*time.Millisecond)
					if o.HeldBy == nil {
						t.Fatalf("%v: nothing holds it", o)
					}
					if o.HeldBy.Limit != test.heldBy[tenant] {
						t.Errorf("%s: held by %v, want %s", tenant, o.HeldBy, test.heldBy[tenant])
					}
					if o.Confidence != inspect.Steady {
						t.Errorf("%s: %s", tenant, o.Confidence)
					}
				}
			})
		})
	}
}

// TestForecastOfWindowGivenAhead: permits of the next window that were given ahead are not
// given again, and no job is forecast before that window.
func TestForecastOfWindowGivenAhead(t *testing.T) {
	t.Parallel()
	const period = effective.AheadOfNow
	quota := windowOf("quota", 60, period, "tenant")
	r := startRig(t, 1, limitsOf(quota), nil)
	r.served(t)
	r.enqueue(t, "a", 100)
	client := r.server.Client()
	for {
		now, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		opens := time.UnixMicro(now.UnixMicro() - now.UnixMicro()%period.Microseconds()).Add(period)
		key := store.BucketKey(r.queue, quota, &store.Lane{Tenant: "a", Kind: "call"})
		text := fmt.Sprintf("f %d %d 37 %d %d", opens.UnixMicro(), opens.Add(period).UnixMicro(), opens.UnixMicro(), now.UnixMicro())
		if err := client.Set(t.Context(), key, text, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		o, err := inspect.New(client).Outlook(t.Context(), r.queue, "a")
		if err != nil {
			t.Fatal(err)
		}
		if !o.Now.Before(opens) {
			continue // the window opened in between
		}
		// 23 go in the next window, 60 in the one after it, and 17 in the third.
		want := opens.Add(2 * period)
		if o.HeldBy == nil || o.HeldBy.Next.Before(opens.Add(-time.Millisecond)) || o.DrainsAt.Sub(want).Abs() > time.Millisecond {
			t.Errorf("next slot %+v, drains at %v; want %v or a little later, and %v", o.HeldBy.Next, o.DrainsAt, opens, want)
		}
		return
	}
}

// TestEstimateOfLog: permits of a sliding window log come back one window after their use.
func TestEstimateOfLog(t *testing.T) {
	t.Parallel()
	log := limits.Limit{Name: "log", Algorithm: throttle.SlidingWindowLog, Rate: throttle.PerSecond(5), Per: []string{"tenant"}}
	r := startRig(t, 1, limitsOf(log), nil)
	r.served(t)
	e, err := inspect.New(r.server.Client()).Estimate(t.Context(), r.queue, inspect.Batch{Tenant: "a", Jobs: 11})
	if err != nil {
		t.Fatal(err)
	}
	if last := e.Last.Sub(e.Now).Round(time.Millisecond); !e.First.Equal(e.Now) || last != 2*time.Second || e.Confidence != inspect.Rough ||
		e.HeldBy == nil || e.HeldBy.Limit != "log" || e.HeldBy.Rule != "5/s" {
		t.Errorf("%v: %+v", e, e)
	}
}

// TestEstimateOfWebhooks: each receiver has waiting jobs of its own. Without a payload a batch
// is taken to go where most jobs of the tenant wait.
func TestEstimateOfWebhooks(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "host", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1), Per: []string{"host"}}), nil)
	redistest.Serve(r.server.Client(), r.queue, "webhook")
	to := func(host string) json.RawMessage { return json.RawMessage(`{"url":"https://` + host + `/hook"}`) }
	for host, n := range map[string]int{"few.example": 2, "many.example": 5} {
		for range n {
			r.add(t, func(job *Job) { job.Kind, job.Tenant, job.Payload = "webhook", "acme", to(host) })
		}
	}
	for name, test := range map[string]struct {
		tenant  string
		payload json.RawMessage
		want    int64
	}{
		"few": {"acme", to("few.example"), 2}, "many": {"acme", to("many.example"), 5}, "another": {"acme", to("none.example"), 0},
		"not said": {"acme", nil, 5}, "another tenant": {"globex", nil, 0},
	} {
		e, err := inspect.New(r.server.Client()).Estimate(t.Context(), r.queue, inspect.Batch{Tenant: test.tenant, Kind: "webhook", Jobs: 1, Payload: test.payload})
		if err != nil || e.Waiting != test.want || test.want > 0 && e.Last.Sub(e.Now) < time.Duration(test.want-1)*time.Second {
			t.Errorf("%s: %+v, %v; want %d before it", name, e, err, test.want)
		}
	}
	if _, err := inspect.New(r.server.Client()).Estimate(t.Context(), r.queue, inspect.Batch{Tenant: "acme", Kind: "webhook", Jobs: 1, Payload: json.RawMessage("{")}); err == nil || !strings.Contains(err.Error(), "payload: it is not JSON") {
		t.Error(err)
	}
}

// TestForecastReadsForeignGroups: a forecast finds the buckets of groups that asynq's own
// client made.
func TestForecastReadsForeignGroups(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"a b", "a%20b", "%", "é", "a\nb", "x;domain=y z;q=1"} {
		r := startRig(t, -1, limitsOf(windowOf("daily", 100, 24*time.Hour, "tenant", "domain")), nil)
		client := r.server.Client()
		plain := asynq.NewClientFromRedisClient(client)
		if _, err := plain.Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(r.queue), asynq.Group(group)); err != nil {
			t.Fatal(err)
		}
		until(t, "the lane is known", func() bool {
			_, err := effective.SweepSlice(t.Context(), client, r.queue, "", "0", "", true)
			if err != nil {
				t.Fatal(err)
			}
			return len(r.release(t, r.dispatcher(), 100)) == 1
		})
		lane := store.ParseLane(group)
		name := store.BucketKey(r.queue, windowOf("daily", 100, 24*time.Hour, "tenant", "domain"), &lane)
		if client.Exists(t.Context(), name).Val() != 1 {
			t.Errorf("group %q: %s is not among %q", group, name, redistest.Keys(t, client, store.Key(r.queue, "b:*")))
		}
	}
}
