package law_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/law"
)

var start = time.Date(2026, 3, 29, 0, 59, 0, 0, time.UTC)

// at makes times from milliseconds since start.
func at(milliseconds ...float64) []time.Time {
	times := make([]time.Time, len(milliseconds))
	for i, ms := range milliseconds {
		times[i] = start.Add(time.Duration(ms * float64(time.Millisecond)))
	}
	return times
}

// paced makes n times, one per interval.
func paced(n int, interval time.Duration) []time.Time {
	times := make([]time.Time, n)
	for i := range times {
		times[i] = start.Add(time.Duration(i) * interval)
	}
	return times
}

func TestCheck(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		times     []time.Time
		rate      float64
		burst     int
		tolerance time.Duration
		broken    string // "" when the law holds
	}{
		"no calls":                      {nil, 10, 1, 0, ""},
		"one call":                      {at(0), 10, 1, 0, ""},
		"one call where none may go":    {at(0), 0, 0, 0, "calls 0..0 of 1"},
		"exactly paced":                 {paced(10_000, 100*ms), 10, 1, 0, ""},
		"exactly paced at 3/s":          {paced(10_000, 333333334*time.Nanosecond), 3, 1, 0, ""},
		"1 % too fast":                  {paced(1_000, 99*ms), 10, 1, 5 * ms, "calls 0..999 of 1000"},
		"a full burst, then paced":      {append(at(0, 0, 0, 0), at(100, 200, 300)...), 10, 4, 0, ""},
		"a burst and one":               {at(0, 0, 0, 0, 0), 10, 4, 5 * ms, "calls 0..4 of 5"},
		"two bursts around a stall":     {at(0, 100, 200, 5000, 5000, 5000, 5100), 10, 1, 5 * ms, "calls 3..5 of 7"},
		"burst refilled only in part":   {at(0, 0, 0, 0, 200, 200, 200), 10, 4, 5 * ms, "calls 0..6 of 7"},
		"fixed windows, both edges":     {at(900, 910, 920, 930, 1000, 1010, 1020, 1030), 4, 4, 5 * ms, "calls 0..7 of 8"},
		"early by the tolerance":        {at(0, 95), 10, 1, 5 * ms, ""},
		"early by more than that":       {at(0, 94), 10, 1, 5 * ms, "calls 0..1 of 2"},
		"late, then on the old grid":    {at(0, 150, 200, 300), 10, 1, 5 * ms, "calls 1..2 of 4"},
		"unsorted, in the end too many": {at(300, 0, 200, 100, 250), 10, 1, 5 * ms, "calls 0..4 of 5"},
		"a negative rate":               {nil, -1, 1, 0, "is not a limit"},
		"a rate that is no number":      {nil, math.NaN(), 1, 0, "is not a limit"},
		"a negative burst":              {nil, 1, -1, 0, "is not a limit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := law.Check(test.times, test.rate, test.burst, test.tolerance)
			switch {
			case test.broken == "" && err != nil:
				t.Error(err)
			case test.broken != "" && err == nil:
				t.Errorf("passed; want an error with %q", test.broken)
			case test.broken != "" && !strings.Contains(err.Error(), test.broken):
				t.Errorf("got %q; want an error with %q", err, test.broken)
			}
		})
	}
}

// A call that was late lengthens the windows that it begins, and no other.
func TestCheckLate(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		times  []time.Time
		late   map[float64]time.Duration // by the time in ms
		broken string
	}{
		"nothing is late":              {at(0, 150, 200, 300), nil, "calls 1..2 of 4"},
		"the first of the window":      {at(0, 150, 200, 300), map[float64]time.Duration{150: 50 * ms}, ""},
		"less late than that":          {at(0, 150, 200, 300), map[float64]time.Duration{150: 40 * ms}, "calls 1..2 of 4"},
		"the last of the window":       {at(0, 150, 200, 300), map[float64]time.Duration{200: 50 * ms}, "calls 1..2 of 4"},
		"a window around it":           {at(0, 50, 100, 200), map[float64]time.Duration{50: 90 * ms}, "calls 0..2 of 4"},
		"too fast, and one of it late": {paced(1_000, 99*ms), map[float64]time.Duration{0: time.Hour}, "calls 1..999 of 1000"},
	} {
		err := law.CheckLate(test.times, 10, 1, 5*ms, func(at time.Time) time.Duration {
			return test.late[float64(at.Sub(start))/float64(ms)]
		})
		if (test.broken == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.broken) {
			t.Errorf("%s: %v; want %q", name, err, test.broken)
		}
	}
}

func TestCheckNamesTheWorstWindow(t *testing.T) {
	err := law.Check(at(0, 1000, 2000, 2010, 2020, 4000), 1, 1, 5*time.Millisecond)
	const want = "law: calls 0..4 of 6, 5 within 2.02s from 0s into the run: burst 1 + 1/s allows 3.02, so 1.98 too many (5ms is tolerated)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestExcess(t *testing.T) {
	unsorted := at(2000, 0, 1000)
	if got := law.Excess(unsorted, 2, 1); got != 0 {
		t.Errorf("Excess of a slow sequence = %v; want 0: one call is within a burst of one", got)
	}
	if !unsorted[0].Equal(start.Add(2 * time.Second)) {
		t.Error("Excess sorted its caller's slice")
	}
	if got := law.Excess(nil, 2, 3); got != -3 {
		t.Errorf("Excess of nothing = %v; want -3", got)
	}
}

// The definition itself, over all pairs.
func TestExcessIsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offsets := rapid.SliceOfN(rapid.Int64Range(0, int64(10*time.Second)), 0, 60).Draw(t, "offsets")
		rate := rapid.Float64Range(0, 1000).Draw(t, "rate")
		burst := rapid.IntRange(0, 50).Draw(t, "burst")
		times := make([]time.Time, len(offsets))
		for i, offset := range offsets {
			times[i] = start.Add(time.Duration(offset))
		}

		want := -float64(burst)
		if len(times) > 0 {
			want = math.Inf(-1)
		}
		for _, from := range times {
			for _, to := range times {
				if from.After(to) {
					continue
				}
				count := 0
				for _, at := range times {
					if !at.Before(from) && !at.After(to) {
						count++
					}
				}
				want = max(want, float64(count-burst)-rate*to.Sub(from).Seconds())
			}
		}

		if got := law.Excess(times, rate, burst); math.Abs(got-want) > 1e-6 {
			t.Fatalf("Excess = %v; by definition %v", got, want)
		}
		tolerance := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "tolerance"))
		over := want - rate*tolerance.Seconds()
		if err := law.Check(times, rate, burst, tolerance); math.Abs(over) > 1e-5 && (err != nil) != (over > 0) {
			t.Fatalf("over the tolerance by %v calls, but Check = %v", over, err)
		}
	})
}

func TestJain(t *testing.T) {
	tests := map[string]struct {
		shares []float64
		want   float64
	}{
		"equal":            {[]float64{7, 7, 7}, 1},
		"one has all":      {[]float64{0, 0, 5, 0}, 0.25},
		"two to one":       {[]float64{2, 1}, 0.9},
		"beyond a square":  {[]float64{1e200, 1e200}, 1},
		"nobody":           {nil, 0},
		"nothing":          {[]float64{0, 0}, 0},
		"a negative share": {[]float64{1, -1}, 0},
		"no number":        {[]float64{1, math.NaN()}, 0},
		"endless":          {[]float64{1, math.Inf(1)}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := law.Jain(test.shares); math.Abs(got-test.want) > 1e-12 {
				t.Errorf("Jain(%v) = %v; want %v", test.shares, got, test.want)
			}
		})
	}
}
