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
type Window struct{ calls []Call }

// maxCalls is how many calls a window keeps one by one.
const maxCalls = 100_000

// Add adds calls in any order. For each window that a call of these is in, and that ends with a call, it tells when it
// ends, what was taken in it, and what of that by its last call. It returns the calls without those that came too late to be counted.
func (w *Window) Add(span Span, calls []Call, tell func(at, n, last int64)) (counted []Call) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	if n := len(w.calls); n > 0 {
		known := w.calls[n-1].At - Late
		calls = calls[sort.Search(len(calls), func(i int) bool { return calls[i].At >= known }):]
	}
	if len(calls) == 0 {
		return nil
	}
	first := w.insert(calls)
	from, in := first, int64(0)
	for i := first; i < len(w.calls); i++ {
		begin := span.begin(w.calls[i].At)
		if i == first {
			for from > 0 && w.calls[from-1].At >= begin {
				from--
				in += w.calls[from].N
			}
		}
		in += w.calls[i].N
		for ; w.calls[from].At < begin; from++ {
			in -= w.calls[from].N
		}
		if i+1 == len(w.calls) || w.calls[i+1].At > w.calls[i].At { // of calls of one moment, the last one has all
			tell(w.calls[i].At, in, w.last(i))
		}
	}
	w.forget(span)
	return calls
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
	return w.calls[len(w.calls)-1].At
}

// fill sets the calls of an empty window.
func (w *Window) fill(calls []Call) {
	w.calls = calls
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
// windows.
func (w *Window) forget(span Span) {
	due := w.calls[len(w.calls)-1].At - Late // no call comes before
	gone := sort.Search(len(w.calls), func(i int) bool { return w.calls[i].At >= span.begin(due) })
	w.calls = slices.Delete(w.calls, 0, gone)
	if span.slides() {
		w.join()
		return
	}
	n := sort.Search(len(w.calls), func(i int) bool { return w.calls[i].At > due })
	if n < 2 {
		return
	}
	// They all are in the window that holds due: what was before it has just been dropped.
	w.calls[n-1].N = sum(w.calls[:n])
	w.calls = slices.Delete(w.calls, 0, n-1)
}

// join makes one of each two of the older calls, at the later moment, if there are too many: a window that begins
// between the two counts both.
func (w *Window) join() {
	if len(w.calls) <= maxCalls {
		return
	}
	half := w.calls[:maxCalls/2]
	for i := 0; i < len(half); i += 2 {
		half[i/2] = Call{half[i+1].At, half[i].N + half[i+1].N}
	}
	w.calls = slices.Delete(w.calls, len(half)/2, len(half))
}

func sum(calls []Call) (n int64) {
	for _, c := range calls {
		n += c.N
	}
	return n
}
