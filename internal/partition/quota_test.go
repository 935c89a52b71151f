package partition

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// quota is a ledger of ten permits a minute, and a holder of it.
type quota struct {
	t   *testing.T
	l   *Ledger
	h   *Holder
	now int64

	calendar []int64
}

const minute = int64(time.Minute / time.Microsecond)

func newQuota(t *testing.T) *quota {
	return &quota{t: t, l: NewLedger(perMinute(10)), h: &Holder{Member: "a", ID: "a"}, now: start - start%minute}
}

func perMinute(n int64) limitlua.Spec {
	return limitlua.Limit{Algorithm: "fixed_window", Count: n, Period: time.Minute}.Spec(true, Horizon)
}

// spend spends as many permits as it gets of n in a while: the answer to the first ask in a window says that
// the last one is over, and those that follow until the others could have asked, too, are for a part.
func (q *quota) spend(n, want int64) {
	q.t.Helper()
	for range 4 {
		a := q.h.Ask(q.now, Need{Permits: n, Weight: 1})
		a.Calendar = q.calendar
		q.h.Accept(q.l.Ask(q.now, a))
		q.now += Every.Microseconds()
	}
	got := int64(0)
	for ; got < n; got++ {
		if _, ok := q.h.Spend(q.now, 0, 1); !ok {
			break
		}
	}
	if got != want {
		q.t.Errorf("%d permits of %d; want %d", got, n, want)
	}
}

// TestChangedQuota: what was used counts against a changed quota, and against the window that the clock
// shows once it was set back.
func TestChangedQuota(t *testing.T) {
	for what, change := range map[string]func(q *quota){
		"lowered":                    func(q *quota) { q.l.SetLimit(perMinute(8), q.now) },
		"of another window":          func(q *quota) { q.l.SetLimit(secondly(8), q.now) },
		"after a step of the clock":  func(q *quota) { q.l.SetLimit(perMinute(8), q.now); q.now -= 60 * minute },
		"and the clock wobbles back": func(q *quota) { q.l.SetLimit(perMinute(8), q.now); q.now -= 700_000 },
	} {
		t.Run(what, func(t *testing.T) {
			q := newQuota(t)
			q.spend(6, 6)
			change(q)
			q.spend(4, 2)
			q.now += 2 * minute
			q.spend(20, 8)
		})
	}
}

func secondly(n int64) limitlua.Spec {
	return limitlua.Limit{Algorithm: "fixed_window", Count: n, Period: time.Second}.Spec(true, Horizon)
}

// TestLostQuota: of the windows of which a lost ledger may have leased, nothing is leased again.
func TestLostQuota(t *testing.T) {
	q := newQuota(t)
	q.spend(1, 1)
	q.now += minute - 400_000
	q.l.Lost(q.now, 500_000)
	q.spend(20, 0)
	q.now += 1_000_000
	q.spend(20, 0)
	q.now += minute
	q.spend(20, 10)
}

// TestUsedBeyondTheLease: what calls turned out to have used comes off the rest of a quota.
func TestUsedBeyondTheLease(t *testing.T) {
	q := newQuota(t)
	q.spend(3, 3)
	q.h.spent += 4
	q.spend(5, 3)
}

// TestQuotaOfACalendar: windows are those of the calendar, and a time that it does not have gets nothing.
func TestQuotaOfACalendar(t *testing.T) {
	day := time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC) // 25 hours long in Berlin
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	limit := limitlua.Limit{Algorithm: "fixed_window", Count: 10, Period: 24 * time.Hour, Location: berlin}
	q := newQuota(t)
	q.l = NewLedger(limit.Spec(true, Horizon))
	q.calendar = limit.Windows(day, 2)
	for _, one := range []struct {
		at   time.Time
		want int64
	}{{day, 6}, {day.Add(10*time.Hour + 59*time.Minute), 4}, {day.Add(11 * time.Hour), 6}, {day.AddDate(0, 0, 9), 0}} {
		q.now = one.at.UnixMicro()
		q.spend(6, one.want)
	}
}

// TestOtherAlgorithm: accounts of a ledger of which the algorithm was changed are not used again.
func TestOtherAlgorithm(t *testing.T) {
	q := newQuota(t)
	q.spend(6, 6)
	version := q.l.Version()
	q.l.SetLimit(perSecond(100).Spec(true, Horizon), q.now)
	h := &Holder{Member: "a", ID: "b"}
	h.Accept(q.l.Ask(q.now, h.Ask(q.now, Need{Permits: 5, Weight: 1})))
	if h.Held() != 5 || h.version <= version {
		t.Errorf("%d permits of the rate in version %d; want 5 in one after %d", h.Held(), h.version, version)
	}
}

// TestUseOutlivesTheAlgorithm: what was used of a limit that all share counts when the limit gets another algorithm. Each
// limit is of ten permits, and one flows back in six seconds.
func TestUseOutlivesTheAlgorithm(t *testing.T) {
	bucket := limitlua.Limit{Algorithm: "token_bucket", Count: 10, Period: time.Minute, Burst: 10}.Spec(true, Horizon)
	pool := bucket
	pool.Pool = true
	shaped := limitlua.Limit{Algorithm: "leaky_bucket", Count: 10, Period: time.Minute}.Spec(true, Horizon)
	calls := limitlua.Spec{Algorithm: "cc", Burst: 10, Lease: minute}
	for name, c := range map[string]struct {
		was, is limitlua.Spec
		uses    int64
		now     int64   // how many permits there are after the change
		after   []int64 // the same 6 s, 12 s and 72 s later
	}{
		"a quota becomes a bucket":          {perMinute(10), bucket, 10, 0, []int64{1, 1, 10}},
		"a quota becomes a pool":            {perMinute(10), pool, 10, 0, []int64{1, 1, 10}},
		"a part of it":                      {perMinute(10), pool, 7, 3, []int64{1, 1, 10}},
		"a quota becomes a leaky bucket":    {perMinute(10), shaped, 2, 0, []int64{0, 1, 1}},
		"a quota whose window is over":      {secondly(10), bucket, 10, 10, []int64{1, 1, 10}},
		"a bucket becomes a quota":          {bucket, perMinute(10), 10, 0, []int64{0, 0, 10}},
		"a pool becomes a quota":            {pool, perMinute(10), 7, 3, []int64{0, 0, 10}},
		"a pool becomes a bucket":           {pool, bucket, 10, 0, []int64{1, 1, 10}},
		"a bucket becomes a smaller quota":  {bucket, perMinute(4), 7, 0, []int64{0, 0, 4}},
		"nothing was used":                  {pool, perMinute(10), 0, 10, []int64{0, 0, 10}},
		"a fast one leased nothing":         {limitlua.Limit{Algorithm: "token_bucket", Count: 9973, Period: time.Second, Burst: 9973}.Spec(true, Horizon), perMinute(10), 0, 10, []int64{0, 0, 10}},
		"calls at once are not calls since": {calls, perMinute(10), 5, 10, []int64{0, 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			now := int64(start - start%minute)
			l, life := NewLedger(c.was), 0
			var h *Holder
			// use spends as many permits as there are, of n, and returns how many these are.
			use := func(n int64) (got int64) {
				for range 6 {
					h.Accept(l.Ask(now, h.Ask(now, Need{Permits: n - got, Weight: 1})))
					for got < n {
						_, taken := h.Take(now, 0, 1)
						_, spent := h.Spend(now, 0, 1)
						if !taken && !spent && !(l.spec.Algorithm == "cc" && h.Start(now, 1)) {
							break
						}
						got++
					}
					now += Every.Microseconds()
				}
				return got
			}
			begin := func() {
				life++
				h = &Holder{Member: "a", ID: string(rune('a' + life)), Pool: l.spec.Pool}
			}
			begin()
			if n := use(c.uses); n != c.uses {
				t.Fatalf("%d permits were used; want %d", n, c.uses)
			}
			if c.was == secondly(10) {
				now += second
			}
			l.SetLimit(c.is, now)
			begin() // buckets of the limit as it was hold nothing of what it is now
			if n := use(100); n != c.now {
				t.Errorf("%d permits right after the change; want %d", n, c.now)
			}
			for i, want := range c.after {
				now += []int64{6, 6, 60}[i]*second - 6*Every.Microseconds()
				if n := use(100); n != want {
					t.Errorf("%d permits %d s later; want %d", n, []int{6, 12, 72}[i], want)
				}
			}
		})
	}
}

// TestClocksThatDiffer: queues share a budget, and the clocks of some are two seconds behind. What was used of a window by
// one clock stays used, whoever asks by the other, and after one was set back.
func TestClocksThatDiffer(t *testing.T) {
	l, end := NewLedger(perMinute(100)), int64(start-start%minute)
	now := end - second
	behind := map[string]int64{"fast": 0, "slow": 2 * second}
	lives := 0
	// uses lets a queue that has asked for nothing yet use all that it gets.
	uses := func(clock string, want int64) {
		t.Helper()
		lives++
		h, got, at := &Holder{Member: string(rune('a' + lives)), ID: string(rune('a' + lives))}, int64(0), now-behind[clock]-end
		for range 6 {
			own := now - behind[clock]
			a := h.Ask(own, Need{Permits: 100, Weight: 1})
			a.Clock = clock
			h.Accept(l.Ask(own, a))
			for ; ; got++ {
				if slot, ok := h.Spend(own, 0, 1); !ok || slot.Earliest > own {
					break
				}
			}
			now += Every.Microseconds()
		}
		if got != want {
			t.Errorf("from %s on by the %s clock: %d permits; want %d", time.Duration(at)*time.Microsecond, clock, got, want)
		}
	}
	uses("fast", 100)
	now = end + second/2
	uses("fast", 100)
	uses("slow", 0) // in the window before
	uses("fast", 0)
	now = end + 4*second
	uses("slow", 0)
	behind["fast"] = 90 * second
	uses("fast", 0) // in the window before, once more
	uses("slow", 0)
	now = end + minute + 4*second
	uses("slow", 100)
}

// TestClockThatWasAhead: a queue whose clock was an hour ahead asks once and never again. The others wait for its clock no
// longer than its account is remembered.
func TestClockThatWasAhead(t *testing.T) {
	l, now := NewLedger(perMinute(100)), int64(start-start%minute)
	ask := func(at int64, clock string) (got int) {
		h := &Holder{Member: clock, ID: clock}
		for range 24 {
			a := h.Ask(at, Need{Permits: 100, Weight: 1})
			a.Clock = clock
			h.Accept(l.Ask(at, a))
			for ; ; got++ {
				if slot, ok := h.Spend(at, 0, 1); !ok || slot.Earliest > at {
					break
				}
			}
			at += Every.Microseconds()
		}
		return got
	}
	ask(now+60*minute, "ahead")
	for range 12 {
		now += minute
		ask(now, "right")
	}
	if got := ask(now+minute, "right"); got != 100 {
		t.Errorf("%d permits of a minute; want 100", got)
	}
}

// TestTheFirstGetsAPart: of two members that begin at the same time, the first to ask does not get the whole
// quota, and by the time that it is used up both have had as much.
func TestTheFirstGetsAPart(t *testing.T) {
	l, now := NewLedger(perMinute(100)), int64(start-start%minute)
	a, b := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}
	for range 10 {
		for _, h := range []*Holder{a, b} {
			h.Accept(l.Ask(now, h.Ask(now, Need{Permits: 500, Weight: 1})))
		}
		now += Every.Microseconds()
	}
	if a.Held() != 50 || b.Held() != 50 {
		t.Errorf("%d and %d permits of 100", a.Held(), b.Held())
	}
}

// TestUsedUpIsTold: a member that had the first permits of a quota learns that others had the last.
func TestUsedUpIsTold(t *testing.T) {
	l, now := NewLedger(perMinute(10)), int64(start-start%minute)
	a, b := &Holder{Member: "a", ID: "a"}, &Holder{Member: "b", ID: "b"}
	ask := func(h *Holder, permits int64) Answer {
		now += Every.Microseconds()
		answer := l.Ask(now, h.Ask(now, Need{Permits: permits, Weight: 1}))
		h.Accept(answer)
		return answer
	}
	ask(a, 1)
	a.Spend(now, 0, 1)
	for range 4 {
		ask(b, 9)
	}
	known := a.version
	if answer := ask(a, 1); answer.Used != 1 || answer.Version == known {
		t.Errorf("the answer is %+v, of the version that it had", answer)
	}
}

// TestFewCallsAreTakenInTurns: members that are more than the calls at once have them by turns, by weight.
func TestFewCallsAreTakenInTurns(t *testing.T) {
	const step, length = 50_000, 100_000
	l, now := NewLedger(limitlua.Spec{Algorithm: "cc", Burst: 2, Lease: minute}), int64(start)
	type member struct {
		h     *Holder
		until []int64 // when its calls end
		calls int
	}
	members, weights := map[string]*member{}, map[string]float64{"a": 1, "b": 1, "c": 2, "d": 1}
	for name := range weights {
		members[name] = &member{h: &Holder{Member: name, ID: name}}
	}
	for range 2400 {
		now += step
		for name, m := range members {
			for len(m.until) > 0 && m.until[0] <= now {
				m.h.End()
				m.until = m.until[1:]
			}
			m.h.Accept(l.Ask(now, m.h.Ask(now, Need{Permits: int64(len(m.until)) + 100, Weight: weights[name]})))
			for m.h.Start(now, length) {
				m.until = append(m.until, now+length)
				m.calls++
			}
		}
	}
	sum := 0
	for _, m := range members {
		sum += m.calls
	}
	for name, m := range members {
		if part := float64(m.calls) / float64(sum) / weights[name] * 5; part < 0.9 || part > 1.1 {
			t.Errorf("%s of weight %v had %d of %d calls", name, weights[name], m.calls, sum)
		}
	}
	if sum < 2000 { // of 2,400 in two minutes: what one gives back another gets with its next ask
		t.Errorf("only %d calls", sum)
	}
}

// TestOldHolderOfANewLedger: a holder that knows a later version than a new ledger has ever had is answered.
func TestOldHolderOfANewLedger(t *testing.T) {
	q := newQuota(t)
	q.h.version = 5000
	q.spend(6, 6)
}

// TestTooLittleIsUsedUp: a quota of which less is left than the next call takes is used up for its member.
func TestTooLittleIsUsedUp(t *testing.T) {
	l, h, now := NewLedger(perMinute(10)), &Holder{Member: "a", ID: "a"}, int64(start-start%minute)
	var answer Answer
	for range 5 {
		now += Every.Microseconds()
		answer = l.Ask(now, h.Ask(now, Need{Permits: 70, Least: 7, Weight: 1}))
		h.Accept(answer)
		h.Spend(now, 0, 7)
	}
	if answer.Used != 1 || h.spent != 7 {
		t.Errorf("%d of 10 are spent, and %v is used", h.spent, answer.Used)
	}
}
