package partition

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

const start = 1_795_000_000_000_000

func newLedger(t *testing.T, limit limitlua.Limit) *Ledger {
	t.Helper()
	return NewLedger(limit.Spec(true, Horizon))
}

func perSecond(count int64) limitlua.Limit {
	return limitlua.Limit{Algorithm: "leaky_bucket", Count: count, Period: time.Second}
}

// drive lets members with endless backlog ask every 50 ms and spend what they get, and returns
// how many permits each spent. first of the permits of a member go to first jobs.
func drive(l *Ledger, now *int64, rounds int, weights map[*Holder]float64, first map[*Holder]int64) map[*Holder]int64 {
	spent, firsts := map[*Holder]int64{}, map[*Holder]int64{}
	for range rounds {
		for h, weight := range weights {
			firsts[h] += first[h]
			h.Accept(l.Ask(*now, h.Ask(*now, Need{Permits: 1_000_000, Weight: weight, Firsts: firsts[h]})))
			for {
				if _, ok := h.Take(*now, 10_000, 1); !ok {
					break
				}
				spent[h]++
			}
		}
		*now += Every.Microseconds()
	}
	return spent
}

// TestShares: members with backlog get permits by weight, after those for first jobs; one that
// had all while it was alone earns nothing by it, and an idle one earns no credit.
func TestShares(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(10_000))
	a, b, c := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}, &Holder{Member: "c", ID: "c"}
	near := func(what string, got int64, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 0.05*want {
			t.Errorf("%s: %d permits; want about %.0f", what, got, want)
		}
	}
	spent := drive(l, &now, 200, map[*Holder]float64{a: 1, b: 3}, nil)
	near("weight 1 of 4", spent[a], 25_000)
	near("weight 3 of 4", spent[b], 75_000)
	spent = drive(l, &now, 200, map[*Holder]float64{a: 1, b: 3}, map[*Holder]int64{a: 100})
	near("weight 1 of 4 and 100 first jobs in each round", spent[a], 20_000+20_000)
	drive(l, &now, 20, map[*Holder]float64{b: 1}, nil)
	spent = drive(l, &now, 20, map[*Holder]float64{b: 1, c: 1}, nil)
	near("one that comes", spent[c], 5_000)
}

// TestNothingFarBeyondTheHorizon: permits that are free, but too few for a call, are not replaced
// by others beyond the horizon, of which [Ledger.Lost] would not know.
func TestNothingFarBeyondTheHorizon(t *testing.T) {
	const least = 2
	limit := perSecond(100)
	limit.Capacity = least
	l := newLedger(t, limit)
	a := &Holder{Member: "a", ID: "a"}
	a.Accept(l.Ask(start, a.Ask(start, Need{Permits: 1000, Weight: 1})))
	a.Accept(l.Ask(start, a.Ask(start, Need{Permits: a.Held() - 1, Weight: 1}))) // gives one back
	far := l.s.Next
	held := a.Held()
	for range 5 {
		a.Accept(l.Ask(start, a.Ask(start, Need{Permits: held + least, Least: least, Weight: 1})))
	}
	if l.s.Next != far || a.Held() != held {
		t.Errorf("%d permits are leased until %v; want %d until %v", a.Held(), l.s.Next, held, far)
	}
}

// TestTooShortIsPassedOver: what is free and too short for a call does not hide what is long enough.
func TestTooShortIsPassedOver(t *testing.T) {
	const least = 2
	limit := perSecond(100)
	limit.Capacity = least
	l := newLedger(t, limit)
	a, b, c := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}, &Holder{Member: "c", ID: "c"}
	ask := func(h *Holder, permits, least int64) {
		h.Accept(l.Ask(start, h.Ask(start, Need{Permits: permits, Least: least, Weight: 1})))
	}
	ask(a, 3, 1)
	ask(b, 5, 1)
	ask(c, 1000, 1)
	ask(a, 2, 1) // each gives back its last ones
	ask(b, 1, 1)
	ask(c, c.Held()+4, least)
	if len(l.s.Free) != 1 || l.s.Rate.permits(l.s.Free[0].From, l.s.Free[0].End) != 1 {
		t.Errorf("free: %+v; want one permit, because all others are long enough", l.s.Free)
	}
}

// TestAhead: a holder that can ask only every 300 ms gets all of a rate, if it says so.
func TestAhead(t *testing.T) {
	now, spent := int64(start), 0
	l, h := newLedger(t, perSecond(100)), &Holder{Member: "a", ID: "a"}
	for range 20 {
		a := h.Ask(now, Need{Permits: 1_000, Weight: 1})
		a.Ahead = 250_000
		h.Accept(l.Ask(now, a))
		for range 10 {
			for {
				if _, ok := h.Take(now, 25_000, 1); !ok {
					break
				}
				spent++
			}
			now += 30_000
		}
	}
	if spent < 580 {
		t.Errorf("%d of 600 permits", spent)
	}
}

// TestGivenBack: what a member gives back is what another gets, and a member that says
// no more does not hold up the others.
func TestGivenBack(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(1_000))
	a, b := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}
	a.Accept(l.Ask(now, a.Ask(now, Need{Permits: 1_000})))
	had := a.Held()
	if had < 100 {
		t.Fatalf("alone, it got %d permits", had)
	}
	if b.Accept(l.Ask(now, b.Ask(now, Need{Permits: 1_000}))); b.Held() > 1 {
		t.Fatalf("another got %d more", b.Held())
	}
	a.Accept(l.Ask(now, a.Ask(now, Need{})))
	if a.Held() != 0 {
		t.Errorf("%d permits are left after all were given back", a.Held())
	}
	if b.Accept(l.Ask(now, b.Ask(now, Need{Permits: 1_000}))); b.Held() < had {
		t.Errorf("of %d permits that were given back, another got %d", had, b.Held())
	}
}

// TestAfterLost: holders of a lost ledger get permits again, and from then on not more than
// before; so does a ledger whose clock was set back.
func TestAfterLost(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(1_000))
	h := &Holder{Member: "a", ID: "a"}
	drive(l, &now, 20, map[*Holder]float64{h: 1}, nil)
	l = newLedger(t, perSecond(1_000))
	l.Lost(now, 0)
	if spent := drive(l, &now, 20, map[*Holder]float64{h: 1}, nil)[h]; spent < 700 || spent > 1_000 {
		t.Errorf("%d permits in the second after the ledger was lost; want 700 to 1000", spent)
	}
	now -= time.Hour.Microseconds()
	h = &Holder{Member: "a", ID: "b"}
	if spent := drive(l, &now, 20, map[*Holder]float64{h: 1}, nil)[h]; spent < 700 || spent > 1_000 {
		t.Errorf("%d permits in the second after the clock was set back; want 700 to 1000", spent)
	}
}

// TestChangedRate: a ledger that is read under another rate goes on from what was leased.
func TestChangedRate(t *testing.T) {
	for _, rate := range []int64{100, 10_000} {
		now := int64(start)
		l := newLedger(t, perSecond(1_000))
		h := &Holder{Member: "a", ID: "a"}
		drive(l, &now, 20, map[*Holder]float64{h: 1}, nil)
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		was := l.s.Next
		l = newLedger(t, perSecond(rate))
		if err := json.Unmarshal(text, l); err != nil {
			t.Fatal(err)
		}
		h.Accept(l.Ask(now, h.Ask(now, Need{Permits: 1_000})))
		if next := l.s.Next; next.before(was) {
			t.Errorf("%d/s: what is leased ended at %v, and now at %v", rate, was, next)
		}
		drive(l, &now, 40, map[*Holder]float64{h: 1}, nil)
		if spent := drive(l, &now, 20, map[*Holder]float64{h: 1}, nil)[h]; math.Abs(float64(spent-rate)) > 0.05*float64(rate) {
			t.Errorf("%d permits in a second at %d/s", spent, rate)
		}
	}
}
