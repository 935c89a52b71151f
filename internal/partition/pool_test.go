package partition

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// poolRig is a pool of ten permits, one of which flows back each second, and holders of it.
type poolRig struct {
	t    *testing.T
	l    *Ledger
	now  int64
	a, b *Holder
}

const second = int64(time.Second / time.Microsecond)

func newPool(t *testing.T) *poolRig {
	return &poolRig{t: t, l: NewLedger(poolOf(10)), now: start, a: &Holder{Member: "a", ID: "a", Pool: true}, b: &Holder{Member: "b", ID: "b", Pool: true}}
}

func poolOf(burst int64) limitlua.Spec {
	spec := limitlua.Limit{Algorithm: "token_bucket", Count: 1, Period: time.Second, Burst: burst}.Spec(true, Horizon)
	spec.Pool = true
	return spec
}

// ask lets a holder ask for permits. If it did not lately, it asks first, so that it is not new any more.
func (r *poolRig) ask(h *Holder, permits int64) {
	ask := func(permits int64) {
		h.Accept(r.l.Ask(r.now, h.Ask(r.now, Need{Permits: permits, Weight: 1})))
	}
	if c := r.l.s.Claims[h.Member]; permits > 0 && (c == nil || r.now-c.Asked > silent.Microseconds()) {
		ask(h.Held())
		r.now += newcomer.Microseconds()
	}
	ask(permits)
}

// gets lets a holder ask for all permits, and checks how many it has then.
func (r *poolRig) gets(h *Holder, want int64) {
	r.t.Helper()
	if r.ask(h, 100); h.Held() != want {
		r.t.Errorf("%s has %d permits; want %d", h.Member, h.Held(), want)
	}
}

func (r *poolRig) spend(h *Holder, n int64) Slot {
	r.t.Helper()
	slot, ok := h.Spend(r.now, 20_000, n)
	if !ok {
		r.t.Fatalf("%s cannot spend %d permits", h.Member, n)
	}
	return slot
}

// spent spends permits, and tells the ledger when the call has left.
func (r *poolRig) spent(h *Holder, n int64) Slot {
	r.t.Helper()
	slot := r.spend(h, n)
	r.now += 2 * leaving
	r.ask(h, 0)
	return slot
}

// TestPoolIsNoFullerThanItsBurst: what is leased and not spent has its room in the bucket.
func TestPoolIsNoFullerThanItsBurst(t *testing.T) {
	r := newPool(t)
	r.ask(r.a, 6)
	for range 100 {
		r.now += second
		r.ask(r.a, 6)
	}
	r.gets(r.b, 4)
	r.spent(r.a, 6)
	r.now += second
	r.gets(r.b, 5)
}

// TestCallsThatHaveNotLeft: until a call has certainly left, its permits have room in the bucket.
func TestCallsThatHaveNotLeft(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.gets(r.a, 10)
	r.ask(r.b, 1)
	r.now += leaving - r.now%leaving
	r.spend(r.a, 10) // it leaves within 20 ms, which the ledger knows 50 ms later
	r.ask(r.a, 0)
	r.l.SetLimit(limitlua.Spec{Algorithm: "tb", Pool: true, Permit: 1000, Flow: 1, Burst: 10}, r.now) // one each ms
	r.now += 49_000
	r.ask(r.a, 0)
	r.gets(r.b, 0)
	r.now += 1_000
	r.ask(r.a, 0)
	r.now += 5_000
	r.gets(r.b, 5)
}

// TestUnusedComesBack: what a call did not use comes back, but no more than lacked in the bucket at any time since it
// left: had the call not taken it, the bucket would have been full.
func TestUnusedComesBack(t *testing.T) {
	for _, c := range []struct{ seconds, more, want int64 }{
		{0, 0, 1 + 5},
		{7, 7, 1 + 3}, // almost two lacked until it was known that the other call had left, and more than two flowed back since
		{100, 10, 0 + 1},
	} {
		r := newPool(t)
		r.now += 100 * second
		r.gets(r.a, 10)
		latest := r.spent(r.a, 9).Latest
		if c.more > 0 {
			r.now += c.seconds*second - 3*leaving
			r.gets(r.b, c.more)
			r.spent(r.b, c.more)
			r.now += second
		}
		for _, n := range []int64{2, 1, 1, 1} {
			r.a.Return(n, latest)
			r.ask(r.a, 0)
		}
		r.gets(r.b, c.want)
	}
}

// TestUnusedBeforeItLeft: what comes back before a call must have left has no room for itself any more.
func TestUnusedBeforeItLeft(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.gets(r.a, 10)
	latest := r.spend(r.a, 9).Latest
	r.a.Return(7, latest)
	r.ask(r.a, 0)
	r.now += 2 * leaving
	r.ask(r.a, 0)
	r.gets(r.b, 8)
}

// TestLeaseOfAPoolEnds: permits of a holder that does not ask any more count as spent, up to when they could be. Those
// that it had not spent come back when it asks again.
func TestLeaseOfAPoolEnds(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.gets(r.a, 10)
	r.now += poolLease.Microseconds() - 20_000
	if _, ok := r.a.Spend(r.now, 20_000, 1); ok {
		t.Error("a call may leave after the lease ended")
	}
	r.now += 3*second + 20_000 // nobody asks meanwhile
	r.gets(r.b, 3)
	r.ask(r.b, 0)
	again := r.a.Ask(r.now, Need{Permits: 3, Weight: 1})
	if again.Want != 3 {
		t.Errorf("it wants %d permits; want 3, as it may spend none of before", again.Want)
	}
	r.a.Accept(r.l.Ask(r.now, again))
	if r.a.Held() != 0 {
		t.Errorf("it has %d permits of before", r.a.Held())
	}
	r.gets(r.a, 10) // 3 had flowed back, and 7 lacked
}

// TestSpentBeforeItsLeaseEnded: what a holder spent before its lease ended is used once, although the ledger learns of it
// afterwards, and the rest comes back as far as it lacked ever since.
func TestSpentBeforeItsLeaseEnded(t *testing.T) {
	for _, c := range []struct{ hours, others, want int64 }{
		{0, 0, 6}, // of ten, four are spent
		{3, 0, 9},
		{3, 2, 7},
		{8, 0, 10}, // two lacked still: two of the six come back
		{8, 8, 2},
		{8, 7, 3},
		{100, 10, 0}, // all had flowed back
		{100, 4, 6},
	} {
		spec := limitlua.Limit{Algorithm: "token_bucket", Count: 1, Period: time.Hour, Burst: 10}.Spec(true, Horizon)
		spec.Pool = true
		r := newPool(t)
		r.l = NewLedger(spec)
		r.gets(r.a, 10)
		r.spend(r.a, 4)
		r.now += (poolLease + time.Duration(c.hours)*time.Hour).Microseconds()
		if c.others > 0 {
			if r.ask(r.b, c.others); r.b.Held() != c.others {
				t.Fatalf("after %d hours there are %d permits; want %d", c.hours, r.b.Held(), c.others)
			}
			r.spent(r.b, c.others)
		}
		r.ask(r.a, 0)
		if r.gets(r.a, c.want); t.Failed() {
			t.Fatalf("after %d hours, %d were others'", c.hours, c.others)
		}
	}
}

// TestUnusedAfterTheLeaseEnded: what a call that the ledger did not know of used less than it took comes back no more
// than what lacked since its lease ended.
func TestUnusedAfterTheLeaseEnded(t *testing.T) {
	spec := limitlua.Limit{Algorithm: "token_bucket", Count: 1, Period: 10 * time.Second, Burst: 10}.Spec(true, Horizon)
	spec.Pool = true
	for _, c := range []struct{ tens, others, want int64 }{{1, 0, 4}, {11, 10, 0}} {
		r := newPool(t)
		r.l = NewLedger(spec)
		r.gets(r.a, 10)
		latest := r.spend(r.a, 10).Latest
		r.a.Return(3, latest)
		r.now += (poolLease + time.Duration(c.tens)*10*time.Second).Microseconds()
		if c.others > 0 {
			r.gets(r.b, c.others)
			r.spent(r.b, c.others)
		}
		r.ask(r.a, 0)
		r.ask(r.a, 0)
		if left := r.l.left(r.now); left != c.want {
			t.Errorf("after %d0 s, and %d permits of others, %d are left; want %d", c.tens, c.others, left, c.want)
		}
	}
}

// TestTwoLeasesThatEnded: a pool that was full between the ends of two leases gives back nothing of the first one.
func TestTwoLeasesThatEnded(t *testing.T) {
	spec := limitlua.Limit{Algorithm: "token_bucket", Count: 5, Period: time.Second, Burst: 10}.Spec(true, Horizon)
	spec.Pool = true
	r := newPool(t)
	r.l = NewLedger(spec)
	r.now += 100 * second
	r.ask(r.a, 5)
	r.ask(r.b, 5)
	r.now = r.a.until - second/10
	r.ask(r.b, 5) // its lease is renewed
	if r.a.Held() != 5 || r.b.Held() != 5 {
		t.Fatalf("%d and %d permits; want 5 each", r.a.Held(), r.b.Held())
	}
	r.now = r.b.until - 30_000
	r.spend(r.b, 5)
	r.now = r.b.until + 10_000 // nobody asked since
	r.ask(r.a, 0)
	r.ask(r.a, 0)
	if left := r.l.left(r.now); left != 5 {
		t.Errorf("%d permits are left, just after 5 of 10 were spent", left)
	}
}

// TestLostPool: a lost ledger leases nothing until what was leased is over, and no more than flowed back since.
func TestLostPool(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.gets(r.a, 10)
	r.l.Lost(r.now, 500_000)
	r.now += poolLease.Microseconds() + 500_000
	r.gets(r.b, 0)
	r.now += second
	r.gets(r.b, 1)
}

// TestForgottenHolderOfAPool: what a holder spent before the ledger knew it is not owed once more.
func TestForgottenHolderOfAPool(t *testing.T) {
	r := newPool(t)
	for range 20 {
		r.now += 10 * second
		r.gets(r.a, 10)
		r.spent(r.a, 10)
	}
	r.now += 2 * forgotten.Microseconds()
	r.ask(r.b, 0)
	if r.l.s.Accounts["a"] != nil {
		t.Fatal("it is not forgotten")
	}
	r.ask(r.a, 0)
	r.now += leaving
	r.ask(r.a, 0)
	r.now += second
	r.gets(r.b, 10)
}

// TestPoolOfASlowRedis: what flows back while an answer is on its way is not leased with it.
func TestPoolOfASlowRedis(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.gets(r.a, 10)
	r.spent(r.a, 10)
	r.ask(r.b, 1)
	r.now += second
	a := r.b.Ask(r.now, Need{Permits: 10, Weight: 1})
	a.Ahead = 3 * second
	if r.b.Accept(r.l.Ask(r.now+a.Ahead, a)); r.b.Held() != 1 {
		t.Errorf("%d permits; want the one that flowed back", r.b.Held())
	}
}

// TestUsedBeyondThePool: what calls turned out to have used beyond what they took is owed.
func TestUsedBeyondThePool(t *testing.T) {
	r := newPool(t)
	r.now += 100 * second
	r.ask(r.a, 2)
	r.spend(r.a, 2)
	r.a.spent += 5
	r.ask(r.a, 0)
	r.gets(r.b, 3)
}

// TestPoolThatWasUsedBefore: what was used of a bucket before its permits were leased is.
func TestPoolThatWasUsedBefore(t *testing.T) {
	r := newPool(t)
	r.l = NewLedger(poolOf(10))
	r.a.spent, r.a.version = 7, 0
	r.ask(r.a, 0)
	r.gets(r.b, 3)
}

// TestGrantsAreOfWholeCalls: members of different weights whose calls take many permits get as many as their weight
// says. What is too little for a call would be given back, and count as if it had been used.
func TestGrantsAreOfWholeCalls(t *testing.T) {
	l := NewLedger(limitlua.Spec{Algorithm: "tb", Pool: true, Permit: 1000, Flow: 1, Burst: 500}) // one each ms
	members := map[string]*Holder{"a": {Member: "a", ID: "a", Pool: true}, "b": {Member: "b", ID: "b", Pool: true}}
	calls, weights := map[string]float64{}, map[string]float64{"a": 1, "b": 4}
	for now := int64(start); now < start+20*second; now += Every.Microseconds() {
		for _, name := range []string{"a", "b"} {
			h := members[name]
			h.Accept(l.Ask(now, h.Ask(now, Need{Permits: 2000, Least: 20, Weight: weights[name]})))
			for {
				if _, ok := h.Spend(now, 0, 20); !ok {
					break
				}
				calls[name]++
			}
		}
	}
	if ratio := calls["b"] / calls["a"]; ratio < 3.9 || ratio > 4.1 {
		t.Errorf("%v calls of weight 4 for each one of weight 1, of %v", ratio, calls)
	}
	if sum := calls["a"] + calls["b"]; sum < 1000 {
		t.Errorf("only %v calls", sum)
	}
}
