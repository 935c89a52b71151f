package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/pacer"
)

// TestLaw: a broken law is the machine's fault only if delays like the pacer's can explain it.
func TestLaw(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	began := time.Now()
	// 200 calls, of which so many come at twice the limit.
	calls := func(n int) (at []time.Time) {
		next := began
		for i := range 200 {
			at = append(at, next)
			if next = next.Add(10 * ms); i < n {
				next = next.Add(-5 * ms)
			}
		}
		return at
	}
	for what, test := range map[string]struct {
		fast int
		late time.Duration // of one of the pacer's calls, after the calls
		want string        // kept, busy or broken
	}{
		"as allowed":                   {0, 0, "kept"},
		"as allowed, late":             {0, 400 * ms, "kept"},
		"too fast":                     {10, 0, "broken"},
		"too fast, late":               {10, 3 * ms, "busy"},
		"too fast for a moment, late":  {50, 3 * ms, "busy"},
		"too fast for any delay, late": {60, 3 * ms, "broken"},
		"as fast, but as late":         {60, 300 * ms, "busy"},
		"faster than that":             {70, 300 * ms, "broken"},
	} {
		x := &show{scenario: scenario{rate: 100, burst: 1}}
		after := began.Add(10 * time.Second)
		busy, err := x.law(calls(test.fast), pacer.Calls{{Due: after, At: after.Add(test.late)}})
		got := "kept"
		if err != nil {
			got = "broken"
		} else if strings.Contains(busy, "machine too busy") {
			got = "busy"
		}
		if got != test.want {
			t.Errorf("%s: %s (%q, %v); want %s", what, got, busy, err, test.want)
		}
	}
}
