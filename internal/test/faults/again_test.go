package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/stage"
)

// TestTookAgain: a run in which no job was called again says so, and fails where calls were cut off for certain. The first job
// is called again within the promised time, and the last one may come later by the time that all of them take at the limit.
func TestTookAgain(t *testing.T) {
	t.Parallel()
	healed := time.Now()
	again := func(after ...time.Duration) account {
		a := account{again: map[string][]sandbox.Call{}}
		for i, by := range after {
			a.again[fmt.Sprint(i)] = []sandbox.Call{{At: healed.Add(-10 * time.Second)}, {At: healed.Add(by)}}
		}
		return a
	}
	for what, test := range map[string]struct {
		promised, latency time.Duration
		account           account
		want              string // "": it fails
	}{
		"nothing is promised":        {0, 5 * time.Second, account{}, "-"},
		"short calls, none again":    {15 * time.Second, 10 * time.Millisecond, account{}, "none was"},
		"long calls, none again":     {15 * time.Second, 5 * time.Second, account{}, ""},
		"long calls, one again":      {15 * time.Second, 5 * time.Second, again(2 * time.Second), "2.0 s (≤ 15 s)"},
		"long calls, one again late": {15 * time.Second, 5 * time.Second, again(16200 * time.Millisecond), ""},
		"one again before":           {15 * time.Second, time.Second, again(-time.Second), ""},
		"one before, one after":      {15 * time.Second, time.Second, again(-time.Second, 3*time.Second), "3.0 s (≤ 15 s)"},
		"the last in time":           {15 * time.Second, time.Second, again(3*time.Second, 4*time.Second, 16400*time.Millisecond), "3.0 s (≤ 15 s)"},
		"the last too late":          {15 * time.Second, time.Second, again(3*time.Second, 4*time.Second, 16600*time.Millisecond), ""},
	} {
		x := &show{Stage: &stage.Stage{T: t}, scenario: scenario{rate: 2, latency: test.latency, promise: promise{again: test.promised}}, healed: healed}
		if got, err := x.tookAgain(test.account); got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v; want %q", what, got, err, test.want)
		}
	}
}
