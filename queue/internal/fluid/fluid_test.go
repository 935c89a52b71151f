package fluid

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// exactLimit models a limit job by job. Times are in seconds.
type exactLimit struct {
	interval, burst float64 // of a token bucket; burst 1 is a leaky one
	tat             float64
	window          float64 // of a fixed window, or a sliding counter
	quota, used     float64
	opened          float64
	sliding         bool
	previous        float64 // of a sliding counter, in the window before
	fluid           Bucket
}

func (l *exactLimit) earliest(t float64) float64 {
	if l.sliding {
		t = max(t, l.opened)
		start, previous, used := l.counts(t)
		if used+1 > l.quota {
			previous, used, start = used, 0, start+l.window
			t = start
		}
		if room := l.quota - used; previous >= room {
			// previous × the part of its window that is left < room
			t = max(t, start+l.window*(1-room/previous)+1e-6)
		}
		return t
	}
	if l.window > 0 {
		start := math.Floor(t/l.window+1e-9) * l.window
		if start <= l.opened && l.used+1 > l.quota {
			return l.opened + l.window
		}
		return max(t, l.opened)
	}
	return max(t, l.tat-(l.burst-1)*l.interval)
}

// counts returns what a sliding counter knows of the window that contains t.
func (l *exactLimit) counts(t float64) (start, previous, used float64) {
	switch start = math.Floor(t/l.window+1e-9) * l.window; math.Round((start - l.opened) / l.window) {
	case 0:
		return start, l.previous, l.used
	case 1:
		return start, l.used, 0
	}
	return start, 0, 0
}

func (l *exactLimit) take(t float64) {
	if l.sliding {
		l.opened, l.previous, l.used = l.counts(t)
		l.used++
		return
	}
	if l.window > 0 {
		if start := math.Floor(t/l.window+1e-9) * l.window; start > l.opened {
			l.opened, l.used = start, 0
		}
		l.used++
		return
	}
	l.tat = max(l.tat, t) + l.interval
}

type exactTenant struct {
	jobs   int
	weight float64
	own    []*exactLimit
	finish float64
	at     float64 // of its last call
	calls  []float64
}

// dispatchExactly is dispatch.lua without a clock. It releases one job after the other,
// each time of the tenant with the least virtual time among those that their own limits
// admit.
func dispatchExactly(tenants []*exactTenant, shared []*exactLimit) {
	earliest := func(list []*exactLimit, t float64) float64 {
		for moved := true; moved; {
			moved = false
			for _, l := range list {
				if e := l.earliest(t); e > t {
					t, moved = e, true
				}
			}
		}
		return t
	}
	virtual := 0.0
	for {
		s := earliest(shared, 0)
		first := math.Inf(1)
		for _, tenant := range tenants {
			if tenant.jobs > 0 {
				first = min(first, earliest(tenant.own, s))
			}
		}
		if math.IsInf(first, 1) {
			return
		}
		var next *exactTenant
		var start float64
		for _, tenant := range tenants {
			if tenant.jobs == 0 || earliest(tenant.own, s) > first {
				continue
			}
			if at := max(virtual-2/tenant.weight, tenant.finish); next == nil || at < start {
				next, start = tenant, at
			}
		}
		t := first
		for {
			before := t
			t = earliest(next.own, earliest(shared, t))
			if t == before {
				break
			}
		}
		for _, l := range append(append([]*exactLimit(nil), next.own...), shared...) {
			l.take(t)
		}
		next.jobs--
		next.finish = start + 1/next.weight
		virtual = max(virtual, start)
		next.at = t
		next.calls = append(next.calls, t)
	}
}

type picker struct{ *rand.Rand }

func (p picker) within(least, most int) int { return least + p.IntN(most-least+1) }

// drawLimit draws a limit that admits at least this many permits in a second, and ten
// times as many in a window.
func drawLimit(pick picker, least, most int, kinds ...string) *exactLimit {
	rate := float64(pick.within(least, most))
	kind := kinds[pick.within(0, len(kinds)-1)]
	switch kind {
	case "leaky":
		return &exactLimit{interval: 1 / rate, burst: 1, fluid: Bucket{Level: 1, Max: 1, Rate: rate}}
	case "token":
		burst := float64(pick.within(2, 50))
		owed := float64(pick.within(0, int(burst)))
		return &exactLimit{interval: 1 / rate, burst: burst, tat: owed / rate, fluid: Bucket{Level: burst - owed, Max: burst, Rate: rate}}
	}
	if kind == "counter" {
		length := math.Ceil(float64(10*least) / rate)
		used := float64(pick.within(0, int(rate*length)))
		previous := float64(pick.within(0, int(rate*length-used)))
		return slidingLimit(rate*length, length, previous, used)
	}
	length := math.Ceil(float64(10*least)/rate) * float64(pick.within(1, 5))
	used := float64(pick.within(0, int(rate*length)))
	if pick.within(0, 3) == 0 { // given of the next window already
		return &exactLimit{window: length, quota: rate * length, used: used, opened: length,
			fluid: Bucket{Max: rate * length, Quota: rate * length, Given: used, Period: length}}
	}
	return &exactLimit{window: length, quota: rate * length, used: used,
		fluid: Bucket{Level: rate*length - used, Max: rate * length, Quota: rate * length, Used: used, Period: length}}
}

// slidingLimit is a sliding counter at the start of a window.
func slidingLimit(quota, length, previous, used float64) *exactLimit {
	return &exactLimit{sliding: true, window: length, quota: quota, previous: previous, used: used, fluid: Bucket{
		Spread: true, Level: quota - used - previous, Max: quota, Quota: quota, Used: used, Period: length, Rate: previous / length,
	}}
}

// TestFluidOfFewPermits: with a sliding counter of few permits in a long window, the
// forecast of each job is when it goes, and not the window after it.
func TestFluidOfFewPermits(t *testing.T) {
	t.Parallel()
	for _, quota := range []int{1, 2, 3, 7} {
		for used := range quota + 1 {
			for previous := range quota - used + 1 {
				for jobs := range 20 {
					l := slidingLimit(float64(quota), 3600, float64(previous), float64(used))
					tenant := &exactTenant{jobs: jobs + 1, weight: 1, own: []*exactLimit{l}}
					one := &Member{Jobs: float64(jobs + 1), Times: 1}
					m := &Model{Buckets: []Bucket{l.fluid}, Flows: []*Flow{{Weight: 1, Members: []*Member{one}, Uses: []Use{{0, 1}}}}}
					dispatchExactly([]*exactTenant{tenant}, nil)
					m.Run(nil)
					if math.Abs(one.At-tenant.at) > 0.01 {
						t.Errorf("%v an hour, %v used, %v before: job %d goes at %.3f s, the model says %.3f s", quota, used, previous, jobs+1, tenant.at, one.At)
					}
				}
			}
		}
	}
}

// TestFluidIsDispatch compares the model with dispatch, job by job: each tenant drains
// when the model says, within 5 %, give or take the few jobs that go while all others
// have their turn.
//
// A limit without a burst loses the time for which its lane waits for shared slots. The
// model knows the mean of this, but two paces may lock into each other: a lane that would
// use every second slot but misses it each time uses every third, and the model gives it
// half as many jobs more, and the others as many fewer. So if such lanes share limits,
// that many jobs may go earlier or later. A bound on the time would not do: with one job
// more than a shared window has left, a tenant drains a window later.
func TestFluidIsDispatch(t *testing.T) {
	t.Parallel()
	var off [2][]float64
	rapid.Check(t, func(t *rapid.T) {
		// Numbers that rapid draws are mostly small, so all of them come from a random
		// seed instead.
		seed := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		pick := picker{rand.New(rand.NewChaCha8(seed))}
		m := &Model{}
		var shared []*exactLimit
		for range pick.within(0, 2) {
			shared = append(shared, drawLimit(pick, 60, 200, "leaky", "token", "window", "counter"))
		}
		for _, l := range shared {
			m.Buckets = append(m.Buckets, l.fluid)
		}
		kinds := []string{"token", "window", "counter"}
		if pick.within(0, 1) == 1 {
			kinds = append(kinds, "leaky")
		}
		var tenants, paced []*exactTenant // paced: those that may lock into another's pace
		var members, before []*Member
		turn := 0.0
		for i := range pick.within(1, 6) {
			tenant := &exactTenant{
				jobs:   pick.within(1, 800),
				weight: float64(pick.within(1, 4)),
			}
			f := &Flow{Weight: tenant.weight, Members: []*Member{{Jobs: float64(tenant.jobs), Times: 1}}}
			for i := range shared {
				f.Uses = append(f.Uses, Use{i, 1})
			}
			for range pick.within(0, 2) {
				l := drawLimit(pick, 3, 60, kinds...)
				tenant.own = append(tenant.own, l)
				if l.burst == 1 && len(shared) > 0 && !slices.Contains(paced, tenant) {
					paced = append(paced, tenant)
				}
				l.fluid.Private = true
				f.Uses = append(f.Uses, Use{len(m.Buckets), 1})
				m.Buckets = append(m.Buckets, l.fluid)
			}
			m.Flows = append(m.Flows, f)
			members = append(members, f.Members[0])
			before = append(before, &Member{})
			f.Members = append(f.Members, before[i])
			tenants = append(tenants, tenant)
			turn += tenant.weight
		}
		dispatchExactly(tenants, shared)
		few := make([]int, len(tenants))
		for i, tenant := range tenants {
			locked := 0
			for _, other := range paced {
				for _, call := range other.calls {
					if call <= tenant.at {
						locked++
					}
				}
			}
			few[i] = int(turn) + 2 + locked/2
			before[i].Jobs = max(float64(len(tenant.calls)-few[i]), Tiny)
		}
		m.Run(nil)
		for i, tenant := range tenants {
			earliest := 0.0
			if n := len(tenant.calls) - 1 - few[i]; n >= 0 {
				earliest = tenant.calls[n]
			}
			if members[i].At < 0.95*earliest-Tiny || before[i].At > 1.05*tenant.at+Tiny {
				t.Fatalf("tenant %d drains at %.3f s, %d jobs before that at %.3f s; the model says %.3f s and %.3f s",
					i, tenant.at, few[i], earliest, members[i].At, before[i].At)
			}
			if tenant.at > 1 {
				off := &off[len(kinds)-3]
				*off = append(*off, math.Abs(members[i].At-tenant.at)/tenant.at)
			}
		}
	})
	for i, off := range off {
		slices.Sort(off)
		if n := len(off); n > 0 {
			t.Logf("%s: off by %.2f %% in the median, by %.1f %% at most in 95 %% of %d backlogs",
				[]string{"bursts", "leaky tenants"}[i], 100*off[n/2], 100*off[n*95/100], n)
		}
	}
}

// TestLeakyLanesGoOnTheGrid: a lane of 11/s under a limit of 100/s that others use up
// calls at every tenth slot; under one that is not used up it loses almost nothing.
func TestLeakyLanesGoOnTheGrid(t *testing.T) {
	for _, test := range []struct{ others, rate float64 }{{1000, 10}, {1, 10.9}} {
		m := &Model{Buckets: []Bucket{
			{Max: 1, Rate: 100}, {Max: 1, Rate: 11, Private: true}, {Max: 50, Rate: test.others, Private: true},
		}}
		leaky := &Member{Jobs: 100, Times: 1}
		m.Flows = []*Flow{
			{Weight: 1, Members: []*Member{leaky}, Uses: []Use{{0, 1}, {1, 1}}},
			{Weight: 1, Members: []*Member{{Jobs: 1e6, Times: 1}}, Uses: []Use{{0, 1}, {2, 1}}},
		}
		m.Run(leaky)
		if math.Abs(leaky.Rate-test.rate) > 0.1 || math.Abs(leaky.At-100/leaky.Rate) > 1e-6 {
			t.Errorf("beside %v/s: %.2f/s, done at %.2f s; want %v/s", test.others, leaky.Rate, leaky.At, test.rate)
		}
	}
}

// TestBurstsAreSharedByWeight: each lane gets its part of the permits that are available
// at once, whichever member of a flow or watched place finishes earlier.
func TestBurstsAreSharedByWeight(t *testing.T) {
	t.Parallel()
	short, lane, place := &Member{Jobs: 5, Times: 1}, &Member{Jobs: 100, Times: 1}, &Member{Jobs: 14}
	long, before, after := &Member{Jobs: 100, Times: 1}, &Member{Jobs: 28}, &Member{Jobs: 29}
	m := &Model{
		Buckets: []Bucket{{Level: 47, Max: 47, Rate: 1}},
		Flows: []*Flow{
			{Weight: 1, Members: []*Member{short, place, lane}, Uses: []Use{{0, 1}}},
			{Weight: 2, Members: []*Member{before, after, long}, Uses: []Use{{0, 1}}},
		},
	}
	m.Run(nil)
	// The short lane gets 5, and the two others 14 and 28, by weight.
	if short.At != 0 || place.At != 0 || before.At != 0 || math.Abs(after.At-1.5) > 1e-6 {
		t.Errorf("done at %.3f s, %.3f s, %.3f s and %.3f s; want 0, 0, 0 and 1.5 s", short.At, place.At, before.At, after.At)
	}
}

// TestLeakyLanesBesideACounter: permits come back to a sliding counter one by one, so a
// limit that saves no permits waits for them as for the slots of a rate: with 60/s under
// 100/s each call goes with every second permit.
func TestLeakyLanesBesideACounter(t *testing.T) {
	t.Parallel()
	counter := slidingLimit(1000, 10, 1000, 0)
	leaky := &exactLimit{interval: 1.0 / 60, burst: 1, fluid: Bucket{Level: 1, Max: 1, Rate: 60, Private: true}}
	tenants := []*exactTenant{{jobs: 1000, weight: 2, own: []*exactLimit{leaky}}, {jobs: 400, weight: 1}}
	slow, other := &Member{Jobs: 1000, Times: 1}, &Member{Jobs: 400, Times: 1}
	m := &Model{Buckets: []Bucket{counter.fluid, leaky.fluid}, Flows: []*Flow{
		{Weight: 2, Members: []*Member{slow}, Uses: []Use{{0, 1}, {1, 1}}},
		{Weight: 1, Members: []*Member{other}, Uses: []Use{{0, 1}}},
	}}
	dispatchExactly(tenants, []*exactLimit{counter})
	m.Run(nil)
	for i, one := range []*Member{slow, other} {
		if at := tenants[i].at; math.Abs(one.At-at) > 0.02*at {
			t.Errorf("tenant %d is through at %.2f s, the model says %.2f s", i, at, one.At)
		}
	}
}

// TestWindowsThatNobodyUses: however many windows pass while another limit is closed, the
// windows after that are modeled one by one.
func TestWindowsThatNobodyUses(t *testing.T) {
	t.Parallel()
	shared := &exactLimit{window: 30_000, quota: 1000, used: 1000, fluid: Bucket{Max: 1000, Quota: 1000, Used: 1000, Period: 30_000}}
	own := slidingLimit(50, 1, 0, 0)
	own.fluid.Private = true
	tenant := &exactTenant{jobs: 100, weight: 1, own: []*exactLimit{own}}
	one := &Member{Jobs: 100, Times: 1}
	m := &Model{Buckets: []Bucket{shared.fluid, own.fluid}, Flows: []*Flow{
		{Weight: 1, Members: []*Member{one}, Uses: []Use{{0, 1}, {1, 1}}},
	}}
	dispatchExactly([]*exactTenant{tenant}, []*exactLimit{shared})
	m.Run(nil)
	if math.Abs(one.At-tenant.at) > 0.05 {
		t.Errorf("the last job goes at %.3f s, the model says %.3f s", tenant.at, one.At)
	}
}

// TestWaitsCostNothing: a model in which nothing flows ends, even if lanes with send
// windows are paused forever, and however short the windows of idle buckets are.
func TestWaitsCostNothing(t *testing.T) {
	t.Parallel()
	const day, short = 86_400, 1e-6
	hours := func() (hours []float64) {
		for i := range 20_000 {
			hours = append(hours, float64(i)*day, float64(i)*day+day/2)
		}
		return hours
	}
	counter := Bucket{Max: 50, Quota: 50, Level: 50, Period: short, Spread: true, Private: true}
	daily := Bucket{Max: 1, Quota: 1, Level: 1, Period: day, Private: true}
	paused, limited := &Member{Jobs: 1, Times: 1}, &Member{Jobs: 3, Times: 1}
	counter.Opens, daily.Opens = []float64{short}, []float64{day}
	m := &Model{Buckets: []Bucket{counter, daily}, Flows: []*Flow{
		{Weight: 1, From: math.Inf(1), Hours: hours(), Members: []*Member{paused}, Uses: []Use{{0, 1}}},
		{Weight: 1, Members: []*Member{limited}, Uses: []Use{{1, 1}}},
	}}
	m.Run(nil)
	if !math.IsInf(paused.At, 1) || math.Abs(limited.At-2*day) > 1 {
		t.Errorf("the paused job goes at %v, the last of one a day at %v", paused.At, limited.At)
	}
	if m.now > 3*day {
		t.Errorf("it went on until %v", m.now)
	}
}

// TestPacesLeaveEachOtherASlot: two lanes that save no permits and do not use all slots
// of a shared limit do not slow each other down to less than every second slot.
func TestPacesLeaveEachOtherASlot(t *testing.T) {
	t.Parallel()
	slots := &exactLimit{interval: 1.0 / 70, burst: 1, fluid: Bucket{Level: 1, Max: 1, Rate: 70}}
	first := &exactLimit{interval: 1.0 / 58, burst: 1, fluid: Bucket{Level: 1, Max: 1, Rate: 58, Private: true}}
	token := &exactLimit{interval: 1.0 / 24, burst: 21, fluid: Bucket{Level: 21, Max: 21, Rate: 24, Private: true}}
	second := &exactLimit{interval: 1.0 / 57, burst: 1, fluid: Bucket{Level: 1, Max: 1, Rate: 57, Private: true}}
	wide := &exactLimit{window: 1, quota: 100, fluid: Bucket{Level: 100, Max: 100, Quota: 100, Period: 1, Private: true}}
	tenants := []*exactTenant{
		{jobs: 560, weight: 1, own: []*exactLimit{token, first}},
		{jobs: 580, weight: 1, own: []*exactLimit{second, wide}},
	}
	one, two := &Member{Jobs: 560, Times: 1}, &Member{Jobs: 580, Times: 1}
	m := &Model{Buckets: []Bucket{slots.fluid, token.fluid, first.fluid, second.fluid, wide.fluid}, Flows: []*Flow{
		{Weight: 1, Members: []*Member{one}, Uses: []Use{{0, 1}, {1, 1}, {2, 1}}},
		{Weight: 1, Members: []*Member{two}, Uses: []Use{{0, 1}, {3, 1}, {4, 1}}},
	}}
	dispatchExactly(tenants, []*exactLimit{slots})
	m.Run(nil)
	for i, one := range []*Member{one, two} {
		if at := tenants[i].at; math.Abs(one.At-at) > 0.05*at {
			t.Errorf("tenant %d is through at %.2f s, the model says %.2f s", i, at, one.At)
		}
	}
}

// TestGuaranteeOfTwoLanes: lanes of a tenant do not get more than its own limit admits, whatever is guaranteed to it.
func TestGuaranteeOfTwoLanes(t *testing.T) {
	m := &Model{Buckets: []Bucket{{Whole: true, Rate: 100, Max: 1}, {Limit: 1, Rate: 6, Max: 2}}}
	var members []*Member
	for _, f := range []Flow{{Weight: 0.5, Part: 0.15}, {Weight: 0.5, Part: 0.15}, {Weight: 99}} {
		members = append(members, &Member{Jobs: 1000, Times: 1})
		f.Members, f.Uses = members[len(members)-1:], []Use{{Bucket: 0, Cost: 1}}
		if f.Part > 0 {
			f.Uses = append(f.Uses, Use{Bucket: 1, Cost: 1})
		}
		m.Flows = append(m.Flows, &f)
	}
	m.Run(nil)
	for i, want := range []float64{3, 3, 94} {
		if got := members[i].Rate; math.Abs(got-want) > 0.1 {
			t.Errorf("lane %d had %v/s at first, want %v", i, got, want)
		}
	}
}

// TestGuarantees: flows get what is guaranteed to them of a shared bucket, or more by their weights; what they cannot
// use, the others get.
func TestGuarantees(t *testing.T) {
	const rate = 100.0
	for name, test := range map[string]struct {
		flows []Flow // with the guarantee Part
		own   float64
		want  []float64
	}{
		"more than its share":   {[]Flow{{Weight: 1, Part: 0.3}, {Weight: 99}}, 0, []float64{30, 70}},
		"less than its share":   {[]Flow{{Weight: 3, Part: 0.3}, {Weight: 1}}, 0, []float64{75, 25}},
		"of two, one by one":    {[]Flow{{Weight: 1, Part: 0.5}, {Weight: 3, Part: 0.2}, {Weight: 8}}, 0, []float64{50, 20, 30}},
		"all":                   {[]Flow{{Weight: 1, Part: 0.6}, {Weight: 1, Part: 0.4}, {Weight: 50}}, 0, []float64{60, 40, 60}},
		"its own limit is less": {[]Flow{{Weight: 1, Part: 0.3}, {Weight: 99}}, 5, []float64{5, 95}},
	} {
		m := &Model{Buckets: []Bucket{{Whole: true, Rate: rate, Max: 1}}}
		var members []*Member
		for i, f := range test.flows {
			members = append(members, &Member{Jobs: 1000, Times: 1})
			f.Members, f.Uses = members[i:], []Use{{Bucket: 0, Cost: 1}}
			if i == 0 && test.own > 0 {
				f.Uses = append(f.Uses, Use{Bucket: 1, Cost: 1})
				m.Buckets = append(m.Buckets, Bucket{Limit: 1, Private: true, Rate: test.own, Max: 2})
			}
			m.Flows = append(m.Flows, &f)
		}
		m.Run(nil)
		for i, want := range test.want {
			if got := members[i].Rate; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: flow %d had %v/s at first, want %v", name, i, got, want)
			}
		}
	}
}

// TestSingleBeforeTheBeginning: permits flow into a bucket only from the time 0, also if it was used up before that.
// Earliest says so at once: a replay asks again at each time that it returns.
func TestSingleBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	const came = -216_000
	windows := Bucket{Level: 2, Max: 2, Quota: 2, Period: 60, Opens: []float64{30}}
	counter := Bucket{Level: 2, Max: 5, Rate: 0.1, Quota: 5, Period: 60, Opens: []float64{30}, Spread: true}
	for name, test := range map[string]struct {
		bucket Bucket
		log    bool
		want   float64
	}{
		"token bucket":    {bucket: Bucket{Level: 2, Max: 2, Rate: 100}, want: 0.01},
		"fixed window":    {bucket: windows, want: 30},
		"sliding counter": {bucket: counter, want: 10},
		"sliding log":     {bucket: windows, log: true, want: came + 60},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSingle(test.bucket, test.log)
			for s.Earliest(came, 1) == came {
				s.Take(came, 1)
			}
			at, looks := float64(came), 0
			for next := s.Earliest(at, 1); next > at; next = s.Earliest(at, 1) {
				if at, looks = next, looks+1; looks == 1000 {
					t.Fatalf("after %d looks it is still %v s", looks, at)
				}
			}
			if math.Abs(at-test.want) > 1e-6 || looks > 2 {
				t.Errorf("it has a permit at %v s, after %d looks; want %v", at, looks, test.want)
			}
		})
	}
}

// TestHas: Has says what Earliest says, also so close to the time that rounding decides.
func TestHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := float64(rapid.IntRange(1, 50).Draw(t, "permits"))
		whole := Bucket{Level: n, Max: n, Rate: rapid.Float64Range(0.001, 1000).Draw(t, "rate")}
		if rapid.Bool().Draw(t, "windows") {
			period := rapid.Float64Range(0.01, 100).Draw(t, "period")
			whole = Bucket{Level: n, Max: n, Quota: n, Period: period, Opens: []float64{period / 2}, Spread: rapid.Bool().Draw(t, "spread")}
		}
		b := whole.Part(rapid.Float64Range(0.01, 1).Draw(t, "part"))
		if whole.Spread {
			b = NewSingle(whole, false)
		}
		now := -1.0
		for range rapid.IntRange(1, 30).Draw(t, "charges") {
			from := b.Earliest(now, 1)
			for _, at := range []float64{now, from - 1e-3, from - 1e-8, math.Nextafter(from, now), from, math.Nextafter(from, math.Inf(1)), from + 1e-8, from + 1} {
				has := b.Earliest(at, 1) <= at
				if got := b.Has(at, 1); got != has || has && at < b.HasNotBefore(1) {
					t.Fatalf("at %v s Has = %v, not before %v; Earliest is %v", at, got, b.HasNotBefore(1), b.Earliest(at, 1))
				}
			}
			now = from + rapid.SampledFrom([]float64{0, 0, 1e-8, 0.1, 10}).Draw(t, "later")
			b.Charge(now, float64(rapid.IntRange(1, 4).Draw(t, "charge")))
		}
	})
}
