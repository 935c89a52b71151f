package inspect

import "math"

// adapt is what is known of the rate that a provider admits, as in formats.lua.
type adapt struct{ low, high, since, told, at int64 }

// part returns the part of an adaptive limit that is in force, as in lanes.lua.
func (a adapt) part(now int64) float64 {
	const (
		parts, near, rise          = 1024, 32, 16
		step, stays, rises, counts = 2_000_000, 60_000_000, 5_000_000, 600_000_000
	)
	if a.low < 1 || a.high < a.low || a.high > parts || a.told < 1 || max(a.since, a.at) > now+1_000_000 {
		return 1
	}
	t, gap, steps := max(0, now-a.since), float64(a.high-a.low), int64(0)
	for gap/math.Exp2(float64(steps)) > float64(a.high)/near {
		steps++
	}
	level := int64(math.Floor(float64(a.high) - gap/math.Exp2(float64(min(steps, t/step)))))
	if ends := steps*step + stays; t >= ends {
		level = min(parts, level+rise*(1<<min((t-ends)/rises+1, 10)-1))
	}
	if now < a.at+counts {
		level = min(level, a.told)
	}
	return float64(level) / parts
}
