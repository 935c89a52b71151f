package queue

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// hours releases the jobs of tenants hour by hour, under a limit of an hour that they share.
type hours struct {
	*rig
	d       *dispatcher
	clock   redistest.Clock
	of      map[string]string // tenants by job
	counted int
	step    time.Duration
}

// anHour is how many calls the shared limit of hours admits in one.
const anHour = 60

// sharing returns the limit of hours.
func sharing(algorithm throttle.Algorithm) limits.Limit {
	l := limits.Limit{Name: "account", Algorithm: algorithm, Rate: throttle.Rate{Count: anHour, Period: time.Hour}}
	if algorithm == throttle.TokenBucket {
		l.Burst = anHour
	}
	return l
}

func startHours(t *testing.T, limit limits.Limit, tenants map[string]limits.Tenant, more ...limits.Limit) *hours {
	t.Helper()
	set := limitsOf(append([]limits.Limit{limit}, more...)...)
	set.Tenants = tenants
	h := &hours{rig: startRig(t, 0, set, nil), of: map[string]string{}, step: time.Hour}
	client := dialed(t, h.server, h.clock.Dial)
	h.d = h.dispatcher()
	h.d.kinds, h.d.redis, h.d.limits.Redis = ",call,other,third,", client, client
	h.clock.Stop()
	now := h.clock.Now()
	h.clock.Step(now.Truncate(time.Hour).Add(61 * time.Minute).Sub(now)) // not at its end
	return h
}

// waits lets n more jobs of a tenant wait, each of which costs so much.
func (h *hours) waits(t *testing.T, tenant string, n int, cost int64) {
	t.Helper()
	for range n {
		h.of[h.add(t, func(job *Job) { job.Tenant, job.Cost = tenant, cost })] = tenant
	}
}

// next returns how many jobs of each tenant go in so many hours, or steps.
func (h *hours) next(t *testing.T, n int) map[string]int {
	t.Helper()
	shares := map[string]int{}
	for range n {
		ids := h.release(t, h.d, 1000)[h.counted:]
		h.counted += len(ids)
		for _, id := range ids {
			shares[h.of[id]]++
		}
		h.clock.Step(h.step)
	}
	return shares
}

// TestGuarantees: while all tenants have jobs, each has its guarantee or its share by weight, whichever is more.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tenants map[string]limits.Tenant
		want    map[string]int // in an hour
	}{
		"more than its share": {map[string]limits.Tenant{"a": {Guarantee: 0.25}, "b": {Weight: 1000}}, map[string]int{"a": 15, "b": 45}},
		"less than its share": {map[string]limits.Tenant{"a": {Guarantee: 0.25, Weight: 3}, "b": {}}, map[string]int{"a": 45, "b": 15}},
		"the rest by weight":  {map[string]limits.Tenant{"a": {}, "b": {Guarantee: 0.4}, "c": {Weight: 3}}, map[string]int{"a": 9, "b": 24, "c": 27}},
		"nothing is left":     {map[string]limits.Tenant{"a": {Guarantee: 0.6}, "b": {Guarantee: 0.4}, "c": {Weight: 1000}}, map[string]int{"a": 36, "b": 24}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHours(t, sharing(throttle.TokenBucket), test.tenants)
			const hours = 5
			for tenant := range test.tenants {
				h.waits(t, tenant, (hours+1)*anHour, 1)
			}
			h.next(t, 1) // until their turns are even
			shares := h.next(t, hours)
			for tenant := range test.tenants {
				if n, want := shares[tenant], hours*test.want[tenant]; n < want-2 || n > want+2 {
					t.Errorf("%d jobs of %s went in %d hours, want %d", n, tenant, hours, want)
				}
			}
		})
	}
}

// TestGuaranteesAreLent: over simulated days, a tenant gets what is guaranteed to it in each hour in which it has jobs,
// from the first on, and no more beside a tenant of great weight, which gets all the rest.
func TestGuaranteesAreLent(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []throttle.Algorithm{throttle.TokenBucket, throttle.FixedWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			const sure = 18
			h := startHours(t, sharing(algorithm), map[string]limits.Tenant{"a": {Guarantee: float64(sure) / anHour}, "b": {Weight: 1000}})
			h.waits(t, "b", 72*anHour, 1)
			for hour := range 72 {
				want, more := 0, 0
				if hour%24 == 0 {
					more = 2 // a tenant that was away starts two jobs ahead
				}
				if hour/24 != 1 { // on the first and the third day
					if want = sure; hour%24 == 0 {
						h.waits(t, "a", 24*sure+2, 1)
					}
				}
				if got := h.next(t, 1); got["a"] < want || got["a"] > want+more || got["a"]+got["b"] != anHour {
					t.Errorf("hour %d: %v jobs went, want %d of a's of %d", hour, got, want, anHour)
				}
			}
		})
	}
}

// TestGuaranteeBesideNeighboursThatComeAndGo: a tenant that always has jobs gets what is guaranteed to it in each hour in
// which neighbours of great weight have jobs, one or two of them, and all in each hour in which they have none.
func TestGuaranteeBesideNeighboursThatComeAndGo(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []throttle.Algorithm{throttle.TokenBucket, throttle.FixedWindow} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			const sure = 18
			h := startHours(t, sharing(algorithm), map[string]limits.Tenant{"a": {Guarantee: float64(sure) / anHour}, "b": {Weight: 1000}, "c": {Weight: 1000}})
			h.waits(t, "a", 48*anHour, 1)
			for hour := range 48 {
				want := sure
				switch hour % 8 {
				case 1: // they have jobs for three hours
					h.waits(t, "b", 3*(anHour-sure), 1)
				case 5: // for two, together
					h.waits(t, "b", anHour-sure, 1)
					h.waits(t, "c", anHour-sure, 1)
				case 0, 4, 7:
					want = anHour
				}
				if got := h.next(t, 1); got["a"] != want || got["a"]+got["b"]+got["c"] != anHour {
					t.Errorf("hour %d: %v jobs went, want %d of a's of %d", hour, got, want, anHour)
				}
			}
		})
	}
}

// TestGuaranteeUnderACeiling: a limit per tenant is the most that a tenant gets of what others leave, and takes nothing
// from its guarantee.
func TestGuaranteeUnderACeiling(t *testing.T) {
	t.Parallel()
	const sure, most = 15, 20
	ceiling := limits.Limit{Name: "ceiling", Per: []string{"tenant"}, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: most, Period: time.Hour}}
	all := throttle.Rate{Count: anHour, Period: time.Hour}
	h := startHours(t, sharing(throttle.TokenBucket), map[string]limits.Tenant{
		"a": {Guarantee: float64(sure) / anHour},
		"b": {Weight: 1000, Limits: map[string]map[string]limits.Change{"": {"ceiling": {Rate: &all}}}},
	}, ceiling)
	h.waits(t, "a", 16*most, 1)
	for hour := range 16 {
		want := most
		switch hour % 8 {
		case 2: // it has jobs for three hours
			h.waits(t, "b", 3*(anHour-sure), 1)
			want = sure
		case 3, 4:
			want = sure
		}
		if got := h.next(t, 1); got["a"] != want {
			t.Errorf("hour %d: %v jobs went, want %d of a's", hour, got, want)
		}
	}
}

// TestGuaranteeIsLive: a published guarantee is in force at once, for lanes that stand in line already, and is over
// when it is taken back.
func TestGuaranteeIsLive(t *testing.T) {
	t.Parallel()
	limit := sharing(throttle.TokenBucket)
	h := startHours(t, limit, map[string]limits.Tenant{"b": {Weight: 1000}})
	h.waits(t, "a", 2*anHour, 1)
	h.waits(t, "b", 3*anHour, 1)
	h.next(t, 1)
	for _, test := range []struct {
		guarantee float64
		want      int
	}{{0.5, anHour / 2}, {0, 0}} {
		set := limits.Set{
			Queues:  map[string]limits.Queue{h.queue: {Limits: []limits.Limit{limit}}},
			Tenants: map[string]limits.Tenant{"a": {Guarantee: test.guarantee}, "b": {Weight: 1000}},
		}
		if err := operate.Publish(t.Context(), h.server.Client(), set); err != nil {
			t.Fatal(err)
		}
		if a := h.next(t, 1)["a"]; a != test.want {
			t.Errorf("%d of %d jobs are a's with a guarantee of %v, want %d", a, anHour, test.guarantee, test.want)
		}
	}
}

// TestGuaranteeByCost: a guarantee is a part of what jobs take, not of their number.
func TestGuaranteeByCost(t *testing.T) {
	t.Parallel()
	const hours, cost = 9, 9
	h := startHours(t, sharing(throttle.TokenBucket), map[string]limits.Tenant{"a": {Guarantee: 0.5}, "b": {Weight: 1000}})
	h.waits(t, "a", anHour, cost)
	h.waits(t, "b", hours*anHour, 1)
	want := hours * anHour / 2 / cost
	if a := h.next(t, hours)["a"]; a < want-1 || a > want+1 {
		t.Errorf("%d of a's jobs went in %d hours, each of which takes as much as nine of b's, want %d", a, hours, want)
	}
}

// TestGuaranteeOfSeveralLanes: the kinds of a tenant's jobs, and their other attributes, share its guarantee.
func TestGuaranteeOfSeveralLanes(t *testing.T) {
	t.Parallel()
	const hours, sure = 6, 30
	h := startHours(t, sharing(throttle.TokenBucket), map[string]limits.Tenant{"a": {Guarantee: float64(sure) / anHour}, "b": {Weight: 1000}})
	of := map[string]string{}
	for _, kind := range []string{"call", "other", "third"} {
		for range hours * sure {
			of[h.add(t, func(job *Job) { job.Kind = kind })] = kind
		}
	}
	h.waits(t, "b", hours*anHour, 1)
	ids := []string{}
	for range hours {
		ids = h.release(t, h.d, 1000)
		h.clock.Step(time.Hour)
	}
	shares := map[string]int{}
	for _, id := range ids {
		shares[of[id]]++
	}
	for _, kind := range []string{"call", "other", "third"} {
		if n, want := shares[kind], hours*sure/3; n < want-hours || n > want+hours {
			t.Errorf("%d jobs of kind %s went in %d hours, want %d: %v", n, kind, hours, want, shares)
		}
	}
}

// TestGuaranteeOfARareLimit: a guarantee is a part of any rate, also of one whose interval is a large number of µs.
func TestGuaranteeOfARareLimit(t *testing.T) {
	t.Parallel()
	limit := limits.Limit{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1001, Period: 24 * time.Hour}, Burst: 40}
	h := startHours(t, limit, map[string]limits.Tenant{"a": {Guarantee: 0.5}, "b": {Weight: 1000}})
	h.waits(t, "a", 60, 1)
	h.waits(t, "b", 60, 1)
	// A tenant that was away starts two jobs ahead.
	if a := h.next(t, 1)["a"]; a < 20 || a > 22 {
		t.Errorf("%d of a's jobs are among the first 40, of which 20 are guaranteed", a)
	}
}

// TestGuaranteeBehindManyLanes: a guarantee also holds for a lane with so low a weight that one call of dispatch does
// not read as far as its place, and for one that comes back from waiting for the tenant's own limit.
func TestGuaranteeBehindManyLanes(t *testing.T) {
	t.Parallel()
	second := limits.Limit{Name: "account", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(anHour), Burst: 10}
	own := limits.Limit{Name: "own", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: anHour / 2, Period: time.Hour}, Per: []string{"tenant"}}
	for name, test := range map[string]struct {
		limits []limits.Limit
		step   time.Duration
		steps  int // in which anHour jobs go
		saved  int // jobs that its part may save up, or that it starts ahead
	}{
		"an hour":                {[]limits.Limit{sharing(throttle.TokenBucket)}, time.Hour, 1, 2},
		"a limit of its own":     {[]limits.Limit{sharing(throttle.TokenBucket), own}, time.Hour, 1, 2},
		"a second, step by step": {[]limits.Limit{second}, 50 * time.Millisecond, 20, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHours(t, test.limits[0], map[string]limits.Tenant{"a": {Guarantee: 0.5, Weight: 0.001}}, test.limits[1:]...)
			h.step = test.step
			const rounds = 4
			h.waits(t, "a", 3*rounds*anHour, 1)
			for i := range 40 {
				h.waits(t, fmt.Sprint("b", i), 4*rounds, 1)
			}
			h.next(t, test.steps) // by now it is the last one by weight
			shares, all := h.next(t, rounds*test.steps), 0
			for _, n := range shares {
				all += n
			}
			if a := shares["a"]; all < rounds*anHour || a < all/2-test.saved || a > (all+1)/2+test.saved {
				t.Errorf("%d of a's jobs went, want half of %d", a, all)
			}
		})
	}
}

// TestGuaranteeOfLargeJobs: a lane whose next job needs more than an hour has left keeps its place, and its guarantee.
func TestGuaranteeOfLargeJobs(t *testing.T) {
	t.Parallel()
	h := startHours(t, sharing(throttle.FixedWindow), map[string]limits.Tenant{"a": {Guarantee: 0.5}, "b": {Weight: 1000}})
	const hours, cost = 8, 13
	h.waits(t, "a", hours*anHour/cost, cost)
	h.waits(t, "b", hours*anHour, 1)
	h.next(t, 1)
	shares := h.next(t, hours-1)
	// It may have what is left of a job in each hour besides.
	if sure := (hours - 1) * anHour / 2; shares["a"]*cost < sure-cost || shares["a"]*cost > sure+(hours-1)*cost || shares["a"]*cost+shares["b"] != 2*sure {
		t.Errorf("%v jobs went in %d hours, want %d permits of a's, and all of the rest of b's", shares, hours-1, sure)
	}
}

// TestGuaranteeOfALaneThatStays: a lane that was alone, and whose first job needs more than an hour has left, stands in
// line for the next hour, and has its guarantee there.
func TestGuaranteeOfALaneThatStays(t *testing.T) {
	t.Parallel()
	h := startHours(t, sharing(throttle.FixedWindow), map[string]limits.Tenant{"a": {Guarantee: 0.5, Weight: 0.001}})
	h.step = 0
	h.waits(t, "a", 20, 1)
	h.waits(t, "b", 30, 1)
	h.next(t, 1) // by now a's turn comes long after b's
	h.of[h.add(t, func(job *Job) { job.Tenant, job.Kind, job.Cost = "a", "other", 20 })] = "a"
	h.next(t, 1)
	h.clock.Step(time.Hour)
	h.waits(t, "b", 2*anHour, 1)
	if shares := h.next(t, 1); shares["a"] != 1 || shares["b"] != anHour-20 {
		t.Errorf("%v jobs went, want one of a's and %d of b's", shares, anHour-20)
	}
}

// TestGuaranteeBesideAUnit: a guaranteed lane that another limit of a unit holds keeps its place, and nobody else waits
// for it.
func TestGuaranteeBesideAUnit(t *testing.T) {
	t.Parallel()
	tokens := limits.Limit{Name: "tokens", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Period: time.Hour}, Unit: "tokens"}
	h := startHours(t, sharing(throttle.FixedWindow), map[string]limits.Tenant{"a": {Guarantee: 0.5}}, tokens)
	const hours, jobs = 4, 3 // with 30 tokens each
	for range (hours + 1) * jobs {
		h.of[h.add(t, func(job *Job) { job.Tenant, job.Costs = "a", map[string]int64{"tokens": 30} })] = "a"
	}
	h.waits(t, "b", (hours+1)*anHour, 1)
	for hour := range hours {
		if shares := h.next(t, 1); shares["a"] != jobs || shares["b"] != anHour-jobs {
			t.Errorf("hour %d: %v jobs went, want %d and %d", hour, shares, jobs, anHour-jobs)
		}
	}
}

// TestGuaranteeOfNobody: a guaranteed lane whose jobs were cancelled keeps nobody waiting, and nothing of it is left.
func TestGuaranteeOfNobody(t *testing.T) {
	t.Parallel()
	h := startHours(t, sharing(throttle.FixedWindow), map[string]limits.Tenant{"a": {Guarantee: 0.5}})
	h.waits(t, "a", 2*anHour, 1)
	h.waits(t, "b", 4*anHour, 1)
	h.next(t, 1)
	client, owed := h.server.Client(), store.Key(h.queue, "owed")
	if n := client.ZCard(t.Context(), owed).Val(); n != 1 {
		t.Fatalf("%d lanes are owed something; want a's", n)
	}
	if _, err := operate.Apply(t.Context(), client, h.queue, operate.Cancel, operate.Filter{Tenant: "a"}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if shares := h.next(t, 1); shares["b"] != anHour {
		t.Errorf("%v jobs went, want %d of b's", shares, anHour)
	}
	if n := client.ZCard(t.Context(), owed).Val(); n != 0 {
		t.Errorf("%d lanes are owed something; want none", n)
	}
}

// TestDamagedGuarantee: while what is known of a guarantee is damaged, the tenant has its share by weight.
func TestDamagedGuarantee(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"guaranteed:account:a", "owed", "limits"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			h := startHours(t, sharing(throttle.TokenBucket), map[string]limits.Tenant{"a": {Guarantee: 0.9}})
			client := h.server.Client()
			if key == "limits" {
				config := client.HGet(t.Context(), store.Key(h.queue, key), "t:a").Val()
				damaged := regexp.MustCompile(`"g":\d+`).ReplaceAllString(config, `"g":0.5`)
				if damaged == config {
					t.Fatalf("no guarantee in %s", config)
				}
				client.HSet(t.Context(), store.Key(h.queue, key), "t:a", damaged)
			} else if err := client.Set(t.Context(), store.Key(h.queue, key), "damaged", 0).Err(); err != nil {
				t.Fatal(err)
			}
			h.waits(t, "a", 2*anHour, 1)
			h.waits(t, "b", 2*anHour, 1)
			if a := h.next(t, 2)["a"]; a < anHour-1 || a > anHour+1 {
				t.Errorf("%d of a's jobs went in two hours, want half of %d", a, 2*anHour)
			}
			faults, err := inspect.Faults(t.Context(), client, h.queue)
			if err != nil || len(faults) == 0 {
				t.Errorf("faults: %v, %v", faults, err)
			}
			if text := client.Get(t.Context(), store.Key(h.queue, key)).Val(); text != "damaged" && key != "limits" {
				t.Errorf("what was damaged is %q now", text)
			}
		})
	}
}

// TestTimedGuarantee: at the receiver, a tenant whose neighbour has a thousand times its weight gets what is guaranteed
// to it as soon as it has jobs, and its neighbour gets all of the rest, and all while it has none.
func TestTimedGuarantee(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		const rate, sure, each = 200, 60, 120
		set := limitsOf(sharedBy(rate))
		set.Tenants = map[string]limits.Tenant{"a": {Guarantee: float64(sure) / rate}, "b": {Weight: 1000}}
		r := startRig(t, -1, set, nil)
		r.enqueue(t, "b", 8*rate)
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), rate)
		for turn := range 2 {
			began := time.Now()
			r.enqueue(t, "a", each)
			var calls []time.Time
			until(t, "its calls are made", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				calls = slices.Clone(r.calls["a"][min(turn*each, len(r.calls["a"])):])
				return len(calls) == each
			})
			const beforehand = 250 * time.Millisecond // slots that were given before it came
			took := calls[each-1].Sub(began)
			run.Took("calls of a guarantee", began, calls[each-1], each/sure*time.Second+beforehand)
			if least := each/sure*time.Second - beforehand; took < least {
				t.Errorf("%d calls of a guarantee of %d/s took %v: no less than %v is its part", each, sure, took, least)
			}
			r.seen.wait(t, string(lifecycle.Done), r.seen.outcomes(lifecycle.Done)+rate/2)
		}
		all := r.all()
		run.Law("account", all, rate, 1)
		run.Used("account", all, rate, 0.97)
	})
}
