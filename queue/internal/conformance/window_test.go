package conformance

import (
	"maps"
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

// TestWindow: calls that become known in any order, in any pieces, are counted as if all were known at once. A window
// that keeps only a few calls never counts more than that, and the same until it joins some of them.
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
		w := Window{most: rapid.SampledFrom([]int{0, 4, 6, 9, 16}).Draw(t, "most")}
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
				switch {
				case len(all) > 0 && c.At < newest-Late:
					late++
					continue
				case c.At < w.since:
					late++ // later windows count it
				}
				all = append(all, c)
			}
			for _, c := range all {
				newest = max(newest, c.At)
			}
			_, missed := w.Add(span, calls, func(at, n, _ int64) { most[hour(at)] = max(most[hour(at)], n) })
			late -= missed
			if w.most > 0 && len(w.calls) > w.most {
				t.Fatalf("it keeps %d calls; want at most %d", len(w.calls), w.most)
			}
			if rapid.Bool().Draw(t, "another worker goes on") {
				text, _ := writeCalls(0, w.kept())
				calls, _ := readCalls(text)
				w = Window{most: w.most}
				w.fill(calls)
			}
		}
		if late != 0 {
			t.Fatalf("%d more calls were late than it says", late)
		}
		want := counted(span, all, hour)
		for _, h := range slices.Sorted(maps.Keys(want)) {
			if most[h] > want[h] || most[h] < want[h] && w.since == 0 {
				t.Fatalf("hour %d: %d; want %d", h, most[h], want[h])
			}
		}
	})
}

// TestManyCalls: of more calls than a window keeps one by one, the most in a window is never too high, and too low by the
// calls of one slice of it at most. That also holds for calls that become known late or are given back.
func TestManyCalls(t *testing.T) {
	const (
		most  = 1000
		every = int64(100_000) // µs from call to call
	)
	for name, length := range map[string]int64{ // in calls
		"a window of more calls than it keeps":        2 * most,
		"a window of about as many calls as it keeps": most,
		"a short window, of which many are kept":      10,
	} {
		w, span, at := Window{most: most}, Span{Length: length * every}, int64(Late)
		var told int64
		add := func(calls ...Call) (missed int) {
			_, missed = w.Add(span, calls, func(_, n, _ int64) { told = max(told, n) })
			if len(w.calls) > most {
				t.Fatalf("%s: it keeps %d calls; want at most %d", name, len(w.calls), most)
			}
			return missed
		}
		missed := 0
		for i := range 12 * most {
			at += every
			missed += add(Call{at, 1})
			if i > most && i%100 == 0 { // a call that becomes known when a quarter of those that are kept are newer, and was given back
				missed += add(Call{at - most/4*every, 1}, Call{at - most/4*every, -1})
			}
		}
		if low := length - told; missed != 0 || low < 0 || low > length*4/most+1 {
			t.Errorf("%s: %d calls, of which %d were missed; want %d", name, told, missed, length)
		}
		if missed := add(Call{w.since - 1, 1}); missed != 1 {
			t.Errorf("%s: %d calls are missed; want the one that is older than those that are kept one by one", name, missed)
		}
		add(Call{w.since - 1, -1})
		before := told
		told = 0
		if add(Call{w.since - 1, -5}, Call{at, 1}); length > most && told > before-4 || told > before+1 {
			t.Errorf("%s: %d calls after 5 were given back, and %d before", name, told, before)
		}
	}
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
