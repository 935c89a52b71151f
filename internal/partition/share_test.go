package partition

import (
	"math"
	"testing"
)

func wantParts(t *testing.T, spent map[*Holder]int64, want int64) {
	t.Helper()
	for h, got := range spent {
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%s got %d permits; want about %d", h.Member, got, want)
		}
	}
}

// TestBacklogAfterFirstJobs: what a member got while it had first jobs alone does not count once its tenants have backlog,
// neither for it nor for one that comes.
func TestBacklogAfterFirstJobs(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(10_000))
	a, b, c := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}, &Holder{Member: "c", ID: "c"}
	drive(l, &now, 20, map[*Holder]float64{a: 0}, nil)
	drive(l, &now, 4, map[*Holder]float64{a: 0, b: 0, c: 1000}, nil)
	wantParts(t, drive(l, &now, 60, map[*Holder]float64{a: 1000, b: 1000, c: 1000}, nil), 10_000)
}

// TestBacklogBesideFirstJobs: a member with first jobs that it has not counted yet does not take all of a slow limit.
func TestBacklogBesideFirstJobs(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(10))
	a, b := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}
	drive(l, &now, 20, map[*Holder]float64{b: 1}, nil)
	wantParts(t, drive(l, &now, 400, map[*Holder]float64{a: 0, b: 1}, nil), 100)
}

// TestTwoThatCome: of two members that come before either got anything, none gets all that the others had before.
func TestTwoThatCome(t *testing.T) {
	now := int64(start)
	l := newLedger(t, perSecond(10_000))
	a, b, c := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}, &Holder{Member: "c", ID: "c"}
	drive(l, &now, 40, map[*Holder]float64{a: 1}, nil)
	for _, h := range []*Holder{a, b, c} { // a gets all that there is
		h.Accept(l.Ask(now, h.Ask(now, Need{Permits: 1_000_000, Weight: 1})))
	}
	wantParts(t, drive(l, &now, 60, map[*Holder]float64{a: 1, b: 1, c: 1}, nil), 10_000)
}
