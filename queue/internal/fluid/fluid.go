// Package fluid is the model behind forecasts: jobs flow through the limits of their lanes like
// water through pipes.
package fluid

import (
	"cmp"
	"math"
	"slices"
)

// Model is a queue in which jobs flow like water. Each lane gets as much as its limits
// admit. Limits that lanes share are divided among them by weight, and what one lane
// cannot use goes to the others, as dispatch.lua does job by job. The model steps from
// one change to the next: a lane or a bucket runs empty, or a window opens. Times are
// seconds from now.
type Model struct {
	Buckets []Bucket
	Flows   []*Flow
	now     float64
	Allowed float64 // jobs per second that flow at first, within soon

	open   []*Flow   // flows that may go, in this step
	rise   float64   // the least by which a burst raises them before it looks again
	shared []*Bucket // buckets that are not private
}

// Bucket is the state of a limit's bucket. A private bucket, which only one lane uses,
// stands for the equal buckets of all members of its flow.
type Bucket struct {
	Limit   int // index of the limit in the queue
	Private bool
	Whole   bool // all lanes use it, so that tenants can have guaranteed parts of it

	Level float64 // permits in the bucket, at most Max; below 0: owed
	Max   float64
	Rate  float64 // permits per second that flow in

	// For limits that count by windows:
	Quota  float64   // permits in a window; 0: no windows
	Period float64   // length of a window
	Opens  []float64 // when the next windows open; after these, one every Period
	Spread bool      // a sliding counter: used permits come back over the next window
	Used   float64   // permits used in this window
	Given  float64   // permits already given of the window that opens next
	opened int

	in, out     float64 // permits per second, in this step
	avail, wide float64 // in one fill
	low         float64 // in one round of a fill: how far the flows that use the bucket can rise
	held        bool
	starved     bool // slowed down by a narrower shared limit
	single      bool // permits are taken one by one: see Single
}

// Flow is a group of equal lanes: of equal weight, under equal limits, in the same state.
// Its members differ only in how many jobs they have.
type Flow struct {
	Members []*Member // by jobs, ascending
	Weight  float64   // of one member, divided by the cost of a job
	Part    float64   // of the rate of each whole bucket, which is guaranteed to one member
	Uses    []Use
	shared  []int     // indexes of the uses whose buckets are shared
	From    float64   // the flow is closed until then, by a pause
	Hours   []float64 // when send windows open and close, alternating; nil: always open

	done   int     // members that have finished
	n      float64 // number of the other lanes
	served float64 // jobs of each member that went
	rate   float64 // jobs per second of each member
	by     int     // index of the use that holds it; -1: none
	sure   float64 // rate that its guarantee gives it, in one fill; 0: its weight gives it as much
	heldBy []float64
	low    float64
	own    float64 // how far it can rise by itself, in one fill
	ownBy  int     // index of the use that stops it there; -1: none
	frozen bool
}

// Member is a lane, several equal lanes, or a place in a lane that is only watched.
type Member struct {
	Jobs  float64
	Times float64 // how many lanes it stands for; 0: it is only watched
	At    float64 // when its last job goes; +Inf: not known
	Limit int     // the limit that held it longest; -1: none did
	Rate  float64 // jobs per second, when it first began to flow
}

// Use is a bucket that each job of a flow takes permits from.
type Use struct {
	Bucket int
	Cost   float64
}

const (
	// ExactOpenings is how many windows of a bucket are modeled one by one while permits
	// are used. After these, their average is as good.
	ExactOpenings = 48

	// exactFlows is up to how many flows the model steps exactly from change to change.
	// With more flows, it takes changes together that are close to each other.
	exactFlows = 32
	stepPart   = 1.0 / 32 // the step as a part of the time that has passed

	maxSteps = 20_000
	maxRate  = 1e9
)

// Run lets the queue flow until the watched member has finished; if it is nil, until all
// have.
func (m *Model) Run(watched *Member) {
	for _, f := range m.Flows {
		slices.SortStableFunc(f.Members, func(a, b *Member) int { return cmp.Compare(a.Jobs, b.Jobs) })
		for _, one := range f.Members {
			f.n += one.Times
			one.At, one.Limit = math.Inf(1), -1
		}
		f.heldBy, f.by = make([]float64, len(f.Uses)), -1
		for i, u := range f.Uses {
			if !m.Buckets[u.Bucket].Private {
				f.shared = append(f.shared, i)
			}
		}
	}
	for i := range m.Buckets {
		b := &m.Buckets[i]
		if b.begin(); !b.Private {
			m.shared = append(m.shared, b)
		}
	}
	for range maxSteps {
		m.burst()
		if len(m.Flows) == 0 || watched != nil && !math.IsInf(watched.At, 1) {
			return
		}
		m.flow()
		for _, f := range m.open {
			for _, one := range f.Members[f.done:] {
				if one.Rate > 0 {
					break
				}
				if one.Rate = f.rate; m.now <= soon {
					m.Allowed += f.rate * one.Times
				}
			}
		}
		step := m.next()
		if math.IsInf(step, 1) {
			m.settleHeld()
			return
		}
		m.pass(step)
	}
}

// burst gives out the permits that are available at this moment. All flows stop when a
// member of one has finished; otherwise the others would take what its flow gets
// afterwards.
func (m *Model) burst() {
	for _, f := range m.Flows {
		f.rate = 0
	}
	for raised := 0.0; ; {
		m.open = m.open[:0]
		m.Flows = slices.DeleteFunc(m.Flows, func(f *Flow) bool {
			f.retire(m, 0)
			return f.done == len(f.Members)
		})
		for _, f := range m.Flows {
			if f.isOpen(m.now) {
				m.open = append(m.open, f)
			}
		}
		if m.rise = 0; len(m.Flows) > exactFlows {
			m.rise = raised * stepPart
		}
		m.fill(true)
		level := math.Inf(1)
		for _, f := range m.open {
			if f.by < 0 {
				level = min(level, max(f.rate/f.Weight, m.rise))
			}
		}
		for _, f := range m.open {
			if f.rate = min(f.rate, level*f.Weight); f.rate > 0 {
				f.served += f.rate
				m.take(f, f.rate)
			}
		}
		if raised += level; math.IsInf(level, 1) {
			return
		}
	}
}

// soon is for how many seconds slots that were given ahead keep flowing lanes closed.
const soon = 1.0

const Tiny = 1e-9

func (f *Flow) isOpen(now float64) bool {
	for len(f.Hours) > 0 && f.Hours[1] <= now+Tiny {
		f.Hours = f.Hours[2:]
	}
	return f.From <= now && (len(f.Hours) == 0 || f.Hours[0] <= now+Tiny)
}

// left returns how many jobs the smallest member has left.
func (f *Flow) left() float64 { return f.Members[f.done].Jobs - f.served }

// retire ends the members that have no jobs left. step is the time that these took.
func (f *Flow) retire(m *Model, step float64) {
	for f.done < len(f.Members) && f.left() <= Tiny*max(1, f.served) {
		one := f.Members[f.done]
		one.At = m.now
		if step > 0 && f.rate > 0 {
			one.At = min(m.now, m.now+f.left()/f.rate) // it may have ended within the step
		}
		one.Limit = f.longest(m)
		f.n -= one.Times
		f.done++
	}
}

// longest returns the limit that held the flow most of the time so far; -1: none.
func (f *Flow) longest(m *Model) int {
	limit, most := -1, 0.0
	for i, time := range f.heldBy {
		if time > most {
			limit, most = m.Buckets[f.Uses[i].Bucket].Limit, time
		}
	}
	return limit
}

// heldNow returns the use that holds the flow in this step; -1: none.
func (f *Flow) heldNow(m *Model) int {
	if f.by < 0 || !m.Buckets[f.Uses[f.by].Bucket].starved {
		return f.by
	}
	if full := slices.IndexFunc(f.Uses, func(u Use) bool { return m.Buckets[u.Bucket].isFull() }); full >= 0 {
		return full
	}
	return f.by
}

// settleHeld sets the limits that hold the lanes that never end.
func (m *Model) settleHeld() {
	for _, f := range m.Flows {
		if f.by >= 0 {
			f.heldBy[f.by] = math.MaxFloat64
		}
		for _, one := range f.Members[f.done:] {
			one.Limit = f.longest(m)
		}
	}
}

func (m *Model) take(f *Flow, jobs float64) {
	for _, u := range f.Uses {
		b := &m.Buckets[u.Bucket]
		permits := jobs * u.Cost * b.lanes(f)
		b.Level -= permits
		b.Used += permits
	}
}

// lanes returns how many of the flow's lanes use one bucket.
func (b *Bucket) lanes(f *Flow) float64 {
	if b.Private {
		return 1
	}
	return max(f.n, 0)
}

func (b *Bucket) empty() bool { return b.Level <= Tiny*max(1, b.Max) }

// fill shares what the buckets hold now (burst), or what flows into those that are empty, among the
// open flows. It sets rate to the amount and by to the use that stops the flow there.
func (m *Model) fill(burst bool) {
	for _, f := range m.open {
		f.sure = 0
	}
	for m.raise(burst); !burst && m.guarantee(); {
		m.raise(false) // the others have less now, and may fall below guarantees of their own
	}
}

// guarantee finds flows that have less than what is guaranteed to them.
func (m *Model) guarantee() (found bool) {
	for _, f := range m.open {
		if f.Part == 0 || f.sure > 0 || f.by < 0 || !m.Buckets[f.Uses[f.by].Bucket].Whole {
			continue
		}
		sure := math.Inf(1)
		for _, u := range f.Uses {
			if b := &m.Buckets[u.Bucket]; b.Whole && b.Quota == 0 && u.Cost > 0 {
				sure = min(sure, f.Part*b.in/u.Cost)
			}
		}
		if f.rate < sure*(1-Tiny) && !math.IsInf(sure, 1) {
			f.sure, found = sure, true
		}
	}
	return found
}

// raise raises the rates of the open flows together, each by its weight, and stops a flow when a
// bucket that it uses has no more. What is guaranteed to flows comes first.
func (m *Model) raise(burst bool) {
	for i := range m.Buckets {
		b := &m.Buckets[i]
		b.wide, b.out = 0, 0
		switch {
		case burst:
			b.avail = max(b.Level, 0)
			if b.empty() {
				b.avail = 0
			}
		case !b.empty():
			b.avail = math.Inf(1)
		case b.Level < -Tiny*max(1, b.Max):
			b.avail = 0
		default:
			b.avail = b.in
		}
	}
	left := len(m.open)
	for _, f := range m.open {
		f.frozen, f.rate, f.own, f.ownBy = false, 0, math.Inf(1), -1
		if burst {
			f.own = min(max(f.left(), m.rise*f.Weight), f.Members[len(f.Members)-1].Jobs-f.served) / f.Weight
		}
		for i, u := range f.Uses {
			b := &m.Buckets[u.Bucket]
			if wide := f.Weight * u.Cost * b.lanes(f); !b.Private {
				b.wide += wide
			} else if low := b.avail / wide; u.Cost > 0 && low < f.own {
				f.own, f.ownBy = low, i
			}
		}
	}
	for _, f := range m.open {
		if f.sure > 0 {
			f.frozen, f.rate = true, min(f.sure, f.own*f.Weight, maxRate)
			left--
			for _, i := range f.shared { // its own limits hold it, with all of its lanes
				if b := &m.Buckets[f.Uses[i].Bucket]; !b.Whole && b.wide > 0 {
					f.rate = min(f.rate, b.avail/b.wide*f.Weight)
				}
			}
		}
	}
	for _, f := range m.open {
		if f.sure > 0 {
			for _, i := range f.shared {
				u := f.Uses[i]
				b := &m.Buckets[u.Bucket]
				permits := u.Cost * b.lanes(f)
				b.wide, b.out = max(0, b.wide-f.Weight*permits), b.out+f.rate*permits
			}
		}
	}
	for left > 0 {
		for _, b := range m.shared {
			b.low, b.held = b.lowest(), false
		}
		for _, f := range m.open {
			if f.frozen {
				continue
			}
			f.low, f.by = f.own, f.ownBy
			for _, i := range f.shared {
				u := f.Uses[i]
				// Of two that stop it at the same time, the first in the order of the
				// limits counts.
				if low := m.Buckets[u.Bucket].low; u.Cost > 0 && (low < f.low || low == f.low && i < f.by) {
					f.low, f.by = low, i
				}
			}
		}
		// A shared bucket decides about its flows once none of them stops earlier.
		for _, f := range m.open {
			if f.frozen {
				continue
			}
			for _, i := range f.shared {
				b := &m.Buckets[f.Uses[i].Bucket]
				b.held = b.held || f.low < b.low
			}
		}
		before := left
		for _, f := range m.open {
			if f.frozen || f.by >= 0 && m.Buckets[f.Uses[f.by].Bucket].held {
				continue
			}
			f.frozen, f.rate = true, min(f.low*f.Weight, maxRate)
			left--
		}
		if left == before {
			return // cannot happen: the lowest flow of all is never held up
		}
		// Summed again rather than subtracted, so that no rounding error is left.
		for _, b := range m.shared {
			b.wide, b.out = 0, 0
		}
		for _, f := range m.open {
			for _, i := range f.shared {
				u := f.Uses[i]
				b := &m.Buckets[u.Bucket]
				if f.frozen {
					b.out += f.rate * u.Cost * b.lanes(f)
				} else {
					b.wide += f.Weight * u.Cost * b.lanes(f)
				}
			}
		}
	}
	for _, f := range m.open {
		for _, u := range f.Uses {
			if b := &m.Buckets[u.Bucket]; b.Private {
				b.out = f.rate * u.Cost
			}
		}
	}
}

// lowest returns how far the flows that use the bucket can rise.
func (b *Bucket) lowest() float64 {
	if math.IsInf(b.avail, 1) || b.wide <= 0 {
		return math.Inf(1)
	}
	return max(b.avail-b.out, 0) / b.wide
}

// flow sets the rates of this step.
func (m *Model) flow() {
	m.level()
	m.fill(false)
	if m.slow(true) {
		m.fill(false)
		if slices.ContainsFunc(m.shared, (*Bucket).isFull) {
			return
		}
	}
	// The slowed lanes left room: from time to time they wait for calls of others.
	m.level()
	m.fill(false)
	if m.slow(false) {
		m.fill(false)
	}
}

// level sets the inflow of the buckets to their full rates.
func (m *Model) level() {
	for i := range m.Buckets {
		b := &m.Buckets[i]
		if b.in, b.starved = b.Rate, false; b.Spread && b.unused() <= Tiny {
			b.in = 0
		}
	}
}

// slow slows down lanes whose own limit saves no permits while they wait for a slot of a
// shared limit. It reports whether there are any.
func (m *Model) slow(grid bool) (slowed bool) {
	for _, f := range m.open {
		slot, others := 0.0, 0.0
		for _, u := range f.Uses {
			b := &m.Buckets[u.Bucket]
			if b.Private || b.Quota > 0 && !b.Spread || b.Rate == 0 || grid && !b.isFull() || !grid && b.Max >= 2*u.Cost && !b.isFull() {
				continue
			}
			if d := u.Cost / b.Rate; d > slot {
				slot, others = d, max(b.out/u.Cost-f.rate, 0)
			}
		}
		if slot == 0 {
			continue
		}
		for _, u := range f.Uses {
			own := &m.Buckets[u.Bucket]
			if !own.Private || own.Quota > 0 || own.Rate == 0 || own.Max >= 2*u.Cost {
				continue
			}
			interval := u.Cost / own.Rate
			own.starved = grid && interval < slot
			part := interval / onGrid(interval, slot)
			if !grid {
				part = max(part, 1-others*lostTo(interval, slot)) // it gets at least a slot of the grid
			}
			own.in, slowed = own.Rate*part, true
		}
	}
	return slowed
}

// onGrid returns the time between a lane's calls if all slots of a shared limit are used:
// a lane of 11/s under a shared 100/s uses each tenth slot, so it calls every 100 ms and
// not every 91.
func onGrid(interval, slot float64) float64 {
	return max(math.Ceil(interval/slot-1.0/256), 1) * slot
}

// lostTo returns how long, on average, a lane is delayed by a call of another lane that
// comes at a random moment between two of its own.
func lostTo(interval, slot float64) float64 {
	if interval <= slot {
		return slot
	}
	// A call of the other at u takes the slot until max(u, slot) + slot.
	early := min(slot, interval)
	lost := early * max(0, 2*slot-interval)
	from := max(slot, interval-slot)
	lost += (interval - from) * (max(0, from+slot-interval) + slot) / 2
	return lost / interval
}

// isFull reports whether the bucket is of a shared limit by rate whose slots are all
// used.
func (b *Bucket) isFull() bool {
	return !b.Private && (b.Quota == 0 || b.Spread) && b.empty() && b.out > 0 && b.out >= b.in*(1-Tiny)
}

// next returns how long nothing changes.
func (m *Model) next() float64 {
	step := math.Inf(1)
	sooner := func(d float64) {
		if d < step {
			step = max(d, 0)
		}
	}
	for i := range m.Buckets {
		b := &m.Buckets[i]
		switch {
		case !b.empty() && b.out > b.in:
			sooner(b.Level / (b.out - b.in))
		case b.Level < 0 && b.in > 0 && b.Level < -Tiny*max(1, b.Max):
			sooner(-b.Level / b.in)
		}
		if b.Spread && b.out > 0 {
			sooner(b.unused() / b.out)
		}
		if len(b.Opens) > 0 && !b.idle() {
			sooner(b.Opens[0] - m.now)
		}
	}
	for _, f := range m.Flows {
		if f.From > m.now {
			sooner(f.From - m.now) // send windows do not matter until then
			continue
		}
		for _, change := range f.Hours[:min(2, len(f.Hours))] {
			if change > m.now+Tiny {
				sooner(change - m.now)
			}
		}
		if f.rate > 0 {
			sooner(f.left() / f.rate)
		}
	}
	if len(m.Flows) > exactFlows && !math.IsInf(step, 1) {
		step = max(step, m.now*stepPart)
	}
	return step
}

// pass advances the time by step.
func (m *Model) pass(step float64) {
	m.now += step
	for i := range m.Buckets {
		m.Buckets[i].pass(step, m.now)
	}
	for _, f := range m.open {
		f.served += f.rate * step
		if by := f.heldNow(m); by >= 0 {
			f.heldBy[by] += step
		}
		f.retire(m, step)
	}
}

// pass lets a bucket flow for a step, until now.
func (b *Bucket) pass(step, now float64) {
	b.Level = min(b.Level+(b.in-b.out)*step, b.Max)
	if b.Used += b.out * step; b.Spread {
		b.Level = min(b.Level, b.unused())
	}
	for len(b.Opens) > 0 && b.Opens[0] <= now+Tiny {
		b.openWindow(now)
	}
}

func (b *Bucket) begin() {
	if b.Quota > 0 && len(b.Opens) == 0 {
		b.Opens = []float64{b.Period}
	}
	if b.Spread {
		weighed := b.Rate * b.Opens[0]
		b.Level += math.Floor(weighed+Tiny) - headStart(weighed)
	}
}

// unused returns how many permits a window has left at most.
func (b *Bucket) unused() float64 { return b.Quota - b.Used }

// idle reports whether the bucket is full and not used, so that its next window changes
// nothing.
func (b *Bucket) idle() bool { return b.Used == 0 && b.out == 0 && b.Level >= b.Quota }

// headStart returns how much of the weighed use of the last window counts. A permit that
// has partly passed does not count any more, because the count is rounded down: a job
// goes as soon as the one before it has passed.
func headStart(weighed float64) float64 { return max(weighed-1, 0) }

// openWindow opens the next window. The windows of an idle bucket are all equal until
// now, and are skipped: a wait of a day may contain millions of them.
func (b *Bucket) openWindow(now float64) {
	next := b.Opens[0] + b.Period
	if b.Opens = b.Opens[1:]; len(b.Opens) == 0 {
		if passed := math.Floor((now - next) / b.Period); passed > 0 && b.idle() && b.Given == 0 {
			next += passed * b.Period
		}
		b.Opens = append(b.Opens, next)
	}
	used, owed := b.Used > 0, min(b.Level, 0)
	b.Level = b.Quota + owed
	if b.Spread {
		b.Level, b.Rate = b.Quota-headStart(b.Used), b.Used/b.Period
	}
	b.Level -= b.Given
	b.Used, b.Given = b.Given, 0
	if used {
		b.opened++
	}
	if b.opened == ExactOpenings && !b.single {
		b.Opens, b.Rate = nil, b.Quota/b.Period
		if !b.Spread {
			b.Level -= b.Quota / 2
		}
		b.Spread = false
	}
}

// Admits returns in how many seconds the bucket has n permits.
func (b *Bucket) Admits(n float64) float64 {
	switch n = min(n, b.Max); {
	case b.Level >= n:
		return 0
	case b.Quota > 0 && len(b.Opens) > 0:
		return b.Opens[0]
	case b.Rate > 0:
		return (n - b.Level) / b.Rate
	}
	return math.Inf(1)
}
