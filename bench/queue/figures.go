package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is a figure over the rounds.
type spread struct{ median, min, max float64 }

// over is the spread of values; without any it is not a number.
func over(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

func (s spread) String() string {
	if s.min == s.max || math.IsNaN(s.median) {
		return number(s.median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.median), number(s.min), number(s.max))
}

// number is a value with about three digits that mean something.
func number(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case size >= 100:
		return fmt.Sprintf("%.0f", v)
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// percentile is the least of the times that p of them do not exceed, in ms. Without
// times it is not a number.
func percentile(times []time.Duration, p float64) float64 {
	if len(times) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(times))
	return ms(sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)])
}

func ms(d time.Duration) float64     { return float64(d) / float64(time.Millisecond) }
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// of is a figure of a row over the rounds.
func (r row) of(f figure) spread {
	var values []float64
	for _, s := range r.samples {
		if v, ok := s[f]; ok {
			values = append(values, v)
		}
	}
	return over(values)
}
