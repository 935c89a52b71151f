package faults

import (
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
)

// TestNothingWasUnderWay: a run in which no job was called again says so, and fails where calls were cut off for certain.
func TestNothingWasUnderWay(t *testing.T) {
	t.Parallel()
	healed := time.Now()
	again := func(after time.Duration) account {
		return account{again: map[string][]sandbox.Call{"a": {{At: healed.Add(-time.Second)}, {At: healed.Add(after)}}}}
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
		"long calls, one again late": {15 * time.Second, 5 * time.Second, again(16 * time.Second), ""},
	} {
		x := &show{scenario: scenario{latency: test.latency, promise: promise{again: test.promised}}, healed: healed}
		if got, err := x.tookAgain(test.account); got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v; want %q", what, got, err, test.want)
		}
	}
}
