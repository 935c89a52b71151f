package limitlua

import "testing"

// TestLost: a lost bucket is empty when it was lost, and full again when all that could have been used
// is owed no more.
func TestLost(t *testing.T) {
	const at, hour = int64(1_795_500_000_000_000), int64(3_600_000_000)
	day := []int64{at - 10*hour, at + 14*hour, at + 38*hour}
	for name, test := range map[string]struct {
		spec    Spec
		windows []int64
		full    int64 // when it is, after it was lost
	}{
		"token bucket":    {Spec{Algorithm: "tb", Permit: hour, Flow: 7, Burst: 14, Ahead: hour}, nil, 2 * hour},
		"meter":           {Spec{Algorithm: "lm", Permit: hour, Flow: 7, Burst: 14, Ahead: hour}, nil, 2 * hour},
		"shaping":         {Spec{Algorithm: "lb", Permit: hour, Flow: 1, Ahead: hour}, nil, hour},
		"window":          {Spec{Algorithm: "fw", Window: hour, Burst: 10, Ahead: hour}, nil, hour},
		"calendar window": {Spec{Algorithm: "fw", Burst: 10, Ahead: hour}, day, 14 * hour},
		"counter":         {Spec{Algorithm: "sc", Window: hour, Burst: 10, Ahead: hour}, nil, 2 * hour},
	} {
		left := func(after int64) float64 {
			stored, err := test.spec.Stored(test.spec.Lost(at, test.windows), at+after, test.windows)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return stored.Left
		}
		if n := left(0); n >= 1 {
			t.Errorf("%s: %v permits when it was lost", name, n)
		}
		if n := left(test.full + 1); n != test.spec.full() {
			t.Errorf("%s: %v permits after %d h; want %v", name, n, test.full/hour, test.spec.full())
		}
	}
	if text := (Spec{Algorithm: "fw", Burst: 10}).Lost(at-100*hour, day); text != "" {
		t.Errorf("lost before the calendar begins: %q", text)
	}
}
