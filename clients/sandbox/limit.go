package sandbox

import (
	"math"
	"time"
)

// Limit allows at most Burst + Rate × t calls in any time t. The zero Limit allows all calls.
type Limit struct {
	Rate  float64 // calls per second; 0 with a Burst: Burst calls in total
	Burst int     // calls at once; 0 with a Rate means 1
}

func (l Limit) normal() Limit {
	if !(l.Rate > 0) {
		l.Rate = 0
	}
	if l.Burst < 1 {
		l.Burst = 0
		if l.Rate > 0 {
			l.Burst = 1
		}
	}
	return l
}

func (l Limit) unlimited() bool { return l.Burst == 0 || math.IsInf(l.Rate, 1) }

// meter checks calls against a limit, or units that calls use.
//
// Its level is that of the fullest window that ends now: the largest
//
//	count(i..j) − rate × (t_j − t_i)
//
// over all i ≤ j, where j is the last call. A window that ends with the next call is one of
// these, extended by that call and the time in between, or the new call alone. So the next level
// follows from the previous one, and no calls need to be stored. A call that uses n units counts
// as n calls at the same time.
type meter struct {
	limit Limit // normalized
	level float64
	last  time.Time
}

// rounding is the tolerance for rounding errors, in calls: a perfect pacer uses the limit exactly
// and must not be refused.
const rounding = 1e-6

// with returns the level after a call of n units at t, which must not be before the last call.
func (m *meter) with(t time.Time, n float64) float64 { return m.drained(t) + n }

func (m *meter) drained(t time.Time) float64 {
	if m.last.IsZero() {
		return 0
	}
	return max(m.level-m.limit.Rate*t.Sub(m.last).Seconds(), 0)
}

func (m *meter) add(t time.Time) { m.use(t, 1) }

// use adds n units; a negative n returns units.
func (m *meter) use(t time.Time, n float64) {
	m.level, m.last = max(m.with(t, n), 0), t
}

// left returns how many units a call at t may use.
func (m *meter) left(t time.Time) float64 {
	return max(float64(m.limit.Burst)-m.drained(t), 0)
}

// admits reports whether a call at t is within the limit and, if not, how long until one would
// be. The tolerance does not shorten the wait.
func (m *meter) admits(t time.Time, tolerance time.Duration) (ok bool, wait time.Duration) {
	return m.spares(t, tolerance, 1)
}

// spares is admits for a call of n units.
func (m *meter) spares(t time.Time, tolerance time.Duration, n float64) (ok bool, wait time.Duration) {
	if m.limit.unlimited() {
		return true, 0
	}
	over := m.with(t, n) - float64(m.limit.Burst)
	if over <= m.limit.Rate*tolerance.Seconds()+rounding {
		return true, 0
	}
	return false, time.Duration(min(math.Ceil(over/m.limit.Rate*1e9), float64(maxWait)))
}

// maxWait means never.
const maxWait = 24 * time.Hour

// change replaces the limit. Units that are used stay used: a new limit does not give a new
// burst.
func (m *meter) change(limit Limit, t time.Time) {
	m.level, m.last, m.limit = m.drained(t), t, limit.normal()
}
