package partition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/limitlua"
)

// world is a ledger and its holders, with everything that can go wrong between them: asks and
// answers are lost, come late, twice and in any order; holders stop, die and begin again; the
// ledger is stored and read again, or lost after it was set back to an older state. What was
// spent is recorded, and compared with the limit.
type world struct {
	t       *rapid.T
	random  *rand.Rand
	limit   limitlua.Limit
	pool    bool
	ledger  *Ledger
	old     []byte // an earlier state of the ledger
	now     int64
	stride  int64 // of time, in µs, in each step
	holders []*Holder
	hang    map[*Holder]int64 // until when
	lives   int
	asks    []Ask
	answers []delivery
	calls   []call
}

type delivery struct {
	to string
	Answer
}

// call is a call of n permits that leaves at a moment and takes length µs.
type call struct{ at, n, length int64 }

func newWorld(t *rapid.T, limit limitlua.Limit, pool bool, now int64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), limit: limit, pool: pool, now: now, stride: 20_000}
	w.ledger = NewLedger(w.spec())
	w.old, _ = json.Marshal(w.ledger)
	for i := range rapid.IntRange(1, 4).Draw(t, "members") {
		w.holders = append(w.holders, w.life(fmt.Sprintf("q@%d", i)))
	}
	return w
}

func (w *world) life(member string) *Holder {
	w.lives++
	return &Holder{Member: member, ID: fmt.Sprintf("%s/%d", member, w.lives), Pool: w.pool}
}

func (w *world) spec() limitlua.Spec {
	spec := w.limit.Spec(true, Horizon)
	spec.Pool = w.pool
	return spec
}

// roll returns 0 to n-1. rapid draws only the seed: it prefers small numbers, with which hardly
// anything would be spent.
func (w *world) roll(n int64) int64 { return w.random.Int64N(n) }

// step does one random thing. spend uses what a holder has.
func (w *world) step(spend func(h *Holder)) {
	i := w.roll(int64(len(w.holders)))
	h := w.holders[i]
	if w.now < w.hang[h] {
		w.now += w.roll(w.stride)
		return
	}
	switch what := w.roll(100); {
	case what < 25:
		need := Need{Permits: w.roll(60) - 15, Least: w.roll(3), Weight: float64(w.roll(5)), Firsts: w.roll(1000)}
		a := h.Ask(w.now, need)
		if w.limit.Location != nil {
			a.Calendar = w.limit.Windows(time.UnixMicro(w.now), 1)
		}
		w.asks = append(w.asks, a)
	case what < 45 && len(w.asks) > 0:
		// The latest one, or any one, and perhaps not for the last time.
		at := len(w.asks) - 1
		if w.roll(3) == 0 {
			at = int(w.roll(int64(len(w.asks))))
		}
		a := w.asks[at]
		w.answers = append(w.answers, delivery{a.Holder, w.ledger.Ask(w.now, a)})
		if w.roll(4) > 0 {
			w.asks = slices.Delete(w.asks, at, at+1)
		}
	case what < 65 && len(w.answers) > 0:
		at := len(w.answers) - 1
		if w.roll(3) == 0 {
			at = int(w.roll(int64(len(w.answers))))
		}
		for _, h := range w.holders {
			if h.ID == w.answers[at].to {
				h.Accept(w.answers[at].Answer)
			}
		}
		if w.roll(4) > 0 {
			w.answers = slices.Delete(w.answers, at, at+1)
		}
	case what < 90:
		spend(h)
	case what < 92:
		w.holders[i] = w.life(h.Member)
	case what < 93:
		w.old, _ = json.Marshal(w.ledger)
	case what < 94:
		text, err := json.Marshal(w.ledger)
		w.read(text, err)
	case what < 95 && w.roll(5) == 0:
		w.read(w.old, nil)
		w.ledger.Lost(w.now, 0)
	}
	w.now += w.roll(3) * w.roll(w.stride)
}

func (w *world) read(text []byte, err error) {
	w.ledger = NewLedger(w.spec())
	if err != nil || json.Unmarshal(text, w.ledger) != nil {
		w.t.Fatalf("%v: %s", err, text)
	}
}

// TestRateUnderFaults: no window has more calls than burst + rate × (its length + 1 µs), whose
// last part is that moments are whole µs.
func TestRateUnderFaults(t *testing.T) {
	cases, spent := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		limit := limitlua.Limit{Count: rapid.Int64Range(1, 50).Draw(t, "count"), Period: time.Duration(rapid.Int64Range(1, 500_000).Draw(t, "period")) * time.Microsecond}
		most := rapid.Int64Range(1, 20).Draw(t, "most")
		if rapid.Bool().Draw(t, "bucket") {
			limit.Algorithm, limit.Burst = "token_bucket", most
		} else {
			limit.Algorithm, limit.Capacity = "leaky_bucket", most
		}
		w := newWorld(t, limit, false, 1_795_000_000_000_000)
		w.stride = 3_000 // many steps in a horizon
		costliest := int64(1)
		for range 1200 {
			w.step(func(h *Holder) {
				for range w.roll(6) {
					n, pickup := int64(1), w.roll(20_000)
					if w.roll(4) == 0 {
						n += w.roll(most)
					}
					slot, ok := h.Take(w.now, pickup, n)
					if !ok {
						continue
					}
					if slot.Earliest < w.now || slot.Latest < slot.Earliest {
						t.Fatalf("a slot of %+v at %d", slot, w.now)
					}
					costliest = max(costliest, n)
					// At the first or last moment of its slot, or between; or never.
					at := slot.Earliest
					if w.roll(2) > 0 {
						at += w.roll(slot.Latest - slot.Earliest + 1)
					}
					if w.roll(8) > 0 {
						w.calls = append(w.calls, call{at: at, n: n})
					}
				}
			})
		}
		burst := limit.Burst
		if burst == 0 {
			burst = costliest
		}
		p, r := limitlua.Units(limit.Count, limit.Period)
		if over := excess(w.calls, p, r, burst); over > 0 {
			t.Fatalf("%+v: %d units over, of %d for a permit", limit, over, p)
		}
		spent += len(w.calls)
	})
	if !t.Failed() && spent < 10*cases {
		t.Errorf("only %d calls in %d cases", spent, cases)
	}
}

// TestPoolUnderFaults: no window has more permits used than burst + rate × (its length + 1 µs), whatever calls give back.
func TestPoolUnderFaults(t *testing.T) {
	cases, spent, back, full := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		limit := limitlua.Limit{
			Algorithm: "token_bucket", Count: rapid.Int64Range(1, 500).Draw(t, "count"), Period: time.Second, Burst: rapid.Int64Range(5, 200).Draw(t, "burst"),
		}
		w := newWorld(t, limit, true, 1_795_000_000_000_000)
		w.stride = rapid.SampledFrom([]int64{10_000, 50_000, 200_000}).Draw(t, "stride")
		type flight struct {
			h      *Holder
			call   int // in w.calls
			latest int64
		}
		var flights []flight
		for step := range 2400 {
			w.step(func(h *Holder) {
				if w.roll(50) == 0 { // its lease may end
					w.hang = map[*Holder]int64{h: w.now + w.roll(3*poolLease.Microseconds())}
				}
				if len(flights) > 0 && w.roll(2) == 0 {
					i := int(w.roll(int64(len(flights))))
					f := flights[i]
					flights = slices.Delete(flights, i, i+1)
					// It used a part of what it took, or missed its slot.
					rest := w.roll(w.calls[f.call].n + 1)
					w.calls[f.call].n -= rest
					if rest > 0 {
						f.h.Return(rest, f.latest)
						back++
					}
				}
				if w.roll(2) == 0 { // most exchanges go well
					h.Accept(w.ledger.Ask(w.now, h.Ask(w.now, Need{Permits: w.roll(2 * limit.Burst), Least: w.roll(3), Weight: 1})))
				}
				calls := w.roll(60)
				if step/100%2 == 0 { // the bucket fills up
					calls = 0
				}
				for range calls {
					n, pickup := 1+w.roll(5), w.roll(20_000)
					if slot, ok := h.Spend(w.now, pickup, n); ok {
						flights = append(flights, flight{h, len(w.calls), slot.Latest})
						w.calls = append(w.calls, call{at: slot.Earliest + w.roll(slot.Latest-slot.Earliest+1), n: n})
					}
				}
			})
		}
		p, r := limitlua.Units(limit.Count, limit.Period)
		over := excess(w.calls, p, r, limit.Burst)
		if over > 0 {
			t.Fatalf("%+v: %d units over, of %d for a permit", limit, over, p)
		}
		if over > -5*p {
			full++
		}
		spent += len(w.calls)
	})
	if !t.Failed() && (spent < 100*cases || back < 10*cases || full < cases/10) {
		t.Errorf("only %d calls in %d cases, %d gave something back, and %d buckets were used up", spent, cases, back, full)
	}
}

// excess is by how many units the worst window is over burst + rate × (length + 1 µs).
func excess(calls []call, p, r, burst int64) int64 {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	most, least, sum := int64(-1<<62), int64(1<<62), int64(0)
	for _, c := range calls {
		at := (c.at - calls[0].at) * r
		least = min(least, sum*p-at)
		sum += c.n
		most = max(most, sum*p-at-least-burst*p-r)
	}
	return most
}

// TestQuotaUnderFaults: no window has one call more than its quota, around midnight and the
// days on which the clocks change.
func TestQuotaUnderFaults(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	cases, spent, full := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		limit := limitlua.Limit{Algorithm: "fixed_window", Count: rapid.Int64Range(1, 60).Draw(t, "count"), Period: 24 * time.Hour, Location: berlin}
		day := rapid.SampledFrom([]time.Time{
			time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), time.Date(2026, 10, 26, 0, 0, 0, 0, berlin), time.Date(2026, 12, 31, 0, 0, 0, 0, berlin),
		}).Draw(t, "day")
		if rapid.Bool().Draw(t, "short") {
			limit.Period, limit.Location = 3*time.Second, nil
		}
		w := newWorld(t, limit, false, day.Add(-5*time.Second).UnixMicro())
		for range 2400 {
			w.step(func(h *Holder) {
				n, pickup := 1+w.roll(3), w.roll(20_000)
				if slot, ok := h.Spend(w.now, pickup, n); ok {
					w.calls = append(w.calls, call{at: slot.Earliest + w.roll(slot.Latest-slot.Earliest+1), n: n})
				}
			})
		}
		used := map[int64]int64{}
		for _, c := range w.calls {
			window := c.at - c.at%limit.Period.Microseconds()
			if limit.Location != nil {
				window = limit.Windows(time.UnixMicro(c.at), 1)[1]
			}
			used[window] += c.n
		}
		for window, n := range used {
			if n > limit.Count {
				t.Fatalf("%d of %d in the window from %v", n, limit.Count, time.UnixMicro(window).In(berlin))
			}
			if n == limit.Count {
				full++
			}
		}
		spent += len(w.calls)
	})
	if !t.Failed() && (spent < 10*cases || full < cases/10) {
		t.Errorf("only %d calls in %d cases, and %d windows used up", spent, cases, full)
	}
}

// TestCallsUnderFaults: no more calls are in flight than the limit allows.
func TestCallsUnderFaults(t *testing.T) {
	cases, spent, full := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		limit := limitlua.Limit{Algorithm: "concurrency", Concurrency: rapid.Int64Range(1, 30).Draw(t, "most"), Lease: 2 * time.Second}
		w := newWorld(t, limit, false, 1_795_000_000_000_000)
		type flight struct {
			h   *Holder
			end int64
		}
		var flights []flight
		for range 1500 {
			w.step(func(h *Holder) {
				flights = slices.DeleteFunc(flights, func(f flight) bool {
					if f.end <= w.now {
						f.h.End()
					}
					return f.end <= w.now
				})
				for range 1 + w.roll(4) {
					if length := 1 + w.roll(500_000); h.Start(w.now, length) {
						flights = append(flights, flight{h, w.now + length})
						w.calls = append(w.calls, call{at: w.now, n: 1, length: length})
					}
				}
			})
		}
		var changes []call
		for _, c := range w.calls {
			changes = append(changes, c, call{at: c.at + c.length, n: -1})
		}
		slices.SortFunc(changes, func(a, b call) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) })
		now, most := int64(0), int64(0)
		for _, c := range changes {
			now += c.n
			most = max(most, now)
		}
		if most > limit.Concurrency {
			t.Fatalf("%d calls at once; the limit is %d", most, limit.Concurrency)
		}
		if most == limit.Concurrency {
			full++
		}
		spent += len(w.calls)
	})
	if !t.Failed() && (spent < 10*cases || full < cases/10) {
		t.Errorf("only %d calls in %d cases, and in %d as many as are allowed", spent, cases, full)
	}
}
