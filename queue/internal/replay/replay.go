// Package replay lets the calls of a queue go again, one by one, through limits that may be others than those of then.
package replay

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"

	"github.com/headgate/headgate/queue/internal/fluid"
)

// Queue is a queue whose calls go again. Times are seconds from when it begins. Like dispatch.lua it lets a job go when
// all of its limits have permits, and of jobs that wait for the same permits first those of tenants who have not got what
// is guaranteed to them, and then that of the tenant whose virtual time is least.
type Queue struct {
	Buckets []*Bucket
	Lanes   []*Lane
	Ahead   float64 // how long before its time a slot is given, to a job that has come by then

	virtual float64
	now     float64 // the slot that is given
	ready   line    // lanes that may go now
	events  heapOf[event]
	woken   []*Bucket
	looks   int // how often it looked who goes next
}

// Bucket is the bucket of a limit.
type Bucket struct {
	*fluid.Single
	Limit  int  // index of the limit
	Shared bool // several lanes use it

	waiting line    // lanes that wait for its permits
	wakes   float64 // when it has permits for the first of them; +Inf: not known
}

// Tenant moves forward with each of its calls.
type Tenant struct {
	Weight float64
	AtOnce float64 // how much may be guaranteed to it at one moment
	finish float64 // its virtual time after its last call
}

// Lane has jobs that go one after the other.
type Lane struct {
	Tenant *Tenant
	Uses   []*Bucket
	Hours  []float64 // when send windows open and close, alternating; nil: always open
	Jobs   []Job     // by when they come
	Costs  [][]float64
	Held   []float64 // for how many seconds each of Uses held jobs

	// Sure is what is guaranteed to the tenant of each of Uses, and is shared by its lanes; nil, also in it: nothing.
	Sure []*fluid.Single

	at         int // its place in Lanes
	next, come int // the next job that goes, and the next that comes
	busy       bool
	start      float64 // virtual time at which its next job starts
	since      float64 // from when on it has waited for a shared bucket
}

// Job is a call.
type Job struct {
	At   float64 // when it comes
	Cost int     // index in Costs of its lane: what it takes of each of Uses, and last how much it moves its tenant forward
	Gone float64 // when it went; +Inf: its limits never let it
}

type event struct {
	at     float64
	lane   *Lane
	bucket *Bucket
}

func (e event) Before(other event) bool { return e.at < other.at }

// heapOf is a [heap.Interface].
type heapOf[T interface{ Before(other T) bool }] []T

func (h heapOf[T]) Len() int           { return len(h) }
func (h heapOf[T]) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h heapOf[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heapOf[T]) Push(x any)        { *h = append(*h, x.(T)) }
func (h *heapOf[T]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Before reports whether a lane goes before another that waits for the same permits.
func (l *Lane) Before(other *Lane) bool {
	return l.start < other.start || l.start == other.start && l.at < other.at
}

// owed reports whether a lane goes before those to which nothing is guaranteed.
func (l *Lane) owed(now float64) (owed bool) {
	for _, s := range l.Sure {
		if s == nil {
			continue
		}
		if !s.Has(now, 1) {
			return false
		}
		owed = true
	}
	return owed
}

// ahead reports whether a lane goes before another one now.
func (l *Lane) ahead(other *Lane, now float64) bool {
	if owed := l.owed(now); owed != other.owed(now) {
		return owed
	}
	return l.Before(other)
}

// mayBeOwed returns a time before which a lane is not owed, whatever goes until then; +Inf: nothing is guaranteed to it.
func (l *Lane) mayBeOwed() float64 {
	from, guaranteed := math.Inf(-1), false
	for _, s := range l.Sure {
		if s != nil {
			from, guaranteed = max(from, s.HasNotBefore(1)), true
		}
	}
	if !guaranteed {
		return math.Inf(1)
	}
	return from
}

// line has lanes of which one goes first. Those to which something is guaranteed are also either in owed or in later, so
// that finding the first does not look at all of them.
type line struct {
	lanes heapOf[*Lane]
	owed  heapOf[*Lane] // may be owed now
	later heapOf[later] // are not owed before a time
}

type later struct {
	from float64
	lane *Lane
}

func (l later) Before(other later) bool { return l.from < other.from }

func (w *line) add(l *Lane) {
	heap.Push(&w.lanes, l)
	if l.Sure != nil {
		heap.Push(&w.owed, l)
	}
}

func (w *line) remove(l *Lane) {
	heap.Remove(&w.lanes, slices.Index(w.lanes, l))
	if l.Sure == nil {
		return
	}
	if i := slices.Index(w.owed, l); i >= 0 {
		heap.Remove(&w.owed, i)
		return
	}
	heap.Remove(&w.later, slices.IndexFunc(w.later, func(one later) bool { return one.lane == l }))
}

// first returns the lane that goes first; nil: there is none.
func (w *line) first(now float64) *Lane {
	if len(w.lanes) == 0 {
		return nil
	}
	for len(w.later) > 0 && w.later[0].from <= now {
		heap.Push(&w.owed, heap.Pop(&w.later).(later).lane)
	}
	first := w.lanes[0]
	var soon []*Lane // rounding decides from when on they are owed
	for len(w.owed) > 0 {
		l := w.owed[0]
		if l.owed(now) {
			first = l
			break
		}
		heap.Pop(&w.owed)
		if from := l.mayBeOwed(); from > now {
			heap.Push(&w.later, later{from, l})
		} else {
			soon = append(soon, l)
		}
	}
	for _, l := range soon {
		heap.Push(&w.owed, l)
	}
	return first
}

// moment is how far apart things may be that happen at once: limits.lua counts in µs, and this in fractions of seconds.
const moment = 1e-6

// checkEvery is after how many looks, each of about a µs, a replay checks its context.
const checkEvery = 4096

// headStart is how many jobs a tenant that was away starts before the others.
const headStart = 2

// Run lets all jobs go, which takes about a second for a million of them. It returns the error of ctx if that ends before.
func (q *Queue) Run(ctx context.Context) error {
	type arrival struct {
		at   float64
		lane *Lane
	}
	var arrivals []arrival
	for at, l := range q.Lanes {
		l.at = at
		l.Held = make([]float64, len(l.Uses))
		for i := range l.Jobs {
			l.Jobs[i].Gone = math.Inf(1)
			arrivals = append(arrivals, arrival{l.Jobs[i].At, l})
		}
	}
	for _, b := range q.Buckets {
		b.wakes = math.Inf(1)
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	for len(arrivals) > 0 || len(q.events) > 0 {
		happens, comes := math.Inf(1), math.Inf(1)
		if len(q.events) > 0 {
			happens = q.events[0].at
		}
		if len(arrivals) > 0 {
			comes = arrivals[0].at
		}
		// What is given to others stays with them, so a job may get a slot only after theirs.
		before := 0.0
		if q.now = comes; happens-q.Ahead < comes-moment {
			q.now, before = happens, q.Ahead
		}
		together := q.now + moment
		for ; len(arrivals) > 0 && arrivals[0].at <= together-before; arrivals = arrivals[1:] {
			l := arrivals[0].lane
			q.now = max(q.now, arrivals[0].at)
			if l.come++; !l.busy {
				q.offer(l)
			}
		}
		for len(q.events) > 0 && q.events[0].at <= together {
			e := heap.Pop(&q.events).(event)
			q.now = max(q.now, e.at)
			switch {
			case e.lane != nil:
				q.offer(e.lane)
			case e.bucket.wakes == e.at:
				e.bucket.wakes = math.Inf(1)
				q.woken = append(q.woken, e.bucket)
			}
		}
		if err := q.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// offer makes a lane ready whose next job has come, and whose own limits may admit it.
func (q *Queue) offer(l *Lane) {
	l.busy = true
	l.start = max(q.virtual-headStart*l.forward(), l.Tenant.finish)
	q.ready.add(l)
}

func (l *Lane) job() *Job          { return &l.Jobs[l.next] }
func (l *Lane) costs() []float64   { return l.Costs[l.job().Cost] }
func (l *Lane) moves() float64     { return l.costs()[len(l.Uses)] }
func (l *Lane) forward() float64   { return l.moves() / l.Tenant.Weight }
func (l *Lane) need(i int) float64 { return l.costs()[i] }

// try lets the next job of a lane go, or puts the lane where it waits.
func (q *Queue) try(l *Lane) {
	at, by := q.opens(l), -1
	for i, b := range l.Uses {
		if b.Shared || l.need(i) <= 0 {
			continue
		}
		if e := b.Earliest(q.now, l.need(i)); e > at {
			at, by = e, i
		}
	}
	if at > q.now {
		if by >= 0 {
			l.Held[by] += at - q.now
		}
		if !math.IsInf(at, 1) {
			heap.Push(&q.events, event{at: at, lane: l})
		}
		return
	}
	for i, b := range l.Uses {
		if !b.Shared || l.need(i) <= 0 {
			continue
		}
		if first := b.waiting.first(q.now); first != nil && first.ahead(l, q.now) || b.Earliest(q.now, l.need(i)) > q.now {
			l.since = q.now
			b.waiting.add(l)
			q.wake(b)
			return
		}
	}
	owed := l.owed(q.now)
	for i, b := range l.Uses {
		if n := l.need(i); n != 0 {
			if n > 0 && l.Sure != nil && l.Sure[i] != nil && l.Sure[i].Has(q.now, 1) {
				l.Sure[i].Charge(q.now, n)
			}
			b.Take(q.now, n)
			if n < 0 { // the first that waits may go sooner
				b.wakes = math.Inf(1)
				q.wake(b)
			}
		}
	}
	if l.Tenant.finish = l.start + l.forward(); owed {
		l.Tenant.finish = max(l.start, min(l.Tenant.finish, q.virtual+(headStart*l.moves()+l.Tenant.AtOnce)/l.Tenant.Weight))
	} else {
		q.virtual = max(q.virtual, l.start)
	}
	l.job().Gone = q.now
	if l.next++; l.next < l.come {
		q.offer(l)
	} else {
		l.busy = false
	}
}

// opens returns from when on the send windows of a lane are open.
func (q *Queue) opens(l *Lane) float64 {
	for len(l.Hours) > 0 && l.Hours[1] <= q.now {
		l.Hours = l.Hours[2:]
	}
	if len(l.Hours) > 0 {
		return max(q.now, l.Hours[0])
	}
	return q.now
}

// wake calls the first lane that waits for a bucket when that has permits for it.
func (q *Queue) wake(b *Bucket) {
	l := b.waiting.first(q.now)
	if l == nil {
		return
	}
	if at := b.admits(l, q.now); at < b.wakes {
		b.wakes = at
		heap.Push(&q.events, event{at: at, bucket: b})
	}
}

// admits returns when a bucket has permits for a lane.
func (b *Bucket) admits(l *Lane, now float64) float64 {
	return b.Earliest(now, l.need(slices.Index(l.Uses, b)))
}

// serve lets lanes go that are ready, and those that wait for buckets that have woken up, in the order of the line.
func (q *Queue) serve(ctx context.Context) error {
	for {
		if q.looks%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		q.looks++
		next, from := q.ready.first(q.now), (*Bucket)(nil)
		q.woken = slices.DeleteFunc(q.woken, func(b *Bucket) bool {
			l := b.waiting.first(q.now)
			if l != nil && b.admits(l, q.now) <= q.now {
				if next == nil || l.ahead(next, q.now) {
					next, from = l, b
				}
				return false
			}
			q.wake(b)
			return true
		})
		switch {
		case next == nil:
			return nil
		case from == nil:
			q.ready.remove(next)
		default:
			from.waiting.remove(next)
			next.Held[slices.Index(next.Uses, from)] += max(0, q.now-next.since)
		}
		q.try(next)
	}
}
