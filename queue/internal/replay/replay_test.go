package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/queue/internal/fluid"
)

// exact is a limit, call by call, as limits.lua has it. Times are µs.
type exact struct {
	algorithm string
	n         int64   // permits of a burst or a window
	every     int64   // µs a permit, or of a window
	tat       int64   // of buckets
	taken     []int64 // moments, ascending
}

func (e *exact) admits(t int64) bool {
	count := func(from, to int64) (n int64) { // from ≤ moment < to
		for _, at := range e.taken {
			if at >= from && at < to {
				n++
			}
		}
		return n
	}
	if len(e.taken) > 0 && t < e.taken[len(e.taken)-1] {
		return false // given to others
	}
	switch e.algorithm {
	case "tb", "lb":
		return t >= e.tat-(e.n-1)*e.every
	case "sl":
		return count(t-e.every+1, t+1) < e.n
	}
	begin := t - t%e.every
	used := count(begin, t+1)
	if e.algorithm == "sc" {
		// A µs earlier than limits.lua, at the moment at which a permit has passed.
		used += max(0, count(begin-e.every, begin)*(e.every-t%e.every)-1) / e.every
	}
	return used < e.n
}

// next returns the first moment after t at which the answer of admits may change.
func (e *exact) next(t int64) int64 {
	next := int64(math.MaxInt64)
	at := func(moment int64) {
		if moment > t {
			next = min(next, moment)
		}
	}
	at(e.tat - (e.n-1)*e.every)
	if len(e.taken) > 0 {
		at(e.taken[len(e.taken)-1])
	}
	if e.algorithm == "tb" || e.algorithm == "lb" {
		return next
	}
	begin := t - t%e.every
	at(begin + e.every)
	used := int64(0)
	for _, moment := range e.taken {
		at(moment + e.every)
		if moment >= begin-e.every && moment < begin {
			used++
		}
	}
	for n := int64(1); n <= used; n++ { // used × what is left / every ≤ n
		at(begin + e.every - n*e.every/used)
	}
	return next
}

func (e *exact) take(t int64) {
	e.taken = append(e.taken, t)
	e.tat = max(e.tat, t) + e.every
}

func (e *exact) single() *fluid.Single {
	every := float64(e.every) / 1e6
	b := fluid.Bucket{Level: float64(e.n), Max: float64(e.n)}
	if e.algorithm == "tb" || e.algorithm == "lb" {
		b.Rate = 1 / every
	} else {
		b.Quota, b.Period, b.Opens, b.Spread = b.Max, every, []float64{every}, e.algorithm == "sc"
	}
	return fluid.NewSingle(b, e.algorithm == "sl")
}

type exactLane struct {
	weight float64
	own    *exact // nil: none
	shared []int
	sure   []*exact // what is guaranteed to it of them; nil: nothing
	jobs   []int64
	gone   []int64
	finish float64
	start  float64 // of its next job
	ready  bool    // its own limit admits its next job, which has come
}

// part returns one of so many parts of a limit, as that of a guarantee.
func (e *exact) part(of int64) *exact {
	if e.algorithm == "tb" || e.algorithm == "lb" {
		return &exact{algorithm: "tb", n: max(2, e.n/of), every: of * e.every}
	}
	return &exact{algorithm: "fw", n: max(1, e.n/of), every: e.every}
}

func (l *exactLane) owed(t int64) bool {
	return len(l.sure) > 0 && !slices.ContainsFunc(l.sure, func(e *exact) bool { return !e.admits(t) })
}

// run lets the jobs of lanes go, at each moment at which one may. Each time that jobs come, slots are given until others
// come, to those that are there, and so long ahead.
func run(lanes []*exactLane, shared []*exact, ahead int64) {
	virtual, come := 0.0, []int64{math.MaxInt64 / 2}
	for _, l := range lanes {
		come = append(come, l.jobs...)
	}
	slices.Sort(come)
	come = slices.Compact(come)
	for i, at := range come[:len(come)-1] {
		virtual = give(lanes, shared, virtual, at, come[i+1]+ahead)
	}
}

// give gives the slots from a time on and before an end to jobs that have come by then.
func give(lanes []*exactLane, shared []*exact, virtual float64, from, end int64) float64 {
	left := func(l *exactLane) bool { return len(l.gone) < len(l.jobs) && l.jobs[len(l.gone)] <= from }
	for t, next := from, int64(0); t < end && slices.ContainsFunc(lanes, left); t = next {
		for {
			var first *exactLane
			for _, l := range lanes {
				if !l.ready && left(l) && (l.own == nil || l.own.admits(t)) {
					l.ready, l.start = true, max(virtual-headStart/l.weight, l.finish)
				}
				admitted := l.ready
				for _, i := range l.shared {
					admitted = admitted && shared[i].admits(t)
				}
				if !admitted {
					continue
				}
				if first == nil || l.owed(t) && !first.owed(t) || l.owed(t) == first.owed(t) && l.start < first.start {
					first = l
				}
			}
			if first == nil {
				break
			}
			if first.own != nil {
				first.own.take(t)
			}
			for _, i := range first.shared {
				shared[i].take(t)
			}
			first.gone = append(first.gone, t)
			first.ready = false
			if first.finish = first.start + 1/first.weight; first.owed(t) {
				atOnce := int64(0)
				for _, e := range first.sure {
					atOnce = max(atOnce, e.n)
				}
				first.finish = max(first.start, min(first.finish, virtual+(headStart+float64(atOnce))/first.weight))
			} else {
				virtual = max(virtual, first.start)
			}
			for _, e := range first.sure {
				if e.admits(t) {
					e.take(t)
				}
			}
		}
		next = math.MaxInt64
		for _, e := range shared {
			next = min(next, e.next(t))
		}
		for _, l := range lanes {
			if !left(l) {
				continue
			}
			if l.own != nil {
				next = min(next, l.own.next(t))
			}
			for _, e := range l.sure {
				next = min(next, e.next(t))
			}
		}
	}
	return virtual
}

// TestReplayIsExact: under any limits jobs go when they go if each moment is looked at.
func TestReplayIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const step = 1000
		limit := func(name string) *exact {
			e := &exact{algorithm: rapid.SampledFrom([]string{"tb", "lb", "fw", "sc", "sl"}).Draw(t, name), n: 1}
			if e.algorithm != "lb" {
				e.n = rapid.Int64Range(1, 6).Draw(t, "n")
			}
			if e.every = step * rapid.Int64Range(1, 20).Draw(t, "every"); e.algorithm != "tb" && e.algorithm != "lb" {
				e.every *= 5
			}
			return e
		}
		var shared []*exact
		for i := range rapid.IntRange(0, 2).Draw(t, "shared") {
			shared = append(shared, limit(fmt.Sprint("shared ", i)))
		}
		ahead := step * rapid.SampledFrom([]int64{0, 0, 4, 20}).Draw(t, "ahead")
		q := &Queue{Ahead: float64(ahead) / 1e6}
		var singles []*Bucket
		for i, e := range shared {
			singles = append(singles, &Bucket{Single: e.single(), Limit: i, Shared: true})
		}
		var lanes []*exactLane
		for i := range rapid.IntRange(1, 4).Draw(t, "lanes") {
			l := &exactLane{weight: float64(rapid.IntRange(1, 3).Draw(t, "weight"))}
			lane := &Lane{Tenant: &Tenant{Weight: l.weight}, Costs: [][]float64{nil}}
			if rapid.Bool().Draw(t, "own") {
				l.own = limit(fmt.Sprint("own ", i))
				lane.Uses = append(lane.Uses, &Bucket{Single: l.own.single()})
			}
			for j := range shared {
				if len(shared) == 1 || rapid.Bool().Draw(t, "uses") {
					l.shared, lane.Uses = append(l.shared, j), append(lane.Uses, singles[j])
				}
			}
			if of := rapid.SampledFrom([]int64{0, 0, 2, 3, 5}).Draw(t, "guarantee"); of > 0 {
				if l.own != nil {
					lane.Sure = append(lane.Sure, nil)
				}
				for _, j := range l.shared {
					l.sure = append(l.sure, shared[j].part(of))
					part := shared[j].single().Part(1 / float64(of))
					lane.Sure, lane.Tenant.AtOnce = append(lane.Sure, part), max(lane.Tenant.AtOnce, part.Max)
				}
			}
			for range len(lane.Uses) + 1 {
				lane.Costs[0] = append(lane.Costs[0], 1)
			}
			at := int64(0)
			for range rapid.IntRange(1, 15).Draw(t, "jobs") {
				at += step * rapid.Int64Range(0, 30).Draw(t, "gap")
				l.jobs = append(l.jobs, at)
				lane.Jobs = append(lane.Jobs, Job{At: float64(at) / 1e6})
			}
			lanes, q.Lanes = append(lanes, l), append(q.Lanes, lane)
			if l.own != nil {
				q.Buckets = append(q.Buckets, lane.Uses[0])
			}
		}
		q.Buckets = append(q.Buckets, singles...)
		run(lanes, shared, ahead)
		if err := q.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, l := range lanes {
			for j, want := range l.gone {
				if got := q.Lanes[i].Jobs[j].Gone * 1e6; math.Abs(got-float64(want)) > 2 {
					t.Fatalf("job %d of lane %d, which came at %d, went at %.0f; want %d\nlanes: %v", j, i, l.jobs[j], got, want, describe(lanes, shared))
				}
			}
		}
	})
}

func describe(lanes []*exactLane, shared []*exact) (text string) {
	for _, e := range shared {
		text += fmt.Sprintf("\nshared %s %d every %d", e.algorithm, e.n, e.every)
	}
	for _, l := range lanes {
		text += fmt.Sprintf("\nweight %v, shared %v, jobs %v, gone %v", l.weight, l.shared, l.jobs, l.gone)
		for _, e := range l.sure {
			text += fmt.Sprintf(", guarantee %s %d every %d", e.algorithm, e.n, e.every)
		}
		if l.own != nil {
			text += fmt.Sprintf(", own %s %d every %d", l.own.algorithm, l.own.n, l.own.every)
		}
	}
	return text
}

// TestLargeJobsAreNotOvertaken: a job that waits for many permits gets them before later ones get any.
func TestLargeJobsAreNotOvertaken(t *testing.T) {
	t.Parallel()
	shared := &Bucket{Single: fluid.NewSingle(fluid.Bucket{Level: 3, Max: 3, Rate: 1}, false), Shared: true}
	lane := func(cost float64, at ...float64) *Lane {
		l := &Lane{Tenant: &Tenant{Weight: 1}, Uses: []*Bucket{shared}, Costs: [][]float64{{cost, cost}}}
		for _, t := range at {
			l.Jobs = append(l.Jobs, Job{At: t})
		}
		return l
	}
	q := &Queue{Buckets: []*Bucket{shared}, Lanes: []*Lane{lane(3, 0), lane(3, 0), lane(1, 1.5, 2.5)}}
	if err := q.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gone []float64
	for _, l := range q.Lanes {
		for _, job := range l.Jobs {
			gone = append(gone, math.Round(job.Gone*1e6)/1e6)
		}
	}
	if !slices.Equal(gone, []float64{0, 3, 4, 5}) {
		t.Errorf("they went at %v s", gone)
	}
}

// TestJobsBeforeTheBeginning: the times of a replay begin when the first call left, before which jobs have come.
func TestJobsBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	bucket := func(shared bool) *Bucket {
		return &Bucket{Single: fluid.NewSingle(fluid.Bucket{Level: 1, Max: 1, Rate: 10}, false), Shared: shared}
	}
	shared := bucket(true)
	q := &Queue{Buckets: []*Bucket{shared}, Ahead: 0.15}
	for range 2 {
		own := bucket(false)
		q.Buckets = append(q.Buckets, own)
		q.Lanes = append(q.Lanes, &Lane{Tenant: &Tenant{Weight: 1}, Uses: []*Bucket{own, shared}, Costs: [][]float64{{1, 1, 1}}, Jobs: []Job{{At: -0.05}}})
	}
	if err := q.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second := q.Lanes[0], q.Lanes[1]
	if first.Jobs[0].Gone != -0.05 || first.Held[0] > 0 || second.Held[0] > 0 || second.Held[1] < 0.1 {
		t.Errorf("the first went at %v, held %v; the second at %v, held %v", first.Jobs[0].Gone, first.Held, second.Jobs[0].Gone, second.Held)
	}
}

// TestJobsLongBeforeTheBeginning: jobs that came hours before the times of a replay begin wait for that at no cost.
func TestJobsLongBeforeTheBeginning(t *testing.T) {
	t.Parallel()
	const jobs = 1000
	shared := &Bucket{Single: fluid.NewSingle(fluid.Bucket{Level: 1, Max: 1, Rate: 100}, false), Shared: true}
	q := &Queue{Buckets: []*Bucket{shared}}
	for range 2 {
		own := &Bucket{Single: fluid.NewSingle(fluid.Bucket{Level: 1, Max: 1, Rate: 100}, false)}
		l := &Lane{Tenant: &Tenant{Weight: 1}, Uses: []*Bucket{own, shared}, Costs: [][]float64{{1, 1, 1}}}
		for range jobs / 2 {
			l.Jobs = append(l.Jobs, Job{At: -216_000})
		}
		q.Buckets, q.Lanes = append(q.Buckets, own), append(q.Lanes, l)
	}
	if err := q.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := max(q.Lanes[0].Jobs[jobs/2-1].Gone, q.Lanes[1].Jobs[jobs/2-1].Gone)
	if want := (jobs - 1) / 100.0; math.Abs(last-want) > 1e-3 || q.looks > 10*jobs {
		t.Errorf("the last went at %v s, after %d looks; want %v", last, q.looks, want)
	}
}

// gone is the context of a request that has gone by the second time that somebody asks.
type gone struct {
	context.Context
	asked int
}

func (g *gone) Err() error {
	if g.asked++; g.asked > 1 {
		return context.Canceled
	}
	return nil
}

// TestRunStops: a replay that nobody waits for any more stops, both between its jobs and among those that go at once.
func TestRunStops(t *testing.T) {
	t.Parallel()
	for name, apart := range map[string]float64{"one by one": 1, "at once": 0} {
		l := &Lane{Tenant: &Tenant{Weight: 1}, Costs: [][]float64{{1}}}
		for i := range 100_000 {
			l.Jobs = append(l.Jobs, Job{At: float64(i) * apart})
		}
		q := &Queue{Lanes: []*Lane{l}}
		if err := q.Run(&gone{Context: t.Context()}); !errors.Is(err, context.Canceled) || q.looks > 10_000 {
			t.Errorf("%s: %v after %d looks", name, err, q.looks)
		}
	}
}

// BenchmarkMillion: a million jobs take about a second, also if many tenants with guarantees wait all the time.
func BenchmarkMillion(b *testing.B) {
	const jobs, day = 1_000_000, 86_400.0
	for name, test := range map[string]struct {
		tenants   int
		rate      float64 // of the limit that they share
		guarantee float64 // the part of it that each of them has
	}{
		"10000 tenants":                {tenants: 10_000, rate: 20},
		"100 tenants with guarantees":  {tenants: 100, rate: 10, guarantee: 0.008},
		"1000 tenants with guarantees": {tenants: 1000, rate: 10, guarantee: 0.0008},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				limit := fluid.Bucket{Level: 20, Max: 20, Rate: test.rate}
				shared := &Bucket{Single: fluid.NewSingle(limit, false), Shared: true}
				q := &Queue{Buckets: []*Bucket{shared}}
				each := jobs / test.tenants
				for i := range test.tenants {
					own := &Bucket{Single: fluid.NewSingle(fluid.Bucket{Level: 5, Max: 5, Rate: 100 / float64(test.tenants)}, false)}
					l := &Lane{Tenant: &Tenant{Weight: 1}, Uses: []*Bucket{own, shared}, Costs: [][]float64{{1, 1, 1}}}
					if test.guarantee > 0 {
						part := limit.Part(test.guarantee)
						l.Sure, l.Tenant.AtOnce = []*fluid.Single{nil, part}, part.Max
					}
					for j := range each {
						l.Jobs = append(l.Jobs, Job{At: float64((i*7919+j*int(day*1000)/each)%int(day*1000)) / 1000})
					}
					slices.SortFunc(l.Jobs, func(a, b Job) int { return cmp.Compare(a.At, b.At) })
					q.Buckets, q.Lanes = append(q.Buckets, own), append(q.Lanes, l)
				}
				if err := q.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
