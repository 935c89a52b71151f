package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestPlainAnswersAlike: by a short script or the long one, the decisions and
// the states that are left behind are the same, for states of its own kind and
// all others.
func TestPlainAnswersAlike(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	rate := func(rt *rapid.T) (Limit, int64) {
		limit := Limit{Name: "l", Algorithm: TokenBucket,
			Rate:  Rate{Count: rapid.SampledFrom([]int64{1, 3, 5, 7, 10, 30, 300}).Draw(rt, "count"), Period: rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * ms, time.Second, time.Hour}).Draw(rt, "period")},
			Burst: rapid.Int64Range(1, 20).Draw(rt, "burst"),
		}
		if rapid.Bool().Draw(rt, "leaky") {
			limit.Algorithm, limit.Capacity, limit.Burst = LeakyBucket, limit.Burst, 0
		}
		return limit, 4 * limit.Rate.Period.Microseconds() / limit.Rate.Count
	}
	counts := func(rt *rapid.T) Rate {
		return Rate{Count: rapid.Int64Range(1, 20).Draw(rt, "permits"), Period: rapid.SampledFrom([]time.Duration{7 * ms, time.Second, time.Hour}).Draw(rt, "window")}
	}
	window := func(rt *rapid.T) (Limit, int64) {
		limit := Limit{Name: "l", Algorithm: SlidingWindowCounter, Rate: counts(rt)}
		longest := 2 * limit.Rate.Period.Microseconds()
		switch rapid.IntRange(0, 3).Draw(rt, "fixed") {
		case 0:
			limit.Algorithm = FixedWindow
		case 1:
			limit.Algorithm, limit.Rate.Period, limit.Location = FixedWindow, day, berlin
		case 2:
			limit.Rate = Rate{Count: limit.Rate.Count << 27, Period: time.Hour} // beyond what is weighed to the µs
		}
		return limit, longest
	}
	log := func(rt *rapid.T) (Limit, int64) {
		limit := Limit{Name: "l", Algorithm: SlidingWindowLog, Rate: counts(rt)}
		return limit, limit.Rate.Period.Microseconds()
	}
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		t.Run("rates", func(t *testing.T) { answersAlike(t, client, rate) })
		t.Run("windows", func(t *testing.T) { answersAlike(t, client, window) })
		t.Run("logs", func(t *testing.T) { answersAlike(t, client, log) })
	})
}

// answersAlike asks about limits that draw makes, and after up to so many µs again.
func answersAlike(t *testing.T, client redis.UniversalClient, draw func(*rapid.T) (Limit, int64)) {
	known := 0
	rapid.Check(t, func(rt *rapid.T) {
		limit, longest := draw(rt)
		windows := !limit.drains()
		limits := []Limit{limit}
		if !windows && rapid.Bool().Draw(rt, "layers") {
			second := rapid.SampledFrom([]string{"20/s", "20/h"}).Draw(rt, "second")
			third := rapid.SampledFrom([]string{"60/s", "60/h"}).Draw(rt, "third")
			limits = append(limits, bucket(second, 20), leaky(third, 40))
		}
		short, long := newClocked(t, client, limits...), newClocked(t, client, limits...)
		long.short[police] = nil
		both := []*clocked{short, long}
		for range 6 {
			after, times, several := drawCalls(rt, longest, 10)
			other := rapid.IntRange(0, 7).Draw(rt, "other")
			changed := limit
			if windows && limit.Location == nil && other == 2 {
				changed.Rate.Period = rapid.SampledFrom([]time.Duration{limit.Rate.Period * 4, limit.Rate.Period * 3 / 2, limit.Rate.Period * 2}).Draw(rt, "other window")
				changed.Rate.Count = max(1, limit.Rate.Count/rapid.SampledFrom([]int64{1, 2, 7}).Draw(rt, "fewer"))
			}
			cost := rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, changed.maxCost(false))) // also some in a row that are alike
			n := rapid.SliceOfN(cost, times, times).Draw(rt, "n")
			var answers, states [2]string
			var ttl [2]time.Duration
			for side, c := range both {
				c.now = c.now.Add(time.Duration(after) * time.Microsecond)
				tryAgain(c.short[police])
				switch other { // a state of another form, for the next ones to find
				case 0:
					c.reserve(1, time.Hour, []string{"k1", "b", "c1"}[:len(limits)]...)
				case 2:
					if changed != limit {
						c.change(changed)
						if side == 1 {
							c.short[police] = nil
						}
					}
				case 1:
					if err := c.Pause(t.Context(), "l", "k0", c.now.Add(100*ms), "x"); err != nil {
						rt.Fatal(err)
					}
				}
				var calls []*call
				for i := range times {
					one, err := c.ask(police, n[i], 0, []string{fmt.Sprint("k", i*several%3), "b", fmt.Sprint("c", i*several%3)}[:len(limits)])
					if err != nil {
						rt.Fatal(err)
					}
					calls = append(calls, one)
				}
				if err := c.send(t.Context(), modeTake, calls); err != nil {
					rt.Fatal(err)
				}
				if c.short[police] != nil && !slices.ContainsFunc(calls, func(one *call) bool { return !c.short[police].knows(one) }) {
					known++
				}
				for i, one := range calls {
					answers[side] += fmt.Sprintf("%+v\n", one.decision)
					states[side] += stored(t, client, one.buckets...)
					if i == 0 {
						ttl[side] = client.PTTL(t.Context(), one.buckets[0]).Val()
					}
				}
				persist(t, client, calls)
			}
			limit = changed
			// The clock of expiry is a real one.
			if answers[0] != answers[1] || states[0] != states[1] || (ttl[0]-ttl[1]).Abs() > 3*time.Second {
				rt.Fatalf("%d of %+v: short\n%s%slong\n%s%s", n, limit, answers[0], states[0], answers[1], states[1])
			}
		}
	})
	if known < randomCases {
		t.Errorf("the short script knew only %d answers", known)
	}
}

// TestCallsThatAreLeftKeepTheirOrder: if one bucket of a call is left to the full script, later calls do not take
// permits of its other buckets before it.
func TestCallsThatAreLeftKeepTheirOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		last := leaky("1/s", 1)
		c := newClocked(t, client, bucket("20/s", 5), last)
		c.take(1, "first", "other") // under another rate, which the short script does not know
		c.change(bucket("10/s", 5), last)
		var calls []*call
		for _, key := range []string{"first", "second"} {
			one, err := c.ask(police, 1, 0, []string{key, "both"})
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, one)
		}
		if err := c.send(t.Context(), modeTake, calls); err != nil {
			t.Fatal(err)
		}
		if first, second := calls[0].decision, calls[1].decision; !first.Allowed || second.Allowed || second.Limit != last.Name {
			t.Errorf("of one permit of %q, the first call got %+v, and the second %+v", last.Name, first, second)
		}
	})
}

// drawCalls draws when the next calls come, in µs after the last ones, how many, and whether of several keys (1) or of
// one (0). One in so many times the clock is set back.
func drawCalls(rt *rapid.T, longest int64, setBack int) (after int64, times, several int) {
	after = rapid.Int64Range(0, longest).Draw(rt, "after")
	if rapid.IntRange(1, setBack).Draw(rt, "back") == 1 {
		after = -rapid.Int64Range(1, 4e6).Draw(rt, "set back")
	}
	return after, rapid.IntRange(1, 5).Draw(rt, "times"), rapid.IntRange(0, 1).Draw(rt, "several")
}

// tryAgain has a short script asked about all buckets, also those that it did not know.
func tryAgain(s *short) {
	if s != nil {
		for i := range s.passing {
			s.passing[i].Store(0)
		}
	}
}

// persist keeps the buckets of calls from expiring: their clock is a real one, of which a case takes seconds on a busy
// machine.
func persist(t *testing.T, client redis.UniversalClient, calls []*call) {
	for _, one := range calls {
		for _, bucket := range one.buckets {
			if err := client.Persist(t.Context(), bucket).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// stored is what Redis has of buckets. The permits of calls have names of their own.
func stored(t *testing.T, client redis.UniversalClient, buckets ...string) (text string) {
	for _, bucket := range buckets {
		switch kind := client.Type(t.Context(), bucket).Val(); kind {
		case "list":
			text += fmt.Sprintln(client.LRange(t.Context(), bucket, 0, -1).Val())
		case "zset":
			for _, permit := range client.ZRangeWithScores(t.Context(), bucket, 0, -1).Val() {
				text += fmt.Sprintln("until", permit.Score)
			}
		default:
			text += fmt.Sprintln(kind, client.Get(t.Context(), bucket).Val())
		}
	}
	return text
}

var noShort [2]*short

// TestReservationsAreAlike: by a short script or the long one, the reservations, what comes back of them,
// and the states that are left behind are the same.
func TestReservationsAreAlike(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		known := map[Algorithm]int{}
		changes := []func(Limit) Limit{
			func(l Limit) Limit { l.Rate.Count++; return l },
			func(l Limit) Limit { l.Burst, l.Capacity = 2*l.Burst, 2*l.Capacity; return l },
			func(l Limit) Limit { l.Burst, l.Capacity = (l.Burst+1)/2, (l.Capacity+1)/2; return l },
			func(l Limit) Limit {
				if l.Algorithm == LeakyBucket {
					l.Algorithm, l.Burst, l.Capacity = TokenBucket, max(1, l.Capacity), 0
				} else {
					l.Algorithm, l.Burst, l.Capacity = LeakyBucket, 0, l.Burst
				}
				return l
			},
			func(l Limit) Limit { l.Algorithm, l.Burst, l.Capacity = SlidingWindowLog, 0, 0; return l },
		}
		rapid.Check(t, func(rt *rapid.T) {
			limit := rapid.SampledFrom([]Limit{
				bucket("10/s", 20), bucket("7/100ms", 3), bucket("1/h", 1), leaky("10/s", 0), leaky("30/s", 4), leaky("7/m", 1), inFlightOf(3, 10*time.Second),
			}).Draw(rt, "limit")
			longest := int64(20e6)
			if limit.Algorithm != Concurrency {
				longest = 4 * limit.Rate.Period.Microseconds() / limit.Rate.Count
			}
			short, long := newClocked(t, client, limit), newClocked(t, client, limit)
			long.short = noShort
			both := []*clocked{short, long}
			var given [2][]*Reservation
			for range 10 {
				after, times, several := drawCalls(rt, longest, 15)
				other := rapid.IntRange(0, 14).Draw(rt, "other")
				changed := limit
				if other == 2 && limit.Algorithm != Concurrency {
					changed = rapid.SampledFrom(changes).Draw(rt, "change")(limit)
				}
				n := rapid.SliceOfN(rapid.Int64Range(1, max(1, changed.maxCost(true))), times, times).Draw(rt, "n")
				within := rapid.SliceOfN(rapid.Int64Range(0, longest), times, times).Draw(rt, "within")
				edge := rapid.IntRange(0, 4).Draw(rt, "edge")
				which, actual := rapid.IntRange(0, 100).Draw(rt, "which"), rapid.Int64Range(0, 3).Draw(rt, "actual")
				var answers, states [2]string
				var ttl [2]time.Duration
				for side, c := range both {
					c.now = c.now.Add(time.Duration(after) * time.Microsecond)
					tryAgain(c.short[shape])
					switch {
					case other == 0:
						if _, err := c.Take(t.Context(), 1, "k0"); err != nil {
							rt.Fatal(err)
						}
					case other == 1 && limit.Algorithm != Concurrency:
						if err := c.Pause(t.Context(), limit.Name, "k0", c.now.Add(100*ms), "x"); err != nil {
							rt.Fatal(err)
						}
					case changed != limit:
						c.change(changed)
						if side == 1 {
							c.short = noShort
						}
					case other < 8 && len(given[side]) > 0:
						if err := given[side][which%len(given[side])].Settle(t.Context(), actual); err != nil {
							rt.Fatal(err)
						}
					}
					if edge < 2 { // just what a call needs, or a µs less
						d, err := c.PeekReserve(t.Context(), n[0], maxWithin, "k0")
						if err != nil {
							rt.Fatal(err)
						}
						within[0] = d.Delay.Microseconds() - int64(edge)
					}
					var calls []*call
					for i := range times {
						one, err := c.ask(shape, n[i], time.Duration(within[i])*time.Microsecond, []string{fmt.Sprint("k", i*several%3)})
						if err != nil {
							rt.Fatal(err)
						}
						calls = append(calls, one)
					}
					if err := c.send(t.Context(), modeReserve, calls); err != nil {
						rt.Fatal(err)
					}
					if c.short[shape] != nil && !slices.ContainsFunc(calls, func(one *call) bool { return !c.short[shape].knows(one) }) {
						known[limit.Algorithm]++
					}
					for _, one := range calls {
						given[side] = append(given[side], &Reservation{Decision: one.decision, limiter: c.Limiter, call: one})
						answers[side] += fmt.Sprintf("%+v %v\n", one.decision, one.marks)
						states[side] += stored(t, client, one.buckets...)
						ttl[side] = client.PTTL(t.Context(), one.buckets[0]).Val()
					}
					persist(t, client, calls)
				}
				limit = changed
				// The clock of expiry is a real one.
				if answers[0] != answers[1] || states[0] != states[1] || (ttl[0]-ttl[1]).Abs() > 3*time.Second {
					rt.Fatalf("%d of %+v: short\n%s%slong\n%s%s", n, limit, answers[0], states[0], answers[1], states[1])
				}
			}
		})
		for _, algorithm := range []Algorithm{TokenBucket, LeakyBucket, Concurrency} {
			if known[algorithm] < randomCases/4 {
				t.Errorf("%s: the short script knew only %d answers", algorithm, known[algorithm])
			}
		}
	})
}

// TestPlainAfterTheClockWasSetBack: a bucket that is no integer knows when it was written, and its short script leaves
// it to the long one, which moves it back with the clock.
func TestPlainAfterTheClockWasSetBack(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, bucket("7/h", 100))
		c.take(90)
		c.now = c.now.Add(10 * time.Minute)
		left := c.take(5).Remaining
		c.now = c.now.Add(-30 * time.Minute)
		if d := c.take(1); !d.Allowed || d.Remaining != left-1 {
			t.Errorf("%d left, then %+v", left, d)
		}
	})
}

// TestWindowReservedUnderAnother: permits of this window that are reserved ahead count under a limit with shorter windows,
// by either script.
func TestWindowReservedUnderAnother(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		c := newClocked(t, client, window("10/h", nil))
		c.now = c.now.Add(5 * time.Minute)
		if err := c.Pause(t.Context(), "fw", "k", c.now.Add(25*time.Minute), ""); err != nil {
			t.Fatal(err)
		}
		if d := c.reserve(10, time.Hour); d.Delay != 25*time.Minute {
			t.Fatalf("%+v", d)
		}
		if err := c.Resume(t.Context(), "fw", "k"); err != nil {
			t.Fatal(err)
		}
		c.change(window("10/10m", nil))
		c.now = c.now.Add(2 * time.Minute)
		want, err := c.Peek(t.Context(), 1, "k")
		if d := c.take(1); err != nil || d.Allowed || d != want {
			t.Errorf("%+v; want %+v, %v", d, want, err)
		}
	})
}

// scriptCount counts the scripts that are sent, also in pipelines.
type scriptCount struct {
	redis.Hook
	mu         sync.Mutex
	short, all int
}

func (h *scriptCount) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.see(cmd)
		return next(ctx, cmd)
	}
}

func (h *scriptCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.see(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *scriptCount) see(cmd redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cmd.Name() == "evalsha" {
		h.all++
		if cmd.Args()[1] == plainScript.Hash() {
			h.short++
		}
	}
}

// sent is how many scripts were sent since it was asked, and how many of them were
// the short one.
func (h *scriptCount) sent() (short, long int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	short, long = h.short, h.all-h.short
	h.short, h.all = 0, 0
	return short, long
}

// apart is a limiter under which no two of the keys share a hash: those that do pass
// together, and the seed is another one each time.
func apart(t *testing.T, client *redis.Client, limits []Limit, keys ...string) *Limiter {
	t.Helper()
	for {
		l, err := New(client, fmt.Sprintf("plain:%d", time.Now().UnixNano()), limits...)
		if err != nil {
			t.Fatal(err)
		}
		places := map[*atomic.Int32]bool{}
		for _, limit := range limits {
			for _, key := range keys {
				places[l.short[police].of(l.bucket(limit, key))] = true
			}
		}
		if len(places) == len(limits)*len(keys) {
			return l
		}
	}
}

// TestReserveSlowsItsKeyAlone: a key whose state the short script does not know is
// asked about with the long one, and all other keys go on with the short one, alone,
// in one round trip with that key, and beside it under a limit that they share.
func TestReserveSlowsItsKeyAlone(t *testing.T) {
	for name, limits := range map[string][]Limit{
		"one limit": {bucket("10/s", 500)}, "layers": {bucket("10/s", 500), bucket("100/s", 5000).named("shared")},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
			defer client.Close()
			l := apart(t, client, limits, "other", "other0", "other1", "other2", "other3", "other4", "slow", "slow2", "all")
			keys := func(own string) []string { return []string{own, "all"}[:len(limits)] }
			take := func(own string) {
				t.Helper()
				if d, err := l.Take(t.Context(), 1, keys(own)...); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			take("other") // now the scripts are known
			if _, err := l.Peek(t.Context(), 1, keys("other")...); err != nil {
				t.Fatal(err)
			}
			seen := &scriptCount{}
			client.AddHook(seen)
			detailed := func(own string) {
				t.Helper()
				// A reservation of both limits would change the shared one as well.
				alone := &Limiter{client: client, limits: l.limits[:1], specs: [2][]any{l.specs[police][:6], l.specs[shape][:6]}}
				c := &call{n: 1, buckets: []string{l.bucket(limits[0], own)}}
				if err := alone.send(t.Context(), modeReserve, []*call{c}); err != nil || !c.decision.Allowed {
					t.Fatalf("%+v, %v", c.decision, err)
				}
			}
			detailed("slow")
			seen.sent()
			take("slow")
			if short, long := seen.sent(); short != 1 || long != 1 {
				t.Errorf("the first time it was asked about by %d short scripts and %d long ones", short, long)
			}
			for i := range 50 {
				take(fmt.Sprint("other", i%5))
			}
			if short, long := seen.sent(); short != 50 || long != 0 {
				t.Errorf("50 calls of other keys took %d short scripts and %d long ones", short, long)
			}
			for range 50 {
				take("slow")
			}
			if short, long := seen.sent(); short != 0 || long != 50 {
				t.Errorf("50 calls of its key took %d short scripts and %d long ones", short, long)
			}
			// Together: the long one is asked about that key, and the short one about the others.
			ask := func(own ...string) {
				t.Helper()
				var calls []*call
				for _, key := range own {
					c, err := l.ask(police, 1, 0, keys(key))
					if err != nil {
						t.Fatal(err)
					}
					calls = append(calls, c)
				}
				if err := l.send(t.Context(), modeTake, calls); err != nil {
					t.Fatal(err)
				}
				for i, c := range calls {
					if c.err != nil || !c.decision.Allowed || c.decision.At.IsZero() {
						t.Errorf("%s: %+v, %v", own[i], c.decision, c.err)
					}
				}
			}
			ask("other1", "slow", "other2", "slow", "other1")
			if short, long := seen.sent(); short != 1 || long != 1 {
				t.Errorf("calls of its key and others took %d short scripts and %d long ones", short, long)
			}
			// Not known yet: what the short script does know it decides.
			detailed("slow2")
			seen.sent()
			ask("other1", "slow2", "other2", "slow2")
			if short, long := seen.sent(); short != 1 || long != 1 {
				t.Errorf("calls of a new one and others took %d short scripts and %d long ones", short, long)
			}
			ask("other1", "other2")
			if short, long := seen.sent(); short != 1 || long != 0 {
				t.Errorf("calls of others took %d short scripts and %d long ones", short, long)
			}
		})
	}
}
