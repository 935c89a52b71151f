package inspect

import "math"

// adapt is what is known of the rate that a provider admits, as in formats.lua.
type adapt struct{ low, high, since, told, at int64 }

// Lowered says why an adaptive limit admits less than its own rate.
type Lowered string

const (
	NotLowered       Lowered = ""
	LoweredByQuota   Lowered = "quota"    // the provider said that it admits less, in the headers of an answer or in SetQuota
	LoweredByRefusal Lowered = "refusals" // the provider refused calls with 429
)

// part returns the part of an adaptive limit that is in force, as in lanes.lua, and why it is not all of it.
func (a adapt) part(now int64) (float64, Lowered) {
	const (
		parts, near, rise          = 1024, 32, 16
		step, stays, rises, counts = 2_000_000, 60_000_000, 5_000_000, 600_000_000
	)
	if a.low < 1 || a.high < a.low || a.high > parts || a.told < 1 || max(a.since, a.at) > now+1_000_000 {
		return 1, NotLowered
	}
	t, gap, steps := max(0, now-a.since), float64(a.high-a.low), int64(0)
	for gap/math.Exp2(float64(steps)) > float64(a.high)/near {
		steps++
	}
	level := int64(math.Floor(float64(a.high) - gap/math.Exp2(float64(min(steps, t/step)))))
	if ends := steps*step + stays; t >= ends {
		level = min(parts, level+rise*(1<<min((t-ends)/rises+1, 10)-1))
	}
	why := LoweredByRefusal
	if now < a.at+counts && a.told <= level {
		level, why = a.told, LoweredByQuota
	}
	if level == parts {
		why = NotLowered
	}
	return float64(level) / parts, why
}
