package e2e

import (
	"testing"
	"time"
)

// TestQuiet: a call that is missing counts, unless the machine stood still when it
// was due; so does one that comes too early, unless the one before it was held up.
func TestQuiet(t *testing.T) {
	at := func(ms float64) time.Time { return time.UnixMicro(int64(ms * 1000)) }
	for name, test := range map[string]struct {
		calls  []float64 // ms; the rate is 10/s
		stalls [][2]float64
		runs   int
		share  float64
	}{
		"on time":                    {[]float64{0, 100, 200, 300}, nil, 1, 1},
		"a stall between two":        {[]float64{0, 100, 200, 300}, [][2]float64{{20, 80}, {110, 190}}, 1, 1},
		"one is missing":             {[]float64{0, 100, 300, 400}, nil, 1, 0.75},
		"missing in a stall":         {[]float64{0, 100, 300, 400}, [][2]float64{{195, 205}}, 2, 1},
		"missing before a stall":     {[]float64{0, 100, 300, 400}, [][2]float64{{150, 160}}, 1, 0.75},
		"late in a stall":            {[]float64{0, 100, 250, 300}, [][2]float64{{190, 250}}, 3, 1},
		"early":                      {[]float64{0, 100, 150, 250}, nil, 1, 1.2},
		"only the calls are in them": {[]float64{0, 100, 200}, [][2]float64{{0, 0}, {100, 100}, {200, 200}}, 3, 0},
	} {
		var calls []time.Time
		for _, ms := range test.calls {
			calls = append(calls, at(ms))
		}
		var stalls []span
		for _, s := range test.stalls {
			stalls = append(stalls, span{at(s[0]), at(s[1])})
		}
		runs := quiet(calls, 10, stalls)
		if share, _ := used(runs, 10); len(runs) != test.runs || share < test.share-1e-9 || share > test.share+1e-9 {
			t.Errorf("%s: %d runs, %.3f used; want %d, %.3f", name, len(runs), share, test.runs, test.share)
		}
	}
}
