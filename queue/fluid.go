package queue

import (
	"cmp"
	"math"
	"slices"
)

// fluid is a model of a queue in which jobs flow like water: every lane gives as
// much as its limits let through, and limits that lanes share are divided among
// them by weight, what one cannot use going to the others, as dispatch.lua does
// job by job. It steps from one change to the next: a lane runs dry, a bucket does,
// a window opens. Times are seconds from now.
type fluid struct {
	buckets []fluidBucket
	flows   []*flow
	now     float64
	allowed float64 // jobs a second that flow at first, within soon

	open   []*flow        // those that may go, in this step
	shared []*fluidBucket // those that are not private
}

// fluidBucket is the state of a limit's bucket. A bucket that only one lane uses
// stands for those of all members of its flow.
type fluidBucket struct {
	limit   int // which of the queue's limits
	private bool

	level float64 // permits there are, at most `most`; below 0: owed
	most  float64
	rate  float64 // permits a second that flow in

	// Of limits that count by windows:
	quota  float64   // permits of a window; 0: no windows
	period float64   // its length
	opens  []float64 // when the next ones open; beyond them, period after period
	spread bool      // a sliding counter: what was used comes back over the next window
	used   float64   // in this window
	given  float64   // ahead, of the window that opens next
	opened int

	in, out     float64 // permits a second, in this step
	avail, wide float64 // of one fill
	low         float64 // of one round of it: how far the flows that use the bucket can rise
	held        bool
	starved     bool // slowed down by a shared limit that is the narrower one
}

// flow is lanes that are alike: of equal weight, under equal limits, in the same
// state. Its members differ in how many jobs they have.
type flow struct {
	members []*member // by jobs, ascending
	weight  float64   // of one member, over what a job costs
	uses    []use
	shared  []int     // those of uses whose bucket other flows use, too
	from    float64   // closed until then: a pause
	hours   []float64 // opens and closes in turns: send windows; nil: always open

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

// member is one lane, or with no weight in numbers a place in it that is watched.
type member struct {
	jobs  float64
	times float64 // how many lanes it stands for; 0: it is only watched
	at    float64 // when its last job goes; +Inf: not known
	limit int     // that held it longest; -1: none did
	rate  float64 // jobs a second, when it was first held
}

// use is a bucket that each job of a flow takes permits from.
type use struct {
	bucket int
	cost   float64
}

const (
	// exactOpenings is how many windows of a bucket are looked at one by one;
	// beyond them their average is as good.
	exactOpenings = 48

	// exactFlows is how many flows are followed from change to change; of more,
	// changes that are close to each other are taken together.
	exactFlows = 32
	stepPart   = 1.0 / 32 // of the time that has passed

	mostSteps = 20_000
	mostRate  = 1e9
)

// run lets the queue flow until the watched member is through; nil: until all are.
func (m *fluid) run(watched *member) {
	for _, f := range m.flows {
		slices.SortStableFunc(f.members, func(a, b *member) int { return cmp.Compare(a.jobs, b.jobs) })
		for _, one := range f.members {
			f.n += one.times
			one.at, one.limit = math.Inf(1), -1
		}
		f.heldBy, f.by = make([]float64, len(f.uses)), -1
		for i, u := range f.uses {
			if !m.buckets[u.bucket].private {
				f.shared = append(f.shared, i)
			}
		}
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.begin(); !b.private {
			m.shared = append(m.shared, b)
		}
	}
	for range mostSteps {
		m.burst()
		if len(m.flows) == 0 || watched != nil && !math.IsInf(watched.at, 1) {
			return
		}
		m.flow()
		for _, f := range m.open {
			for _, one := range f.members[f.done:] {
				if one.rate > 0 {
					break
				}
				if one.rate = f.rate; m.now <= soon {
					m.allowed += f.rate * one.times
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

// burst gives out what is there at this moment.
func (m *fluid) burst() {
	for _, f := range m.flows {
		f.rate = 0
	}
	for {
		m.open = m.open[:0]
		m.flows = slices.DeleteFunc(m.flows, func(f *flow) bool {
			f.retire(m, 0)
			return f.done == len(f.members)
		})
		for _, f := range m.flows {
			if f.isOpen(m.now) {
				m.open = append(m.open, f)
			}
		}
		m.fill(true)
		ended := false
		for _, f := range m.open {
			if f.rate > 0 {
				f.served += f.rate
				m.take(f, f.rate)
				ended = ended || f.left() <= tiny
			}
		}
		if !ended {
			return
		}
	}
}

// soon is how long slots that were given ahead keep lanes closed that flow.
const soon = 1.0

const tiny = 1e-9

func (f *flow) isOpen(now float64) bool {
	for len(f.hours) > 0 && f.hours[1] <= now+tiny {
		f.hours = f.hours[2:]
	}
	return f.from <= now && (len(f.hours) == 0 || f.hours[0] <= now+tiny)
}

// left is how many jobs the smallest member has left.
func (f *flow) left() float64 { return f.members[f.done].jobs - f.served }

// retire ends the members that have no jobs left. step is how long they took.
func (f *flow) retire(m *fluid, step float64) {
	for f.done < len(f.members) && f.left() <= tiny*max(1, f.served) {
		one := f.members[f.done]
		one.at = m.now
		if step > 0 && f.rate > 0 {
			one.at = min(m.now, m.now+f.left()/f.rate) // it may have ended within the step
		}
		one.limit = f.longest(m)
		f.n -= one.times
		f.done++
	}
}

// longest is the limit that held the flow most of the time so far; -1: none.
func (f *flow) longest(m *fluid) int {
	limit, most := -1, 0.0
	for i, time := range f.heldBy {
		if time > most {
			limit, most = m.buckets[f.uses[i].bucket].limit, time
		}
	}
	return limit
}

// heldNow is the use that holds the flow in this step; -1: none.
func (f *flow) heldNow(m *fluid) int {
	if f.by < 0 || !m.buckets[f.uses[f.by].bucket].starved {
		return f.by
	}
	if full := slices.IndexFunc(f.uses, func(u use) bool { return m.buckets[u.bucket].isFull() }); full >= 0 {
		return full
	}
	return f.by
}

// settleHeld says of the lanes that never end what holds them.
func (m *fluid) settleHeld() {
	for _, f := range m.flows {
		if f.by >= 0 {
			f.heldBy[f.by] = math.MaxFloat64
		}
		for _, one := range f.members[f.done:] {
			one.limit = f.longest(m)
		}
	}
}

func (m *fluid) take(f *flow, jobs float64) {
	for _, u := range f.uses {
		b := &m.buckets[u.bucket]
		permits := jobs * u.cost * b.lanes(f)
		b.level -= permits
		b.used += permits
	}
}

// lanes is how many of the flow's lanes draw on the one bucket.
func (b *fluidBucket) lanes(f *flow) float64 {
	if b.private {
		return 1
	}
	return max(f.n, 0)
}

func (b *fluidBucket) empty() bool { return b.level <= tiny*max(1, b.most) }

// fill raises what the open flows get, together and each by its weight, and stops
// a flow where a bucket that it uses has no more: of what the buckets hold now
// (burst), or of what flows into those that are empty. It leaves the amount in rate
// and the use that stopped it in by.
func (m *fluid) fill(burst bool) {
	for i := range m.buckets {
		b := &m.buckets[i]
		b.wide, b.out = 0, 0
		switch {
		case burst:
			b.avail = max(b.level, 0)
			if b.empty() {
				b.avail = 0
			}
		case !b.empty():
			b.avail = math.Inf(1)
		case b.level < -tiny*max(1, b.most):
			b.avail = 0
		default:
			b.avail = b.in
		}
	}
	for _, f := range m.open {
		f.frozen, f.rate, f.own, f.ownBy = false, 0, math.Inf(1), -1
		if burst {
			f.own = max(f.left(), 0) / f.weight
		}
		for i, u := range f.uses {
			b := &m.buckets[u.bucket]
			if wide := f.weight * u.cost * b.lanes(f); !b.private {
				b.wide += wide
			} else if low := b.avail / wide; u.cost > 0 && low < f.own {
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
				u := f.uses[i]
				// Of two that stop it at once it is the first in the order of the limits.
				if low := m.buckets[u.bucket].low; u.cost > 0 && (low < f.low || low == f.low && i < f.by) {
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
				b := &m.buckets[f.uses[i].bucket]
				b.held = b.held || f.low < b.low
			}
		}
		before := left
		for _, f := range m.open {
			if f.frozen || f.by >= 0 && m.buckets[f.uses[f.by].bucket].held {
				continue
			}
			f.frozen, f.rate = true, min(f.low*f.weight, mostRate)
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
				u := f.uses[i]
				b := &m.buckets[u.bucket]
				if f.frozen {
					b.out += f.rate * u.cost * b.lanes(f)
				} else {
					b.wide += f.weight * u.cost * b.lanes(f)
				}
			}
		}
	}
	for _, f := range m.open {
		for _, u := range f.uses {
			if b := &m.buckets[u.bucket]; b.private {
				b.out = f.rate * u.cost
			}
		}
	}
}

// lowest is how far the flows that use the bucket can rise.
func (b *fluidBucket) lowest() float64 {
	if math.IsInf(b.avail, 1) || b.wide <= 0 {
		return math.Inf(1)
	}
	return max(b.avail-b.out, 0) / b.wide
}

// flow sets the rates of this step.
func (m *fluid) flow() {
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
func (m *fluid) level() {
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.in, b.starved = b.rate, false; b.spread && b.unused() <= tiny {
			b.in = 0
		}
	}
}

// slow slows lanes down whose own limit saves nothing up while they wait for a
// slot of a limit that they share.
func (m *fluid) slow(grid bool) (slowed bool) {
	for _, f := range m.open {
		slot, others := 0.0, 0.0
		for _, u := range f.uses {
			b := &m.buckets[u.bucket]
			if b.private || b.quota > 0 || b.rate == 0 || grid && !b.isFull() || !grid && b.most >= 2*u.cost && !b.isFull() {
				continue
			}
			if d := u.cost / b.rate; d > slot {
				slot, others = d, max(b.out/u.cost-f.rate, 0)
			}
		}
		if slot == 0 {
			continue
		}
		for _, u := range f.uses {
			own := &m.buckets[u.bucket]
			if !own.private || own.quota > 0 || own.rate == 0 || own.most >= 2*u.cost {
				continue
			}
			interval := u.cost / own.rate
			if own.starved = grid && interval < slot; grid {
				own.in = own.rate * interval / onGrid(interval, slot)
			} else {
				own.in = own.rate * max(0, 1-others*lostTo(interval, slot))
			}
			slowed = true
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

func (m *fluid) full() bool {
	for i := range m.buckets {
		if m.buckets[i].isFull() {
			return true
		}
	}
	return false
}

// isFull tells a shared limit by rate all of whose slots are used.
func (b *fluidBucket) isFull() bool {
	return !b.private && b.quota == 0 && b.empty() && b.out > 0 && b.out >= b.in*(1-tiny)
}

// next is how long everything stays as it is.
func (m *fluid) next() float64 {
	step := math.Inf(1)
	sooner := func(d float64) {
		if d < step {
			step = max(d, 0)
		}
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		switch {
		case !b.empty() && b.out > b.in:
			sooner(b.level / (b.out - b.in))
		case b.level < 0 && b.in > 0 && b.level < -tiny*max(1, b.most):
			sooner(-b.level / b.in)
		}
		if b.spread && b.out > 0 {
			sooner(b.unused() / b.out)
		}
		if len(b.opens) > 0 {
			sooner(b.opens[0] - m.now)
		}
	}
	for _, f := range m.flows {
		if f.from > m.now {
			sooner(f.from - m.now)
		}
		for _, change := range f.hours[:min(2, len(f.hours))] {
			if change > m.now+tiny {
				sooner(change - m.now)
			}
		}
		if f.rate > 0 {
			sooner(f.left() / f.rate)
		}
	}
	if len(m.flows) > exactFlows && !math.IsInf(step, 1) {
		step = max(step, m.now*stepPart)
	}
	return step
}

// pass lets time go by.
func (m *fluid) pass(step float64) {
	m.now += step
	for i := range m.buckets {
		b := &m.buckets[i]
		b.level = min(b.level+(b.in-b.out)*step, b.most)
		if b.used += b.out * step; b.spread {
			b.level = min(b.level, b.unused())
		}
		for len(b.opens) > 0 && b.opens[0] <= m.now+tiny {
			b.openWindow()
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

func (b *fluidBucket) begin() {
	if b.quota > 0 && len(b.opens) == 0 {
		b.opens = []float64{b.period}
	}
	if b.spread {
		weighed := b.rate * b.opens[0]
		b.level += math.Floor(weighed+tiny) - headStart(weighed)
	}
}

// unused is what a window has left at most.
func (b *fluidBucket) unused() float64 { return b.quota - b.used }

// headStart is what counts of the window before where it weighs so much. Rounded
// down, a permit of it that has passed in part does not count any more, so a job goes
// as soon as the one before it has.
func headStart(weighed float64) float64 { return max(weighed-1, 0) }

func (b *fluidBucket) openWindow() {
	at := b.opens[0]
	if b.opens = b.opens[1:]; len(b.opens) == 0 {
		b.opens = append(b.opens, at+b.period)
	}
	owed := min(b.level, 0)
	b.level = b.quota + owed
	if b.spread {
		b.level, b.rate = b.quota-headStart(b.used), b.used/b.period
	}
	b.level -= b.given
	b.used, b.given = b.given, 0
	if b.opened++; b.opened == exactOpenings {
		b.opens, b.rate = nil, b.quota/b.period
		if !b.spread {
			b.level -= b.quota / 2
		}
		b.spread = false
	}
}
