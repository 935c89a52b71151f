package conformance

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// counted computes the most calls in a window that ends with a call of each hour from all calls at once.
func counted(span Span, calls []Call, hour func(at int64) int64) map[int64]int64 {
	most := map[int64]int64{}
	for _, end := range calls {
		var n int64
		for _, c := range calls {
			if c.At <= end.At && c.At >= span.begin(end.At) {
				n += c.N
			}
		}
		most[hour(end.At)] = max(most[hour(end.At)], n)
	}
	return most
}

// TestWindow: calls that become known in any order, in any pieces, are counted as if all were known at once.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const second = int64(1e6)
		length := rapid.Int64Range(1, 4*Late).Draw(t, "length")
		span := Span{Length: length}
		switch rapid.IntRange(0, 2).Draw(t, "windows") {
		case 1:
			span.Fixed = true
		case 2:
			span = Span{Starts: []int64{-length, 0, length, 3 * length}}
		}
		hour := func(at int64) int64 { return at / (Late / 3) }
		var w Window
		var all []Call
		most, newest, late := map[int64]int64{}, int64(0), 0
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			var calls []Call
			for range rapid.IntRange(0, 5).Draw(t, "calls") {
				// Each may be as late as is allowed, and now and then one is later.
				back := rapid.SampledFrom([]int64{0, 1, second, length, length - 1, Late / 2, Late, Late + 1}).Draw(t, "back")
				ahead := rapid.SampledFrom([]int64{0, 1, second, length, length + 1, Late}).Draw(t, "ahead")
				calls = append(calls, Call{At: max(newest+ahead-back, 0), N: rapid.Int64Range(1, 3).Draw(t, "n")})
			}
			for _, c := range calls {
				if len(all) > 0 && c.At < newest-Late {
					late++
				} else {
					all = append(all, c)
				}
			}
			for _, c := range all {
				newest = max(newest, c.At)
			}
			counted := w.Add(span, calls, func(at, n, _ int64) { most[hour(at)] = max(most[hour(at)], n) })
			late -= len(calls) - len(counted)
		}
		if late != 0 {
			t.Fatalf("%d more calls were late than it says", late)
		}
		want := counted(span, all, hour)
		for _, h := range slices.SortedFunc(func(yield func(int64) bool) {
			for h := range want {
				if !yield(h) {
					return
				}
			}
		}, cmp.Compare[int64]) {
			if most[h] != want[h] {
				t.Fatalf("hour %d: %d; want %d", h, most[h], want[h])
			}
		}
	})
}

// TestLastOfAMoment: what the last call of a window took is not what was given back of it, or settled. A leaky bucket
// allows that call beside what flows.
func TestLastOfAMoment(t *testing.T) {
	for name, test := range map[string]struct {
		calls [][]int64 // of one moment, as they become known
		want  int64
	}{
		"a call":                         {[][]int64{{1}}, 1},
		"two calls":                      {[][]int64{{1, 1}}, 1},
		"cancelled":                      {[][]int64{{1, -1}}, 0},
		"cancelled later":                {[][]int64{{1}, {-1}}, 0},
		"cancelled beside another":       {[][]int64{{1, 1}, {-1}}, 1},
		"cancelled as it becomes known":  {[][]int64{{-1, 1}}, 0},
		"settled for less":               {[][]int64{{2000}, {-2000, 1500}}, 1500},
		"settled for nothing":            {[][]int64{{2000}, {-2000}}, 0},
		"settled for more than it asked": {[][]int64{{2000}, {-2000, 2500}}, 2500},
	} {
		var w Window
		w.Add(Span{Length: 1e6}, []Call{{At: 1, N: 7}}, func(int64, int64, int64) {})
		var last int64
		for _, some := range test.calls {
			var calls []Call
			for _, n := range some {
				calls = append(calls, Call{At: 2, N: n})
			}
			w.Add(Span{Length: 1e6}, calls, func(_, _, n int64) { last = n })
		}
		if last != test.want {
			t.Errorf("%s: the last call took %d, want %d", name, last, test.want)
		}
	}
}

// TestWindowForgets: it keeps a window and the time in which calls may be late, and of fixed windows less.
func TestWindowForgets(t *testing.T) {
	const day = int64(24 * 3600 * 1e6)
	for name, test := range map[string]struct {
		span Span
		most int
	}{
		"any window":    {Span{Length: day}, 1440 + 15 + 1},
		"a short one":   {Span{Length: 1e6}, 15 + 2},
		"fixed":         {Span{Length: day, Fixed: true}, 15 + 2},
		"of a calendar": {Span{Starts: []int64{0, day, 2 * day, 3 * day, 4 * day}}, 15 + 2},
	} {
		var w Window
		for at := int64(0); at < 4*day; at += 60 * 1e6 {
			w.Add(test.span, []Call{{at, 1}}, func(int64, int64, int64) {})
			if len(w.calls) > test.most {
				t.Fatalf("%s: %d calls after %d min; want at most %d", name, len(w.calls), at/60e6, test.most)
			}
		}
	}
}
