package sandbox

import (
	"math"
	"time"
)

// Limit is what a provider allows: at most Burst + Rate × t calls in any time t.
// The zero Limit allows everything.
type Limit struct {
	Rate  float64 // calls per second; 0 with a Burst: Burst calls and never more
	Burst int     // calls that may come at once; 0 with a Rate means 1
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

// meter holds calls against a limit, or what calls use of another unit.
//
// Its level is the fullest window that ends now: the largest
//
//	count(i..j) − rate × (t_j − t_i)
//
// over all i ≤ j, where j is the last call. A window that ends with the next
// call is one of these, longer by one call and by the time in between, or the
// new call alone. So the largest follows from the largest before, in
// [meter.add], and no call needs to be remembered. A call that uses n units
// counts as n calls at the same time.
type meter struct {
	limit Limit // normal
	level float64
	last  time.Time
}

// rounding is what sums of floating point may be off by, in calls: a perfect
// pacer walks on the line and must not fall off it.
const rounding = 1e-6

// with is the level if a call of n units came at t, which is not before the last
// one.
func (m *meter) with(t time.Time, n float64) float64 { return m.drained(t) + n }

func (m *meter) drained(t time.Time) float64 {
	if m.last.IsZero() {
		return 0
	}
	return max(m.level-m.limit.Rate*t.Sub(m.last).Seconds(), 0)
}

func (m *meter) add(t time.Time) { m.use(t, 1) }

// use adds n units; fewer than 0 are given back.
func (m *meter) use(t time.Time, n float64) {
	m.level, m.last = max(m.with(t, n), 0), t
}

// left is how many units a call at t may use.
func (m *meter) left(t time.Time) float64 {
	return max(float64(m.limit.Burst)-m.drained(t), 0)
}

// admits tells whether a call at t keeps to the limit, and if not, how long
// until one would. The tolerance forgives; it is not part of the wait.
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

// maxWait stands for never.
const maxWait = 24 * time.Hour

// change puts another limit in force. What was used stays used: a new limit is
// not a new burst.
func (m *meter) change(limit Limit, t time.Time) {
	m.level, m.last, m.limit = m.drained(t), t, limit.normal()
}
