package throttle

import (
	_ "embed"
	"fmt"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
)

// A model is a limit in exact fractions, written without a look at the scripts.
// Moments are whole µs since the Unix epoch.
type model interface {
	// arrive is the clock reaching now.
	arrive(now int64)
	// earliest is the first moment from t on at which n permits are admitted.
	earliest(t, n int64, shaping bool) int64
	// full reports that too many wait in front of a slot at t.
	full(now, t, n int64) bool
	// take takes n permits at the moment t that earliest gave.
	take(now, t, n int64)
	// left is how many permits could go at once.
	left(now int64, shaping bool) int64
}

// drain is a bucket of debt: each permit adds one interval to the moment at
// which nothing is owed any more, and at most `most` intervals may be owed.
type drain struct {
	interval *big.Rat // µs
	most     int64    // permits
	spaced   bool     // shaping lets one call go after the other, and most may wait
	clear    *big.Rat // when nothing is owed
}

func newDrain(rate Rate, most int64, spaced bool) *drain {
	return &drain{big.NewRat(rate.Period.Microseconds(), rate.Count), most, spaced, new(big.Rat)}
}

// What drained before now is forgotten, and time below a µs is not lent.
func (m *drain) arrive(now int64) {
	if m.clear.Cmp(big.NewRat(now, 1)) < 0 {
		m.clear.SetInt64(now)
	}
}

func (m *drain) earliest(t, n int64, shaping bool) int64 {
	room := new(big.Rat)
	if !m.spaced || !shaping {
		room.Mul(m.interval, big.NewRat(m.most-n, 1))
	}
	return max(t, ceil(new(big.Rat).Sub(m.clear, room)))
}

func (m *drain) full(now, t, n int64) bool {
	if !m.spaced {
		return false
	}
	until := m.clear
	if ceil(until) < t {
		until = big.NewRat(t, 1)
	}
	waiting := new(big.Rat).Sub(until, big.NewRat(now, 1))
	waiting.Quo(waiting, m.interval).Add(waiting, big.NewRat(n, 1))
	return waiting.Cmp(big.NewRat(m.most, 1)) > 0
}

func (m *drain) take(_, t, n int64) {
	// A slot is a whole µs; the part of one before it was not idle time.
	if ceil(m.clear) < t {
		m.clear.SetInt64(t)
	}
	m.clear.Add(m.clear, new(big.Rat).Mul(m.interval, big.NewRat(n, 1)))
}

func (m *drain) left(now int64, shaping bool) int64 {
	most := m.most
	if m.spaced && shaping {
		most = 1
	}
	owed := new(big.Rat).Sub(m.clear, big.NewRat(now, 1))
	return max(0, most-ceil(owed.Quo(owed, m.interval)))
}

// counters is a fixed window that remembers every window, where the script
// remembers one: permits are given in the order of time.
type counters struct {
	length, most int64
	used         map[int64]int64
	latest       int64
}

func (m *counters) arrive(int64) {}

func (m *counters) earliest(t, n int64, _ bool) int64 {
	w := max(t/m.length, m.latest)
	for m.used[w]+n > m.most {
		w++
	}
	return max(t, w*m.length)
}

func (m *counters) full(int64, int64, int64) bool { return false }

func (m *counters) take(_, t, n int64) {
	m.latest = t / m.length
	m.used[m.latest] += n
}

func (m *counters) left(now int64, _ bool) int64 {
	if m.latest > now/m.length {
		return 0
	}
	return m.most - m.used[now/m.length]
}

// weighted is a sliding window counter. Its estimate falls as time goes by, so
// the first moment that has room is found by bisection.
type weighted struct{ counters }

// room is how many permits the estimate, rounded down, leaves at t.
func (m *weighted) room(t int64) int64 {
	w, d := t/m.length, t%m.length
	return m.most - m.used[w] - m.used[w-1]*(m.length-d)/m.length
}

func (m *weighted) earliest(t, n int64, _ bool) int64 {
	low := max(t, m.latest*m.length)
	high := low + 3*m.length
	for low < high {
		if middle := (low + high) / 2; m.room(middle) >= n {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (m *weighted) left(now int64, _ bool) int64 {
	if m.latest > now/m.length {
		return 0
	}
	return max(0, m.room(now))
}

// memory is a sliding window log that forgets nothing.
type memory struct {
	length, most int64
	moments      []int64
}

func (m *memory) arrive(int64) {}

// within counts the permits in (t - length, t].
func (m *memory) within(t int64) (count int64, oldest int64) {
	for i := len(m.moments) - 1; i >= 0; i-- {
		if m.moments[i] <= t-m.length {
			break
		}
		if m.moments[i] <= t {
			count, oldest = count+1, m.moments[i]
		}
	}
	return count, oldest
}

func (m *memory) last() int64 {
	if len(m.moments) == 0 {
		return 0
	}
	return m.moments[len(m.moments)-1]
}

func (m *memory) earliest(t, n int64, _ bool) int64 {
	t = max(t, m.last())
	for {
		count, oldest := m.within(t)
		if count+n <= m.most {
			return t
		}
		t = oldest + m.length
	}
}

func (m *memory) full(int64, int64, int64) bool { return false }

func (m *memory) take(_, t, n int64) {
	for range n {
		m.moments = append(m.moments, t)
	}
}

func (m *memory) left(now int64, _ bool) int64 {
	if m.last() > now {
		return 0
	}
	count, _ := m.within(now)
	return m.most - count
}

// inFlight is a concurrency limit whose calls all forget to end.
type inFlight struct {
	lease, most int64
	ends        []int64
}

func (m *inFlight) arrive(now int64) {
	for len(m.ends) > 0 && m.ends[0] <= now {
		m.ends = m.ends[1:]
	}
}

func (m *inFlight) earliest(t, _ int64, _ bool) int64 {
	if over := int64(len(m.ends)) - m.most; over >= 0 {
		return max(t, m.ends[over])
	}
	return t
}

// A permit that may lapse is none to wait for.
func (m *inFlight) full(int64, int64, int64) bool { return int64(len(m.ends)) >= m.most }

func (m *inFlight) take(now, _, _ int64) { m.ends = append(m.ends, now+m.lease) }

func (m *inFlight) left(int64, bool) int64 { return m.most - int64(len(m.ends)) }

func ceil(x *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// modelled draws a limit of an algorithm, and its model. Debts are of seconds,
// so that a pause of the machine lets no key expire.
func modelled(rt *rapid.T, algorithm Algorithm) (Limit, model) {
	draw := func(name string, from, to int64) int64 {
		return rapid.Int64Range(from, to).Draw(rt, fmt.Sprintf("%s of %s", name, algorithm))
	}
	limit := Limit{Name: string(algorithm), Algorithm: algorithm}
	if algorithm == Concurrency {
		limit.Concurrency, limit.Lease = draw("concurrency", 1, 12), time.Duration(draw("lease", 50e6, 500e6))*time.Microsecond
		return limit, &inFlight{lease: limit.Lease.Microseconds(), most: limit.Concurrency}
	}
	limit.Rate = Rate{Count: draw("count", 1, 50), Period: time.Duration(draw("period", 50e6, 500e6)) * time.Microsecond}
	if rapid.Bool().Draw(rt, "whole intervals") {
		limit.Rate.Period = time.Duration(draw("interval", 1e3, 1e4)*1e3*limit.Rate.Count) * time.Microsecond
	}
	length, most := limit.Rate.Period.Microseconds(), draw("most", 1, 12)
	switch algorithm {
	case TokenBucket:
		limit.Burst = most
		return limit, newDrain(limit.Rate, most, false)
	case LeakyBucket:
		limit.Capacity = most
		return limit, newDrain(limit.Rate, most, true)
	case FixedWindow:
		return limit, &counters{length: length, most: limit.Rate.Count, used: map[int64]int64{}}
	case SlidingWindowCounter:
		return limit, &weighted{counters{length: length, most: limit.Rate.Count, used: map[int64]int64{}}}
	default:
		return limit, &memory{length: length, most: limit.Rate.Count}
	}
}

// modelStep is one step, and what the models say.
type modelStep struct {
	now, n, within int64 // within < 0: police
	taken          bool
	wait, left     int64
}

// modelSteps draws steps that are hard: right on the last answer, or a µs beside.
func modelSteps(rt *rapid.T, limits []Limit, models []model, begin time.Time, steps int) []modelStep {
	most, interval := int64(12), int64(0)
	for _, limit := range limits {
		if m := limit.maxCost(false); m > 0 {
			most = min(most, m)
		}
		if limit.Algorithm == Concurrency {
			interval = max(interval, limit.Lease.Microseconds()/3)
		} else {
			interval = max(interval, limit.Rate.Period.Microseconds()/limit.Rate.Count)
		}
	}
	now := begin.UnixMicro()
	next := now
	list := make([]modelStep, steps)
	for i := range list {
		// One number decides the step: as many draws would take longer than the steps.
		dice := rapid.Uint64().Draw(rt, "step")
		roll := func(n int64) int64 {
			face := int64(dice % uint64(n))
			dice /= uint64(n)
			return face
		}
		switch roll(4) {
		case 0:
			now += roll(3*interval + 1)
		case 1:
			now = max(now, next+roll(3)-1)
		}
		q := modelStep{now: now, n: 1 + roll(most), within: []int64{-1, 0, interval, 3 * interval, 20 * interval}[roll(5)]}
		for _, m := range models {
			m.arrive(now)
		}
		t := now
		for before := int64(-1); t != before; {
			before = t
			for _, m := range models {
				t = m.earliest(t, q.n, q.within >= 0)
			}
		}
		q.wait, next = t-now, t
		q.taken = q.wait <= max(q.within, 0)
		for _, m := range models {
			q.taken = q.taken && (q.within < 0 || !m.full(now, t, q.n))
		}
		for i, m := range models {
			if q.taken {
				m.take(now, t, q.n)
			}
			if left := m.left(now, q.within >= 0); i == 0 || left < q.left {
				q.left = left
			}
		}
		list[i] = q
	}
	return list
}

//go:embed testdata/steps.lua
var stepsLua string

var stepsScript = limitlua.NewScript(stepsLua)

// TestExactModels holds every algorithm against its model, policing and shaping
// in turns: the same answers to the µs for 10^5 steps, or all of them at once
// for 2×10^4; a quarter of that, unless the long tests run. Each step goes through
// Redis and back.
func TestExactModels(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			againstModels(t, 1000, algorithm)
		})
	}
	t.Run("layers", func(t *testing.T) {
		t.Parallel()
		againstModels(t, 200, TokenBucket, LeakyBucket, FixedWindow, SlidingWindowLog, SlidingWindowCounter, Concurrency)
	})
}

func againstModels(t *testing.T, atOnce int, algorithms ...Algorithm) {
	both := map[string]redis.UniversalClient{"redis-server": redistest.Shared(t).Client(), "miniredis": redistest.Imitation(t)}
	for name, client := range both {
		t.Run(name, func(t *testing.T) {
			steps := 0
			rapid.Check(t, func(rt *rapid.T) {
				var limits []Limit
				var models []model
				for _, algorithm := range algorithms {
					limit, m := modelled(rt, algorithm)
					limits, models = append(limits, limit), append(models, m)
				}
				c := newClocked(t, client, limits...)
				list := modelSteps(rt, limits, models, c.now, atOnce)
				keys := make([]string, len(limits))
				for i, limit := range limits {
					keys[i] = c.bucket(limit, "k")
				}
				args := append([]any{len(limits)}, c.specs[police]...)
				args = append(args, c.specs[shape]...)
				for i, q := range list {
					args = append(args, q.now, q.n, q.within, strconv.Itoa(i))
				}
				reply, err := stepsScript.Run(t.Context(), client, keys, args...)
				if err != nil {
					rt.Fatal(err)
				}
				answers := reply.([]any)
				for i, q := range list {
					got := modelStep{q.now, q.n, q.within, answers[3*i] == int64(1), answers[3*i+1].(int64), answers[3*i+2].(int64)}
					if got != q {
						rt.Fatalf("%+v\nstep %d: %+v\nthe models say %+v", limits, i, got, q)
					}
				}
				steps += len(list)
			})
			if steps < randomCases*atOnce && !t.Failed() {
				t.Errorf("only %d steps", steps)
			}
		})
	}
}
