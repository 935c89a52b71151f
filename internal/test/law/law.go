// Package law defines what all limiters guarantee, for their tests.
//
// The law: any two calls i ≤ j of one bucket satisfy
//
//	count(i..j) ≤ burst + rate × (t_j − t_i + tolerance)
//
// and tenants get equal shares of a shared capacity ([Jain]).
package law

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Excess returns by how many calls the worst window exceeds burst + rate × length: the largest
// count(i..j) − burst − rate × (t_j − t_i) over all i ≤ j. Zero or less means that the law holds
// without tolerance. The rate is per second; the times can be in any order. Without times it
// returns −burst.
func Excess(times []time.Time, rate float64, burst int) float64 {
	return ExcessLate(times, rate, burst, inTime)
}

// ExcessLate is [Excess] for times of which each may have been late: see [CheckLate].
func ExcessLate(times []time.Time, rate float64, burst int, late func(time.Time) time.Duration) float64 {
	return worst(sorted(times), rate, burst, late).excess
}

// Check returns an error that names the worst window if the times break the law. It also returns
// an error for an invalid rate or burst.
func Check(times []time.Time, rate float64, burst int, tolerance time.Duration) error {
	return CheckLate(times, rate, burst, tolerance, inTime)
}

// CheckLate is [Check] for times of which each may have been late by as much as late returns for
// it: every window is longer by what its first time was late.
func CheckLate(times []time.Time, rate float64, burst int, tolerance time.Duration, late func(time.Time) time.Duration) error {
	if !(rate >= 0) || math.IsInf(rate, 1) || burst < 0 || tolerance < 0 {
		return fmt.Errorf("law: rate %v/s, burst %d, tolerance %v is not a limit", rate, burst, tolerance)
	}
	times = sorted(times)
	w := worst(times, rate, burst, late)
	const rounding = 1e-6 // of a call: an exact pacer uses the limit exactly
	if w.excess <= rate*tolerance.Seconds()+rounding {
		return nil
	}
	length := times[w.last].Sub(times[w.first])
	return fmt.Errorf("law: calls %d..%d of %d, %d within %v from %v into the run: burst %d + %v/s allows %.2f, so %.2f too many (%v is tolerated)",
		w.first, w.last, len(times), w.last-w.first+1, length, times[w.first].Sub(times[0]),
		burst, rate, float64(burst)+rate*length.Seconds(), w.excess, tolerance)
}

// Jain returns Jain's fairness index of the shares: 1 if all are equal, 1/n if one of n has
// everything. It returns 0 if no share is positive, or if one is negative or not a number.
func Jain(shares []float64) float64 {
	largest := 0.0
	for _, share := range shares {
		if !(share >= 0) || math.IsInf(share, 1) {
			return 0
		}
		largest = max(largest, share)
	}
	if largest == 0 {
		return 0
	}
	var sum, squares float64
	for _, share := range shares {
		share /= largest // so that no square overflows
		sum += share
		squares += share * share
	}
	return sum * sum / (float64(len(shares)) * squares)
}

type window struct {
	first, last int
	excess      float64
}

// worst needs one pass: count(i..j) − rate × (t_j − t_i) is
// (j + 1 − rate × t_j) − (i − rate × t_i), so for each j the worst i so far is the one with the
// smallest i − rate × t_i.
func worst(times []time.Time, rate float64, burst int, late func(time.Time) time.Duration) window {
	w := window{excess: -float64(burst)}
	first, least := 0, math.Inf(1)
	for j, t := range times {
		base := float64(j) - rate*t.Sub(times[0]).Seconds()
		if begun := base + rate*late(t).Seconds(); begun < least {
			first, least = j, begun
		}
		if excess := base + 1 - least - float64(burst); j == 0 || excess > w.excess {
			w = window{first, j, excess}
		}
	}
	return w
}

func inTime(time.Time) time.Duration { return 0 }

func sorted(times []time.Time) []time.Time {
	return slices.SortedFunc(slices.Values(times), time.Time.Compare)
}
