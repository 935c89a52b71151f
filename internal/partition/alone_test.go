package partition

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/limitlua"
)

// TestAlone: when a limit is not shared any more, what was spent of its leases is used, and nothing else.
func TestAlone(t *testing.T) {
	rate := perSecond(100) // a permit takes 10 ms
	l := newLedger(t, rate)
	a, b := &Holder{Member: "a", ID: "a:1"}, &Holder{Member: "b", ID: "b:2"}
	ask := func(h *Holder, n int64) {
		h.Accept(l.Ask(start, h.Ask(start, Need{Permits: n, Weight: 1})))
	}
	ask(a, 3)
	ask(b, 4)
	first := l.s.Accounts["a:1"].Spans[0]
	second := l.s.Accounts["b:2"].Spans[0]
	// leaseOf is a bucket that has spent n permits of a span.
	leaseOf := func(s Span, n int64) limitlua.Lease {
		next := s.after(s.From, n)
		return limitlua.Lease{Last: start + n, Spans: []limitlua.LeaseSpan{{
			Permit: s.Permit, Flow: s.Flow, From: s.From.US, FromUnits: s.From.Units, Next: next.US, NextUnits: next.Units, KeepUntil: s.End.US,
		}}}
	}
	until := func(p Point, last int64) string {
		return fmt.Sprintf("r %d %d %d %d %d %d 0", p.US, p.Units, first.Permit, first.Flow, last, int64(start))
	}
	for _, c := range []struct {
		what   string
		leases map[string]limitlua.Lease
		want   string
	}{
		{"the last lease was not spent, and the one before in part", map[string]limitlua.Lease{"a:1": leaseOf(first, 1), "b:2": leaseOf(second, 0)}, until(first.after(first.From, 1), start+1)},
		{"the last lease was spent in part", map[string]limitlua.Lease{"a:1": leaseOf(first, 0), "b:2": leaseOf(second, 2)}, until(second.after(second.From, 2), start+2)},
		{"nobody knows what was spent of the last one", map[string]limitlua.Lease{"a:1": leaseOf(first, 1)}, until(second.End, start+1)},
		{"one that never asked had used more", map[string]limitlua.Lease{"b:2": leaseOf(second, 0), "a:1": leaseOf(first, 0), "c:3": leaseOf(second, 9)}, until(second.after(second.From, 9), start+9)},
	} {
		if got := l.Alone(start, c.leases); got != c.want {
			t.Errorf("%s: %s; want %s", c.what, got, c.want)
		}
	}

	l = NewLedger(limitlua.Spec{Algorithm: "fw", Permit: 1, Flow: 1, Burst: 100, Window: 1_000_000_000})
	a, b = &Holder{Member: "a", ID: "a:1"}, &Holder{Member: "b", ID: "b:2"}
	ask(a, 30)
	ask(b, 20)
	from, ends := l.s.Start, l.s.End
	held := l.s.Accounts["b:2"].N
	if held == 0 || l.s.Accounts["a:1"].N == 0 {
		t.Fatal("nothing is leased")
	}
	quota := func(spent int64) limitlua.Lease {
		return limitlua.Lease{N: 30, Spent: spent, From: from, Ends: ends, Last: start + 1}
	}
	used := func(n int64) string { return fmt.Sprintf("f %d %d %d %d %d", from, ends, n, start+1, int64(start)) }
	late := quota(9)
	late.From--
	for _, c := range []struct {
		what   string
		leases map[string]limitlua.Lease
		want   string
	}{
		{"all is known", map[string]limitlua.Lease{"a:1": quota(5), "b:2": quota(3)}, used(8)},
		{"one is gone", map[string]limitlua.Lease{"a:1": quota(5)}, used(5 + held)},
		{"one has another window", map[string]limitlua.Lease{"a:1": quota(5), "b:2": late}, used(5 + held)},
		{"one never asked", map[string]limitlua.Lease{"a:1": quota(5), "b:2": quota(3), "c:3": quota(7)}, used(15)},
	} {
		if got := l.Alone(start, c.leases); got != c.want {
			t.Errorf("%s: %s; want %s", c.what, got, c.want)
		}
	}
	if n := l.Unspent(map[string]limitlua.Lease{"b:2": quota(held - 1), "a:1": late, "c:3": quota(7)}); n != 1 {
		t.Errorf("%d permits are not spent; want 1", n)
	}
	never := NewLedger(l.spec)
	if got := never.Alone(start, map[string]limitlua.Lease{"c:3": quota(7)}); got != used(7) {
		t.Errorf("before the first ask: %s; want %s", got, used(7))
	}
}

// TestPoolAlone: of a pool that is not shared any more, what was spent is used, and what nobody knows of.
func TestPoolAlone(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.ask(r.a, 4)
	r.ask(r.b, 3)
	lease := func(spent int64) limitlua.Lease { return limitlua.Lease{Spent: spent, Last: start} }
	for _, c := range []struct {
		what   string
		leases map[string]limitlua.Lease
		used   int64
	}{
		{"all is known", map[string]limitlua.Lease{"a": lease(1), "b": lease(2)}, 3},
		{"one is gone", map[string]limitlua.Lease{"a": lease(1)}, 1 + 3},
		{"one never asked", map[string]limitlua.Lease{"a": lease(1), "b": lease(0), "c": lease(4)}, 5},
	} {
		if got, want := r.l.Alone(r.now, c.leases), limitlua.Rate(r.now+c.used*second, 0, 1_000_000, 1, start, r.now); got != want {
			t.Errorf("%s: %s; want %s", c.what, got, want)
		}
	}
	if n := r.l.Unspent(map[string]limitlua.Lease{"a": lease(1)}); n != 3 {
		t.Errorf("%d permits are not spent; want 3", n)
	}
}

// TestUsedBeforeItWasShared: what the first ask of a bucket says that it used is leased to nobody.
func TestUsedBeforeItWasShared(t *testing.T) {
	l := newLedger(t, perSecond(100))
	owed := Point{US: start + 50_000}
	l.Ask(start, Ask{Member: "a", Holder: "a:1", Keep: []Span{{From: owed, End: owed}}})
	b := &Holder{Member: "b", ID: "b:2"}
	b.Accept(l.Ask(start, b.Ask(start, Need{Permits: 10, Weight: 1})))
	for _, s := range b.spans {
		if s.From.before(owed) {
			t.Errorf("a lease begins at %v, before %v", s.From, owed)
		}
	}
	if b.Held() == 0 {
		t.Error("nothing is leased")
	}

	l = NewLedger(limitlua.Spec{Algorithm: "cc", Permit: 1, Flow: 1, Burst: 10, Lease: 1_000_000_000})
	l.Ask(start, Ask{Member: "a", Holder: "a:1", N: 7, Weight: 1})
	// The same calls, under another name: its bucket was lost.
	l.Ask(start, Ask{Member: "a", Holder: "a:2", N: 7, Weight: 1})
	answer := l.Ask(start, Ask{Member: "b", Holder: "b:1", Want: 10, Weight: 1})
	if answer.N > 3 {
		t.Errorf("%d calls beside 7 of 10", answer.N)
	}
	if n := l.taken(); n != 7+answer.N || answer.N == 0 {
		t.Errorf("%d calls are leased; want 7 and %d", n, answer.N)
	}
}
