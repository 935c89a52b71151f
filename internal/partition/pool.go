package partition

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A pool is a token bucket of which permits are leased, and not parts of its timeline: so calls may cost many, and
// give back what they did not use. What is leased and may still be spent counts as if it lay in the bucket, which
// therefore fills up to its burst less that. So at no time can more be spent at once than the burst.

// poolLease is how long permits of a pool may be spent. It is renewed for those that are kept.
const poolLease = 2 * time.Second

// out returns how many permits of an account may still be spent, or leave.
func (acc *account) out() int64 { return max(0, acc.N-acc.Spent) }

// low is how much lacked in a pool to make it full, at least, since it was known which calls had left until a moment. It is
// in units of the rate, as part of a permit may have flowed back.
type low struct {
	Until int64 `json:"until"`
	Lack  int64 `json:"lack"`
}

// lows is how many of them an account remembers. Of two that are close the lower one stands for both.
const lows = 6

// note remembers how much lacks now. Of what calls give back that had left before, no more comes back: had
// they not taken it, the pool would have been full.
func (acc *account) note(lack int64) {
	for len(acc.Lows) > 0 && acc.Lows[len(acc.Lows)-1].Lack >= lack {
		acc.Lows = acc.Lows[:len(acc.Lows)-1]
	}
	acc.Lows = append(acc.Lows, low{acc.Told, lack})
	if len(acc.Lows) <= lows {
		return
	}
	closest := 1
	for i := 2; i < len(acc.Lows); i++ {
		if acc.Lows[i].Lack-acc.Lows[i-1].Lack < acc.Lows[closest].Lack-acc.Lows[closest-1].Lack {
			closest = i
		}
	}
	acc.Lows[closest].Lack = acc.Lows[closest-1].Lack
	acc.Lows = slices.Delete(acc.Lows, closest-1, closest)
}

// lacked returns how much lacked at least since calls had left.
func (acc *account) lacked(since int64) int64 {
	for _, one := range acc.Lows {
		if one.Until >= since {
			return one.Lack
		}
	}
	return math.MaxInt64 // they had not left when somebody asked last
}

// fill lets permits of a pool flow back until now, as far as there is room for them beside what is out. What was
// out until its lease ended needed room until then.
func (l *Ledger) fill(now int64) {
	var ends []*account
	out := int64(0)
	for _, acc := range l.s.Accounts {
		out += acc.out()
		if acc.out() > 0 && acc.Until <= now {
			ends = append(ends, acc)
		}
	}
	slices.SortFunc(ends, func(a, b *account) int { return cmp.Compare(a.Until, b.Until) })
	for _, acc := range ends {
		l.room(acc.Until, out)
		l.note(acc.Until, out)
		out -= acc.out()
		if acc.Lapsed == 0 {
			acc.Lack = math.MaxInt64
		}
		acc.Told = max(acc.Told, leftBy(acc.Until))         // its calls have left, and keep no room any more
		acc.Lapsed, acc.N = acc.Lapsed+acc.out(), acc.Spent // its holder alone knows what was spent of them
		l.changed(acc)
	}
	l.room(now, out)
	l.note(now, out)
}

// note remembers how much lacks at a moment to make a pool full beside what is out.
func (l *Ledger) note(at, out int64) {
	lack := l.s.Rate.units(l.s.Rate.after(Point{US: at}, out), l.s.Next)
	for _, acc := range l.s.Accounts {
		acc.note(lack)
		acc.Lack = min(acc.Lack, lack)
	}
}

// owes returns how many permits more than it counts as used a pool has to count when a holder says that it keeps n:
// those that calls used beyond what they took, less those that the holder gives back. unspent is how many of those that
// lapsed the holder has not spent. It has had no others since.
func (acc *account) owes(n int64) (owed, unspent int64) {
	spent := max(0, min(n-acc.N, acc.Lapsed))
	return n - acc.N - spent, acc.Lapsed - spent
}

// comeBack makes n used permits of a pool unused, as if they had never been used, as far as they lacked.
func (l *Ledger) comeBack(n, lacked int64) {
	units := min(n*l.s.Rate.Permit, lacked)
	l.s.Next = l.s.Rate.shift(l.s.Next, -units)
	l.eachLack(func(lack int64) int64 { return max(0, lack-units) })
}

// eachLack changes what is remembered of how much lacked.
func (l *Ledger) eachLack(change func(int64) int64) {
	for _, acc := range l.s.Accounts {
		acc.Lack = change(acc.Lack)
		for i := range acc.Lows {
			acc.Lows[i].Lack = change(acc.Lows[i].Lack)
		}
	}
}

// room keeps a pool from being fuller at a moment than its burst less what is out.
func (l *Ledger) room(at, out int64) {
	if full := l.s.Rate.after(Point{US: at}, out); l.s.Next.before(full) {
		l.s.Next = full
	}
}

// askPool takes back what the holder does not keep, and what calls did not use, and leases permits of what is left.
func (l *Ledger) askPool(now int64, acc *account, a *Ask) {
	was, back := *acc, max(0, a.Back-acc.Back)
	owed, unspent := acc.owes(a.N)
	l.s.Next = l.s.Rate.after(l.s.Next, owed)
	l.comeBack(back, acc.lacked(a.Since))
	l.comeBack(unspent, acc.Lack)
	acc.N, acc.Spent, acc.Back, acc.Lapsed = a.N, min(a.Spent, a.N), acc.Back+back, 0
	acc.Told = max(acc.Told, a.At)
	l.fill(now)

	c := report(l.s.Claims, a, now)
	n := l.grant(now, c, a, l.left(now))
	if n > 0 {
		acc.N += n
		l.s.Next = l.s.Rate.after(l.s.Next, n)
		c.granted(n, now)
	}
	if acc.out() > 0 && (n > 0 || acc.Until < now+poolLease.Microseconds()*3/4) {
		acc.Until = now + poolLease.Microseconds()
	}
	acc.Over = c.Want > 0 && l.left(now) < max(1, a.Least)
	if acc.N != was.N || acc.Back != was.Back || acc.Until != was.Until || acc.Over != was.Over {
		l.changed(acc)
	}
}

// pending is the permits of calls that may leave until a moment.
type pending struct{ until, n int64 }

// leaving is how exactly a holder of a pool knows when calls leave, in µs: it would else have to know each.
const leaving = 50_000

// leftBy returns until when a call has certainly left whose slot ends at a moment.
func leftBy(latest int64) int64 {
	at := latest + leaving - 1
	return at - at%leaving
}

// leave notes that a call of n permits leaves, whose slot ends at a moment.
func (h *Holder) leave(latest, n int64) {
	at := leftBy(latest)
	for i := range h.pending {
		if h.pending[i].until == at {
			h.pending[i].n += n
			return
		}
	}
	h.pending = append(h.pending, pending{at, n})
}

// left returns how many permits were spent by calls that have left.
func (h *Holder) left(now int64) int64 {
	h.pending = slices.DeleteFunc(h.pending, func(p pending) bool { return p.until <= now })
	n := h.spent
	for _, p := range h.pending {
		n -= p.n
	}
	return n
}

// Return gives back n permits that a call of a pool took and did not use. latest is the end of its slot.
func (h *Holder) Return(n, latest int64) {
	at := leftBy(latest)
	for i := range h.pending {
		if h.pending[i].until == at {
			h.pending[i].n = max(0, h.pending[i].n-n) // they do not leave any more
		}
	}
	if h.since == 0 || at < h.since {
		h.since = at
	}
	h.back += n
}
