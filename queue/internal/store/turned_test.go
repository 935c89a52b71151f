package store

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/limitlua"
)

// TestLimitBecomesALeakyBucket: what was used of a window holds back the calls of a leaky bucket without a capacity, however
// little ahead a queue gives slots. So does what a call used beyond its costs.
func TestLimitBecomesALeakyBucket(t *testing.T) {
	t.Parallel()
	const hour, every = 3_600_000_000, 36_000_000
	window := fmt.Sprintf("f %d %d 100 %d %d", askedAt-hour/2, askedAt+hour/2, askedAt, askedAt)
	leaky := limitlua.Spec{Algorithm: "lb", Permit: every, Flow: 1, Ahead: 450_000}
	for name, c := range map[string]struct {
		calls []string
		want  string
	}{
		"used before": {[]string{"earliest 0 1"}, fmt.Sprint(100 * every)},
		"used beyond": {[]string{"charge 0 10", "earliest 0 1"}, fmt.Sprint("done ", 110*every)},
	} {
		answers, _, err := ask(t, leaky, askedAt, window, c.calls...)
		if err != nil || answers != c.want {
			t.Errorf("%s: %s, %v; want %s", name, answers, err, c.want)
		}
	}
}
