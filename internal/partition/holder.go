package partition

import (
	"slices"
	"time"
)

// Holder is what a member has of one limit, and spends. It is the reference model for tests and
// bench/scale; in queues, limits.lua does the same. Like a [Ledger], it has no clock:
// times are those of the ledger's clock, which the caller derives from a clock that never
// stops (the boot clock), so that a process that was stopped finds its permits expired.
type Holder struct {
	Member string
	// ID names this life of the holder's state. If the state is lost, or may be older than it
	// was, the next life needs another ID: what the last one had is not spent twice then.
	ID string

	version uint64
	spans   []held

	// Pool says that the limit is a pool.
	Pool bool

	n, spent    int64 // but of a rate; spent, of a concurrency limit: calls in flight
	keep        int64 // what was promised to the ledger to be enough; at least n: nothing was
	from, until int64
	fair        int64

	// Of a pool: calls that may not have left, how many spent permits came back, and the earliest slot of a call from
	// which some did that the ledger may not know of.
	pending     []pending
	back, since int64
}

// held is a span, and how much of it is spent.
type held struct {
	Span
	next Point // what is before it is spent
	keep Point // the end of what is not given back
}

func (s *held) left() int64 { return s.permits(s.next, s.keep) }

// Slot is when a call may go, in µs: not before Earliest, and not after Latest.
type Slot struct{ Earliest, Latest int64 }

// Need is what a member could use now.
type Need struct {
	Permits int64   // that its jobs could use soon; of a concurrency limit: calls at once
	Least   int64   // that its next call takes; 0: 1
	Weight  float64 // of its tenants with backlog, whose next job starts at the virtual time or later
	Firsts  int64   // jobs that it ever had of other tenants, which start before the virtual time
}

// Ask returns what to send to the ledger. Permits that are not needed are given back: they are
// not spent from now on, whether or not the ask arrives. The caller sends one at a time.
func (h *Holder) Ask(now int64, need Need) Ask {
	h.drop(now)
	a := Ask{Member: h.Member, Holder: h.ID, Version: h.version, Least: need.Least, Weight: need.Weight, Firsts: need.Firsts}
	have := int64(0)
	for i := range h.spans {
		s := &h.spans[i]
		next := s.next
		if next.up() < now {
			next = Point{US: now} // what is past is of no use
		}
		left, rest := s.permits(next, s.keep), max(0, need.Permits-have)
		if left > rest {
			s.keep, left = s.after(next, rest), rest
		}
		have += left
		a.Keep = append(a.Keep, Span{s.pace, s.From, s.keep})
	}
	if h.n > 0 || h.Pool {
		use := max(0, need.Permits)
		if h.counts() {
			if h.Held() < need.Least {
				use = 0 // too few for the next call, and enough for another one
			}
			use += h.spent
		} else {
			use = max(h.spent, min(use, h.fair))
		}
		h.keep = min(h.keep, use)
		a.N = max(h.spent, min(h.n, h.keep))
		have = a.N
		if h.counts() {
			have -= h.spent
			if now >= h.until {
				have = 0 // its lease is over
			}
		}
	}
	if h.Pool {
		a.Spent, a.Back, a.Since, a.At = h.left(now), h.back, h.since, now
	}
	a.Want = max(0, need.Permits-have)
	return a
}

func (h *Holder) quota() bool { return h.from > 0 }

// counts reports whether permits that are spent stay spent.
func (h *Holder) counts() bool { return h.quota() || h.Pool }

// Accept takes the ledger's answer. Old ones change nothing.
func (h *Holder) Accept(answer Answer) {
	if answer.Version <= h.version {
		return
	}
	h.version = answer.Version
	spans := make([]held, 0, len(answer.Spans))
	for _, s := range answer.Spans {
		one := held{Span: s, next: s.From, keep: s.End}
		for _, known := range h.spans {
			if known.From == s.From {
				one.next = known.next
			}
		}
		spans = append(spans, one)
	}
	h.spans = spans
	if answer.From > 0 && (answer.From != h.from || answer.Until != h.until) {
		h.from, h.spent = answer.From, 0
	}
	h.n, h.keep, h.until, h.fair = answer.N, answer.N, answer.Until, answer.Fair
	if h.Pool && answer.Back == h.back {
		h.since = 0
	}
}

// drop forgets spans that were over a second ago, when no answer can name them any more.
func (h *Holder) drop(now int64) {
	h.spans = slices.DeleteFunc(h.spans, func(s held) bool { return s.End.US < now-time.Second.Microseconds() })
}

// Held returns how many permits the holder has and has not spent.
func (h *Holder) Held() int64 {
	n := max(0, min(h.n, h.keep)-h.spent)
	for i := range h.spans {
		n += h.spans[i].left()
	}
	return n
}

// Next returns the slot that [Holder.Take] would give; false: the holder has no such permits.
func (h *Holder) Next(now, pickup, n int64) (Slot, bool) {
	slot, at, _ := h.find(now, pickup, n)
	return slot, at != nil
}

// Take spends n permits of a rate for one call, as limits.lua does with a bucket: the call is
// accounted for at the moment it must have left by, which is pickup µs from now at the
// earliest. It returns false if the holder has no such permits. A call that misses its slot
// has lost its permits.
func (h *Holder) Take(now, pickup, n int64) (Slot, bool) {
	slot, at, end := h.find(now, pickup, n)
	if at != nil {
		at.next = end
	}
	return slot, at != nil
}

// find returns the span that has n permits, and where they end.
func (h *Holder) find(now, pickup, n int64) (slot Slot, at *held, end Point) {
	for i := range h.spans {
		s := &h.spans[i]
		slot.Earliest = max(now, s.earliest(s.next, n))
		slot.Latest = max(slot.Earliest, now+pickup)
		next := s.next
		if next.up() < slot.Latest {
			next = Point{US: slot.Latest} // what lies before can no longer be used in time
		}
		end = s.after(next, n)
		if !s.keep.before(end) && (s.Burst == 0 || n <= s.Burst) {
			return slot, s, end
		}
	}
	return Slot{}, nil, Point{}
}

// Spend spends n permits of a quota or a pool for one call, which may take pickup µs to leave.
func (h *Holder) Spend(now, pickup, n int64) (Slot, bool) {
	slot := Slot{Earliest: max(now, h.from)}
	slot.Latest = max(slot.Earliest, now+pickup)
	if !h.counts() || slot.Earliest+pickup >= h.until || h.spent+n > min(h.n, h.keep) {
		return Slot{}, false
	}
	h.spent += n
	if h.Pool {
		h.leave(slot.Latest, n)
	}
	return slot, true
}

// Start begins a call of a concurrency limit that ends within length µs. It returns false if
// none may begin. That is so, too, while the member has more than its part: it gives that back.
func (h *Holder) Start(now, length int64) bool {
	if h.quota() || now+length > h.until || h.spent >= min(h.n, h.keep, h.fair) {
		return false
	}
	h.spent++
	return true
}

// End ends a call that Start began.
func (h *Holder) End() { h.spent-- }
