// Package fluid is the model behind forecasts: jobs flow through the limits of their lanes like
// water through pipes.
package fluid

import (
	"cmp"
	"math"
	"slices"
)

// Model is a model of a queue in which jobs flow like water: every lane gives as
// much as its limits let through, and limits that lanes share are divided among
// them by weight, what one cannot use going to the others, as dispatch.lua does
// job by job. It steps from one change to the next: a lane runs dry, a bucket does,
// a window opens. Times are seconds from now.
type Model struct {
	Buckets []Bucket
	Flows   []*Flow
	now     float64
	Allowed float64 // jobs a second that flow at first, within soon

	open   []*Flow   // those that may go, in this step
	rise   float64   // how far a burst raises them at least before it looks again
	shared []*Bucket // those that are not private
}

// Bucket is the state of a limit's bucket. A bucket that only one lane uses
// stands for those of all members of its flow.
type Bucket struct {
	Limit   int // which of the queue's limits
	Private bool

	Level float64 // permits there are, at most `most`; below 0: owed
	Max   float64
	Rate  float64 // permits a second that flow in

	// Of limits that count by windows:
	Quota  float64   // permits of a window; 0: no windows
	Period float64   // its length
	Opens  []float64 // when the next ones open; beyond them, period after period
	Spread bool      // a sliding counter: what was used comes back over the next window
	Used   float64   // in this window
	Given  float64   // ahead, of the window that opens next
	opened int

	in, out     float64 // permits a second, in this step
	avail, wide float64 // of one fill
	low         float64 // of one round of it: how far the flows that use the bucket can rise
	held        bool
	starved     bool // slowed down by a shared limit that is the narrower one
}

// Flow is lanes that are alike: of equal weight, under equal limits, in the same
// state. Its members differ in how many jobs they have.
type Flow struct {
	Members []*Member // by jobs, ascending
	Weight  float64   // of one member, over what a job costs
	Uses    []Use
	shared  []int     // those of uses whose bucket other flows use, too
	From    float64   // closed until then: a pause
	Hours   []float64 // opens and closes in turns: send windows; nil: always open

	done   int     // members that are through
	n      float64 // the others' number
	served float64 // jobs, of each member
	rate   float64 // jobs a second, of each member
	by     int     // the use that holds it; -1: none
	heldBy []float64
	low    float64
	own    float64 // how far it can rise by itself, of one fill
	ownBy  int     // the use that stops it there; -1: none
	frozen bool
}

// Member is one lane, or with no weight in numbers a place in it that is watched.
type Member struct {
	Jobs  float64
	Times float64 // how many lanes it stands for; 0: it is only watched
	At    float64 // when its last job goes; +Inf: not known
	Limit int     // that held it longest; -1: none did
	Rate  float64 // jobs a second, when it was first held
}

// Use is a bucket that each job of a flow takes permits from.
type Use struct {
	Bucket int
	Cost   float64
}

const (
	// ExactOpenings is how many windows of a bucket in which permits are used are looked
	// at one by one; beyond them their average is as good.
	ExactOpenings = 48

	// exactFlows is how many flows are followed from change to change; of more,
	// changes that are close to each other are taken together.
	exactFlows = 32
	stepPart   = 1.0 / 32 // of the time that has passed

	maxSteps = 20_000
	maxRate  = 1e9
)

// Run lets the queue flow until the watched member is through; nil: until all are.
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

// burst gives out what is there at this moment. All flows stop when a member of one is
// through: the others would else take what its flow gets afterwards.
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

// soon is how long slots that were given ahead keep lanes closed that flow.
const soon = 1.0

const Tiny = 1e-9

func (f *Flow) isOpen(now float64) bool {
	for len(f.Hours) > 0 && f.Hours[1] <= now+Tiny {
		f.Hours = f.Hours[2:]
	}
	return f.From <= now && (len(f.Hours) == 0 || f.Hours[0] <= now+Tiny)
}

// left is how many jobs the smallest member has left.
func (f *Flow) left() float64 { return f.Members[f.done].Jobs - f.served }

// retire ends the members that have no jobs left. step is how long they took.
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

// longest is the limit that held the flow most of the time so far; -1: none.
func (f *Flow) longest(m *Model) int {
	limit, most := -1, 0.0
	for i, time := range f.heldBy {
		if time > most {
			limit, most = m.Buckets[f.Uses[i].Bucket].Limit, time
		}
	}
	return limit
}

// heldNow is the use that holds the flow in this step; -1: none.
func (f *Flow) heldNow(m *Model) int {
	if f.by < 0 || !m.Buckets[f.Uses[f.by].Bucket].starved {
		return f.by
	}
	if full := slices.IndexFunc(f.Uses, func(u Use) bool { return m.Buckets[u.Bucket].isFull() }); full >= 0 {
		return full
	}
	return f.by
}

// settleHeld says of the lanes that never end what holds them.
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

// lanes is how many of the flow's lanes draw on the one bucket.
func (b *Bucket) lanes(f *Flow) float64 {
	if b.Private {
		return 1
	}
	return max(f.n, 0)
}

func (b *Bucket) empty() bool { return b.Level <= Tiny*max(1, b.Max) }

// fill raises what the open flows get, together and each by its weight, and stops
// a flow where a bucket that it uses has no more: of what the buckets hold now
// (burst), or of what flows into those that are empty. It leaves the amount in rate
// and the use that stopped it in by.
func (m *Model) fill(burst bool) {
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
	for left := len(m.open); left > 0; {
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
				// Of two that stop it at once it is the first in the order of the limits.
				if low := m.Buckets[u.Bucket].low; u.Cost > 0 && (low < f.low || low == f.low && i < f.by) {
					f.low, f.by = low, i
				}
			}
		}
		// A shared bucket has the last word on its flows once none of them stops before.
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
			return // cannot be: the lowest flow of all is never held up
		}
		// Summed anew rather than taken off, so that no rounding is left over.
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

// lowest is how far the flows that use the bucket can rise.
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
		if m.full() {
			return
		}
	}
	// So slowed down they left room: they wait for the others' calls now and then.
	m.level()
	m.fill(false)
	if m.slow(false) {
		m.fill(false)
	}
}

// level lets the buckets' full rates in.
func (m *Model) level() {
	for i := range m.Buckets {
		b := &m.Buckets[i]
		if b.in, b.starved = b.Rate, false; b.Spread && b.unused() <= Tiny {
			b.in = 0
		}
	}
}

// slow slows lanes down whose own limit saves nothing up while they wait for a
// slot of a limit that they share.
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
				part = max(part, 1-others*lostTo(interval, slot)) // it has a slot of the grid at least
			}
			own.in, slowed = own.Rate*part, true
		}
	}
	return slowed
}

// onGrid is the time between a lane's calls where all slots of a shared limit are
// used: of 11/s beside 100/s each goes at the tenth slot, every 100 ms and not 91.
func onGrid(interval, slot float64) float64 {
	return max(math.Ceil(interval/slot-1.0/256), 1) * slot
}

// lostTo is how long a lane is held up by one call of another that comes at any
// moment between two of its own.
func lostTo(interval, slot float64) float64 {
	if interval <= slot {
		return slot
	}
	// At u the other's call takes the slot up to max(u, slot) + slot.
	early := min(slot, interval)
	lost := early * max(0, 2*slot-interval)
	from := max(slot, interval-slot)
	lost += (interval - from) * (max(0, from+slot-interval) + slot) / 2
	return lost / interval
}

func (m *Model) full() bool {
	for i := range m.Buckets {
		if m.Buckets[i].isFull() {
			return true
		}
	}
	return false
}

// isFull tells a shared limit by rate all of whose slots are used.
func (b *Bucket) isFull() bool {
	return !b.Private && (b.Quota == 0 || b.Spread) && b.empty() && b.out > 0 && b.out >= b.in*(1-Tiny)
}

// next is how long everything stays as it is.
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
			sooner(f.From - m.now) // until then no hours let it go
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

// pass lets time go by.
func (m *Model) pass(step float64) {
	m.now += step
	for i := range m.Buckets {
		b := &m.Buckets[i]
		b.Level = min(b.Level+(b.in-b.out)*step, b.Max)
		if b.Used += b.out * step; b.Spread {
			b.Level = min(b.Level, b.unused())
		}
		for len(b.Opens) > 0 && b.Opens[0] <= m.now+Tiny {
			b.openWindow(m.now)
		}
	}
	for _, f := range m.open {
		f.served += f.rate * step
		if by := f.heldNow(m); by >= 0 {
			f.heldBy[by] += step
		}
		f.retire(m, step)
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

// unused is what a window has left at most.
func (b *Bucket) unused() float64 { return b.Quota - b.Used }

// idle tells a bucket of windows that is full and not used: the next window changes nothing.
func (b *Bucket) idle() bool { return b.Used == 0 && b.out == 0 && b.Level >= b.Quota }

// headStart is what counts of the window before where it weighs so much. Rounded
// down, a permit of it that has passed in part does not count any more, so a job goes
// as soon as the one before it has.
func headStart(weighed float64) float64 { return max(weighed-1, 0) }

// openWindow opens the next window. Those of an idle bucket are all the same until now, and
// a wait of a day may be one of millions of them.
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
	if b.opened == ExactOpenings {
		b.Opens, b.Rate = nil, b.Quota/b.Period
		if !b.Spread {
			b.Level -= b.Quota / 2
		}
		b.Spread = false
	}
}

// Admits is in how many seconds the bucket has n permits.
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
