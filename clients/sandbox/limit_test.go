package sandbox

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// worstWindow is the definition of Excess, window by window.
func worstWindow(times []time.Time, limit Limit) float64 {
	worst := math.Inf(-1)
	for i := range times {
		for j := i; j < len(times); j++ {
			count, length := float64(j-i+1), times[j].Sub(times[i]).Seconds()
			worst = max(worst, count-float64(limit.Burst)-limit.Rate*length)
		}
	}
	return worst
}

// randomTimes are bursts and pauses around a rate.
func randomTimes(r *rand.Rand, n int, rate float64) []time.Time {
	start := time.Now()
	times := make([]time.Time, n)
	at := time.Duration(0)
	for i := range times {
		switch r.IntN(4) {
		case 0: // together with the one before
		case 1:
			at += time.Duration(r.ExpFloat64() / rate * 4e9)
		default:
			at += time.Duration(r.Float64() / rate * 1.2e9)
		}
		times[i] = start.Add(at)
	}
	return times
}

// The meter must refuse a call exactly when the law, written out over all
// windows of what it has admitted so far and the call, would be broken.
func TestMeterIsTheLaw(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for run := range 300 {
		limit := Limit{Rate: []float64{0.5, 3, 10, 999.9}[run%4], Burst: 1 + r.IntN(5)}
		tolerance := time.Duration([]float64{0, 0.05, 2}[run%3] / limit.Rate * 1e9)
		m := meter{limit: limit}
		var admitted []time.Time
		refused := 0
		for _, at := range randomTimes(r, 120, limit.Rate) {
			over := worstWindow(append(admitted, at), limit) - limit.Rate*tolerance.Seconds()
			want := over <= rounding
			if math.Abs(over-rounding) < 1e-8 {
				continue // on the line: either answer is right
			}
			got, wait := m.admits(at, tolerance)
			if got != want {
				t.Fatalf("run %d (%+v, %v): call %d admitted: %v; the law says %v, over by %v", run, limit, tolerance, len(admitted), got, want, over)
			}
			if !got {
				refused++
				if again, _ := m.admits(at.Add(wait), 0); !again {
					t.Fatalf("run %d: refused again after the wait of %v", run, wait)
				}
				continue
			}
			m.add(at)
			admitted = append(admitted, at)
		}
		if refused == 0 || len(admitted) < 10 {
			t.Fatalf("run %d proves nothing: %d admitted, %d refused", run, len(admitted), refused)
		}
	}
}

func TestExcess(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		limit := Limit{Rate: 1 + 20*r.Float64(), Burst: 1 + r.IntN(4)}
		times := randomTimes(r, 1+r.IntN(100), limit.Rate)
		calls := make([]Call, len(times))
		for i, at := range r.Perm(len(times)) { // in any order
			calls[i] = Call{At: times[at], Tenant: "acme"}
		}
		got, want := Excess(calls, limit), worstWindow(times, limit)
		if math.Abs(got-want) > 1e-6 {
			t.Fatalf("Excess = %v; over all windows it is %v", got, want)
		}
	}
	if got := Excess(nil, Limit{Rate: 1, Burst: 3}); got != -3 {
		t.Errorf("without calls: %v", got)
	}
}

func TestLimitZeroValues(t *testing.T) {
	now := time.Now()
	tests := map[string]struct {
		limit  Limit
		admits int // of ten at once
	}{
		"zero":              {Limit{}, 10},
		"rate without":      {Limit{Rate: 1}, 1},
		"burst without":     {Limit{Burst: 4}, 4},
		"negative":          {Limit{Rate: -1, Burst: -1}, 10},
		"not a number":      {Limit{Rate: math.NaN(), Burst: 2}, 2},
		"infinite":          {Limit{Rate: math.Inf(1), Burst: 2}, 10},
		"fast as a machine": {Limit{Rate: 1e12, Burst: 1}, 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := meter{limit: tt.limit.normal()}
			admitted := 0
			for range 10 {
				ok, wait := m.admits(now, 5*time.Millisecond)
				if !ok {
					if wait <= 0 || wait > maxWait {
						t.Fatalf("wait is %v", wait)
					}
					continue
				}
				m.add(now)
				admitted++
			}
			if admitted != tt.admits {
				t.Errorf("admitted %d; want %d", admitted, tt.admits)
			}
		})
	}
}

// A perfect pacer walks on the line for a long time without a tolerance.
func TestMeterDoesNotDrift(t *testing.T) {
	const rate = 7
	m := meter{limit: Limit{Rate: rate, Burst: 1}}
	start := time.Now()
	for i := range 1_000_000 {
		// Rounded up to whole nanoseconds, as a pacer must.
		at := start.Add(time.Duration(math.Ceil(float64(i) / rate * 1e9)))
		if ok, wait := m.admits(at, 0); !ok {
			t.Fatalf("call %d was refused for %v", i, wait)
		}
		m.add(at)
	}
	if m.level > 1+rounding {
		t.Errorf("the level rose to %v", m.level)
	}
}

func TestChangedLimitIsNoNewBurst(t *testing.T) {
	now := time.Now()
	m := meter{limit: Limit{Rate: 1, Burst: 5}}
	for range 5 {
		m.add(now)
	}
	m.change(Limit{Rate: 10, Burst: 5}, now)
	if ok, wait := m.admits(now, 0); ok || wait < 99*time.Millisecond || wait > 101*time.Millisecond {
		t.Errorf("admitted: %v, wait %v; want 100ms at the new rate", ok, wait)
	}
	m.change(Limit{Rate: 10, Burst: 5}, now.Add(time.Hour))
	if m.level != 0 {
		t.Errorf("an hour later the level is %v", m.level)
	}
}
