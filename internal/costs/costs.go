// Package costs compares what calls take from limits with a unit.
package costs

import "maps"

// Larger returns the larger of two costs for each unit.
func Larger(a, b map[string]int64) map[string]int64 {
	if len(b) == 0 {
		return a
	}
	all := maps.Clone(b)
	for unit, n := range a {
		all[unit] = max(all[unit], n)
	}
	return all
}
