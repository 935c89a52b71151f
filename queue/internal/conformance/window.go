// Package conformance finds out whether calls kept to their limits: from the moments at which they left, the most
// of them in any window of each limit, hour by hour.
package conformance

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// Call is what a call took of a limit. Moments are Unix µs of Redis's clock.
type Call struct{ At, N int64 }

// Late is how long after later ones a call may become known: calls are settled when they have ended. µs.
const Late = 15 * 60 * 1e6

// Span says which calls before a call are in one window with it.
type Span struct {
	Length int64   // µs: every window of this length counts
	Starts []int64 // instead: only the windows that begin at these moments, ascending
	Fixed  bool    // instead: only those that begin at a multiple of Length since the epoch
}

// begin returns where the window begins that ends with a call.
func (s Span) begin(at int64) int64 {
	switch {
	case s.Fixed:
		return at - ((at%s.Length)+s.Length)%s.Length
	case s.Starts != nil:
		i := sort.Search(len(s.Starts), func(i int) bool { return s.Starts[i] > at })
		if i == 0 {
			return math.MinInt64
		}
		return s.Starts[i-1]
	}
	return at - s.Length + 1
}

// slides reports whether every moment begins a window.
func (s Span) slides() bool { return !s.Fixed && s.Starts == nil }

// Window has the calls of a limit that windows still count. The zero Window has none.
type Window struct {
	calls []Call // ascending; each of those before since stands for all calls of a slice of time
	since int64  // from when calls are kept one by one; 0: all of them are
	most  int    // how many are kept; 0: maxCalls
}

// maxCalls is how many calls a window keeps. When there are more, at least the newer half stays one by one.
const maxCalls = 100_000

// Add adds calls in any order. For each window that a call of these is in, and that ends with a call, it tells when it
// ends, what was taken in it, and what of that by its last call. It tells nothing of windows that end with a call that is
// not kept one by one any more. It returns the calls that it keeps, and how many came too late to be counted: some of these
// are kept, because they are also in windows that end later.
func (w *Window) Add(span Span, calls []Call, tell func(at, n, last int64)) (kept []Call, missed int) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	missed = from(calls, max(w.newest()-Late, w.since))
	calls = calls[from(calls, w.newest()-Late):]
	if len(calls) == 0 {
		return nil, missed
	}
	first := max(w.insert(calls), from(w.calls, w.since))
	oldest, in := first, int64(0)
	for i := first; i < len(w.calls); i++ {
		begin := span.begin(w.calls[i].At)
		if i == first {
			for oldest > 0 && w.calls[oldest-1].At >= begin {
				oldest--
				in += w.calls[oldest].N
			}
		}
		in += w.calls[i].N
		for ; w.calls[oldest].At < begin; oldest++ {
			in -= w.calls[oldest].N
		}
		if i+1 == len(w.calls) || w.calls[i+1].At > w.calls[i].At { // of calls of one moment, the last one has all
			tell(w.calls[i].At, in, w.last(i))
		}
	}
	w.forget(span)
	return calls, missed
}

// from returns the index of the first of sorted calls that is not before a moment.
func from(calls []Call, at int64) int {
	return sort.Search(len(calls), func(i int) bool { return calls[i].At >= at })
}

// last returns what the last call of a moment took, of which w.calls[i] is the latest record: there are others of what
// was given back, or settled.
func (w *Window) last(i int) int64 {
	all, most := int64(0), int64(0)
	for at := w.calls[i].At; i >= 0 && w.calls[i].At == at; i-- {
		all, most = all+w.calls[i].N, max(most, w.calls[i].N)
	}
	return max(0, min(all, most))
}

// newest returns the moment of the latest call; 0 without calls.
func (w *Window) newest() int64 {
	if len(w.calls) == 0 {
		return 0
	}
	return max(w.calls[len(w.calls)-1].At, w.since-1) // it may be joined with earlier ones
}

// kept returns the calls in the form in which they are stored: a call that takes nothing says from when they are kept one
// by one.
func (w *Window) kept() []Call {
	if w.since == 0 {
		return w.calls
	}
	return slices.Insert(slices.Clone(w.calls), 0, Call{At: w.since})
}

// fill sets the calls of an empty window to those that were stored.
func (w *Window) fill(calls []Call) {
	for _, c := range calls {
		if c.N == 0 {
			w.since = max(w.since, c.At)
		}
	}
	w.calls = slices.DeleteFunc(calls, func(c Call) bool { return c.N == 0 })
	slices.SortStableFunc(w.calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
}

// insert puts sorted calls in their places, and returns that of the first.
func (w *Window) insert(calls []Call) (first int) {
	first = sort.Search(len(w.calls), func(i int) bool { return w.calls[i].At > calls[0].At })
	w.calls = slices.Insert(w.calls, first, calls...)
	slices.SortStableFunc(w.calls[first:], func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	return first
}

// forget drops what no window counts any more into which a call can still come, and joins calls that are in the same
// windows, or of which there are too many.
func (w *Window) forget(span Span) {
	most := cmp.Or(w.most, maxCalls)
	tooMany := len(w.calls) > most
	if tooMany {
		w.since = max(w.since, w.calls[len(w.calls)-most/2-1].At+1)
	}
	due := max(w.newest()-Late, w.since) // no call that comes before is counted
	w.calls = slices.Delete(w.calls, 0, from(w.calls, span.begin(due)))
	switch {
	case !span.slides():
		w.join(due, math.MaxInt64) // all in the window that holds due: what was before it has just been dropped
	case tooMany:
		w.join(due, span.Length/int64(most/4)+1)
	}
}

// join makes one call of those of each slice of time before a moment, at the earliest of their moments: a window that begins
// later leaves all of them out, so no window counts too much.
func (w *Window) join(before, slice int64) {
	n, joined := from(w.calls, before), 0
	for i, c := range w.calls[:n] {
		if i > 0 && w.calls[joined-1].At/slice == c.At/slice {
			w.calls[joined-1].N += c.N
		} else {
			w.calls[joined] = c
			joined++
		}
	}
	w.calls = slices.Delete(w.calls, joined, n)
}
