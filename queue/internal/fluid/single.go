package fluid

import (
	"math"
	"slices"
)

// Single is a bucket from which permits are taken call by call.
type Single struct {
	Bucket
	at   float64   // until when it has flowed
	last float64   // when permits were taken last
	log  []logged  // of a sliding window log: what was taken in the last window
	sum  float64   // of log
	all  []float64 // memory of Opens, for looking ahead

	// What Has knows until permits are taken again: the bucket does not have knownN permits before hasNot, and has them
	// from has on. Between the two it computes.
	knownN, hasNot, has float64
}

type logged struct{ at, n float64 }

// NewSingle returns a bucket in the state of b at the time 0. log says whether it is of a sliding window log.
func NewSingle(b Bucket, log bool) *Single {
	s := &Single{Bucket: b, last: math.Inf(-1)}
	s.single = true
	if log {
		if n := s.Quota - s.Level; n > 0 {
			s.log, s.sum = append(s.log, logged{s.Opens[0] - s.Period, n}), n
		}
		s.Opens = nil
		return s
	}
	s.begin()
	return s
}

// isLog reports whether the bucket is of a sliding window log.
func (s *Single) isLog() bool { return s.Quota > 0 && len(s.Opens) == 0 }

// flow lets the bucket flow until t.
func (s *Single) flow(t float64) {
	if s.isLog() {
		gone := 0
		for gone < len(s.log) && s.log[gone].at+s.Period <= t+Tiny {
			s.sum -= s.log[gone].n
			gone++
		}
		s.log = s.log[gone:]
		s.at = max(s.at, t)
		return
	}
	for s.at < t {
		next := t
		if len(s.Opens) > 0 {
			next = min(next, max(s.Opens[0], s.at))
		}
		s.in, s.out = s.Rate, 0
		if s.Spread && s.unused() <= Tiny {
			s.in = 0
		}
		s.pass(next-s.at, next)
		s.at = next
	}
}

// Earliest returns from when on, at t or later, the bucket has n permits if nobody takes any. It is never before what was
// taken last.
func (s *Single) Earliest(t, n float64) float64 {
	t = max(t, s.last)
	if n = min(n, s.Max); n <= 0 {
		return t
	}
	enough := n - Tiny*max(1, s.Max)
	ahead := *s // it flows, and windows open, in a copy: the next question may be about an earlier time
	ahead.Opens = append(s.all[:0], s.Opens...)
	s.all = ahead.Opens[:0]
	begin := t
	ahead.flow(t)
	if s.isLog() {
		sum := ahead.sum
		for i := 0; sum+enough > s.Quota && i < len(ahead.log); i++ {
			sum -= ahead.log[i].n
			t = max(t, ahead.log[i].at+s.Period)
		}
		return t
	}
	if ahead.Level >= enough {
		return t
	}
	t = max(t, ahead.at) // before the time 0 nothing flows
	if s.Quota == 0 {
		if s.Rate <= 0 {
			return math.Inf(1)
		}
		return t + (n-ahead.Level)/s.Rate
	}
	for {
		if d := (n - ahead.Level) / ahead.Rate; ahead.Spread && ahead.Rate > 0 && ahead.unused() >= enough && t+d <= ahead.Opens[0] {
			return t + max(d, 0)
		}
		if t = ahead.Opens[0]; t-begin > 1e10 {
			return math.Inf(1)
		}
		if ahead.flow(t); ahead.Level >= enough {
			return t
		}
	}
}

// Has reports whether the bucket has n permits at t, that is, whether Earliest(t, n) is t; n is more than 0. Prefer it where
// the same n is asked for again and again between two takes: except in a sliding counter, permits only come back between
// them, so one call of Earliest answers nearly all of these questions.
func (s *Single) Has(t, n float64) bool {
	if s.knownN != n {
		s.know(n)
	}
	if t < s.hasNot || t >= s.has {
		return t >= s.has
	}
	return s.Earliest(t, n) <= t
}

// HasNotBefore returns a time before which Has returns false.
func (s *Single) HasNotBefore(n float64) float64 {
	if s.knownN != n {
		s.know(n)
	}
	return s.hasNot
}

// know sets what [Single.Has] knows.
func (s *Single) know(n float64) {
	s.knownN, s.hasNot, s.has = n, math.Inf(-1), math.Inf(1)
	if s.Spread {
		return
	}
	// Close to the time from which it has them, the answer depends on rounding, which only Earliest does in the right way.
	near := 1e-6
	if s.Rate > 0 {
		near += 2 * Tiny * max(1, s.Max) / s.Rate
	}
	from := s.Earliest(s.last, n)
	s.hasNot, s.has = from-near, from+near
}

// Part returns the bucket of a part of a rate or window that was never used, as that of a guarantee in lanes.lua. Its
// windows are those of the limit.
func (b Bucket) Part(part float64) *Single {
	if b.Quota > 0 {
		b.Quota = max(1, math.Floor(b.Quota*part+Tiny))
		b.Max, b.Rate, b.Used, b.Given, b.Spread = b.Quota, 0, 0, 0, false
	} else {
		b.Rate, b.Max = b.Rate*part, max(2, math.Floor(b.Max*part+Tiny))
	}
	b.Level = b.Max
	b.Opens = slices.Clone(b.Opens)
	return NewSingle(b, false)
}

// Charge takes n permits at t, also more than the bucket ever holds.
func (s *Single) Charge(t, n float64) {
	s.flow(t)
	s.last, s.knownN = max(s.last, t), 0
	s.Level, s.Used = s.Level-n, s.Used+n
}

// Take takes n permits at t, whether it has them or not; n may be less than 0, for what is given back.
func (s *Single) Take(t, n float64) {
	s.flow(t)
	s.last, s.knownN = max(s.last, t), 0
	n = min(n, s.Max)
	if s.isLog() {
		s.log, s.sum = append(s.log, logged{t, n}), s.sum+n
		return
	}
	s.Level = min(s.Level-n, s.Max)
	s.Used = max(0, s.Used+n)
	if s.Spread {
		s.Level = min(s.Level, s.unused())
	}
}
