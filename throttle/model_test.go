package throttle

import (
	"math/big"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// A model is a limit in exact fractions, written without a look at the scripts.
// Moments are whole µs since the model began.
type model interface {
	// earliest is the first moment from now on at which n permits are admitted.
	earliest(now, n int64) int64
	// take takes n permits at the moment t that earliest gave.
	take(t, n int64)
	// waiting is how many permits wait in front of a slot at t.
	waiting(now, t int64) *big.Rat
}

// drain is a bucket of debt: each permit adds one interval to the moment at
// which nothing is owed any more, and at most `most` intervals may be owed.
type drain struct {
	interval *big.Rat // µs
	most     int64    // permits; 0: those of one call, which may not overlap
	clear    *big.Rat // when nothing is owed
}

func newDrain(rate Rate, most int64) *drain {
	return &drain{big.NewRat(rate.Period.Microseconds(), rate.Count), most, new(big.Rat)}
}

func (m *drain) earliest(now, n int64) int64 {
	room := new(big.Rat)
	if m.most > 0 {
		room.Mul(m.interval, big.NewRat(m.most-n, 1))
	}
	return max(now, ceil(new(big.Rat).Sub(m.clear, room)))
}

func (m *drain) take(t, n int64) {
	// A slot is a whole µs; the part of one before it was not idle time.
	if ceil(m.clear) < t {
		m.clear.SetInt64(t)
	}
	m.clear.Add(m.clear, new(big.Rat).Mul(m.interval, big.NewRat(n, 1)))
}

func (m *drain) waiting(now, t int64) *big.Rat {
	until := m.clear
	if ceil(until) < t {
		until = big.NewRat(t, 1)
	}
	gap := new(big.Rat).Sub(until, big.NewRat(now, 1))
	if gap.Sign() < 0 {
		gap.SetInt64(0)
	}
	return gap.Quo(gap, m.interval)
}

// arrive is the clock reaching now: what drained before is forgotten, and time
// below a µs is not lent.
func (m *drain) arrive(now int64) {
	if m.clear.Cmp(big.NewRat(now, 1)) < 0 {
		m.clear.SetInt64(now)
	}
}

// counters is a fixed window that remembers every window, where the script
// remembers one: permits are given in the order of time.
type counters struct {
	length, origin, most int64
	used                 map[int64]int64
	latest               int64
}

func (m *counters) window(t int64) int64 { return (t + m.origin) / m.length }

func (m *counters) earliest(now, n int64) int64 {
	w := max(m.window(now), m.latest)
	for m.used[w]+n > m.most {
		w++
	}
	return max(now, w*m.length-m.origin)
}

func (m *counters) take(t, n int64) {
	m.latest = m.window(t)
	m.used[m.latest] += n
}

func (m *counters) waiting(_, _ int64) *big.Rat { return new(big.Rat) }

func (m *counters) arrive(int64) {}

func ceil(x *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// TestExactModels holds every algorithm in both modes against its model: the
// same answers to the µs, for any sequence of calls.
func TestExactModels(t *testing.T) {
	algorithms := map[string]func(rate Rate, most int64, begin time.Time, shaping bool) (Limit, model){
		"token bucket": func(rate Rate, most int64, _ time.Time, _ bool) (Limit, model) {
			return Limit{Name: "l", Algorithm: TokenBucket, Rate: rate, Burst: most}, newDrain(rate, most)
		},
		"leaky bucket": func(rate Rate, most int64, _ time.Time, shaping bool) (Limit, model) {
			limit := Limit{Name: "l", Algorithm: LeakyBucket, Rate: rate, Capacity: most}
			if shaping {
				return limit, newDrain(rate, 0)
			}
			return limit, newDrain(rate, most)
		},
		"fixed window": func(rate Rate, _ int64, begin time.Time, _ bool) (Limit, model) {
			length := rate.Period.Microseconds()
			return Limit{Name: "l", Algorithm: FixedWindow, Rate: rate},
				&counters{length: length, origin: begin.UnixMicro() % length, most: rate.Count, used: map[int64]int64{}}
		},
	}
	for name, algorithm := range algorithms {
		for _, shaping := range []bool{false, true} {
			mode := map[bool]string{false: ", taken", true: ", reserved"}[shaping]
			t.Run(name+mode, func(t *testing.T) {
				onBoth(t, func(t *testing.T, client redis.UniversalClient) {
					rapid.Check(t, func(rt *rapid.T) {
						// Debts of seconds: a pause of the machine expires no key.
						rate := Rate{Count: rapid.Int64Range(1, 50).Draw(rt, "count"), Period: time.Duration(rapid.Int64Range(50e6, 500e6).Draw(rt, "period")) * time.Microsecond}
						most := rapid.Int64Range(1, 12).Draw(rt, "most")
						c := newClocked(t, client, bucket("1/s", 1))
						begin := c.now
						limit, m := algorithm(rate, most, begin, shaping)
						c.change(limit)
						follow(rt, c, limit, m, begin, shaping)
					})
				})
			})
		}
	}
}

func follow(rt *rapid.T, c *clocked, limit Limit, m model, begin time.Time, shaping bool) {
	now := int64(0)
	var next int64 // the last answer: standing right on it, or a µs beside, is the hard case
	for range 12 {
		interval := limit.Rate.Period.Microseconds() / limit.Rate.Count
		switch rapid.IntRange(0, 3).Draw(rt, "move") {
		case 0:
			now += rapid.Int64Range(0, 3*interval).Draw(rt, "after")
		case 1:
			now = max(now, next+rapid.Int64Range(-1, 1).Draw(rt, "beside"))
		}
		c.now = begin.Add(time.Duration(now) * time.Microsecond)
		m.(interface{ arrive(int64) }).arrive(now)
		n := rapid.Int64Range(1, max(1, limit.Most(false))).Draw(rt, "n")
		t := m.earliest(now, n)
		next = t
		within := int64(0)
		var d Decision
		if shaping {
			within = rapid.SampledFrom([]int64{0, interval, 3 * interval, 20 * interval, 10 * limit.Rate.Period.Microseconds()}).Draw(rt, "within")
			d = c.reserve(n, time.Duration(within)*time.Microsecond)
		} else {
			d = c.take(n)
		}
		allowed := t-now <= within
		if limit.Algorithm == LeakyBucket && shaping {
			queue := new(big.Rat).Add(m.waiting(now, t), big.NewRat(n, 1))
			allowed = allowed && queue.Cmp(big.NewRat(limit.Capacity, 1)) <= 0
		}
		want := time.Duration(t-now) * time.Microsecond
		if d.Allowed != allowed || d.Delay+d.RetryAfter != want || d.Allowed == (d.RetryAfter > 0) {
			rt.Fatalf("%+v: %d permits at %d µs: %+v; the model says %v after %v", limit, n, now, d, allowed, want)
		}
		if d.Remaining < 0 || d.Remaining > max(1, limit.Most(false)) {
			rt.Fatalf("%+v: %d left", limit, d.Remaining)
		}
		if allowed {
			m.take(t, n)
		}
	}
}
