package main

// rampMutants break limits that grow.
var rampMutants = []mutant{
	{
		"queue/internal/store/lanes.lua", `if state then age = math.max(0, at - start_of(ramp, state, now)) end`, `if state then age = at - start_of(ramp, state, now) end`,
		"clock", "a clock that was set back does not shrink a ramp below its beginning", "queue/inspect TestRampIsLanes",
	},
	{
		"queue/internal/store/lanes.lua", `if state.calls < TELL or state.rejected <= ramp.hold * state.calls then return state.start end`, `if state.rejected <= ramp.hold * state.calls then return state.start end`,
		"missing condition", "a few rejected calls do not hold a ramp", "queue/inspect TestRampIsLanes",
	},
	{
		"queue/internal/store/lanes.lua", `return state.start + math.max(0, now - state.counted)`, `return state.start`,
		"missing write", "a ramp stands still while too many calls are rejected", "queue TestRampIsHeld",
	},
	{
		"queue/internal/store/lanes.lua", `start = start_of(entry.ramp, state, now), counted = now,`, `start = state.start, counted = now,`,
		"missing write", "a ramp goes on later by as long as it was held", "queue TestRampIsHeld",
	},
	{
		"queue/internal/store/lanes.lua", `if kept_at then`, `if false then`,
		"missing condition", "a ramp begins with the first call, and not anew with each", "queue TestRampOverDays",
	},
	{
		"queue/internal/store/lanes.lua", `grown.b = math.max(1, math.min(spec.b, most))`, `grown.b = math.max(1, most)`,
		"missing condition", "of a ramp and a tenant's own rate the lower one holds", "queue TestRampBeginsAnew",
	},
	{
		"queue/internal/store/lanes.lua", `elseif limit.ramp and not tenant.changed[limit.name] then`, `elseif limit.ramp then`,
		"missing condition", "an override holds alone", "queue TestRampBeginsAnew",
	},
	{
		"queue/internal/store/lanes.lua", `if spec.a == 'tb' then grown.b = math.max(1, math.floor(spec.b * part)) end`, ``,
		"missing write", "a burst grows with its rate", "queue TestRampOfARate",
	},
	{
		"queue/internal/store/lanes.lua", `local n = math.floor(age / ramp.period + (following and 0.5 or 0))`, `local n = math.floor(age / ramp.period)`,
		"rounding", "a day of 23 hours is a day of a ramp", "queue TestRampOverDays",
	},
	{
		"queue/internal/mover/rest.go", `case "b", "ramp", "adapt", "permits":`, `case "b", "permits":`,
		"missing write", "a tenant that moves keeps its ramp", "queue/internal/mover TestMove$",
	},
	{
		"queue/internal/mover/rest.go", `case "b", "ramp", "adapt", "permits":`, `case "b", "ramp", "permits":`,
		"missing write", "a tenant that moves keeps what its provider admits", "queue/internal/mover TestMove$",
	},
	{
		"queue/gate.go", `v.told = current.told(took, adapts, grows && answer != "")`, `v.told = current.told(took, adapts, false)`,
		"missing write", "handlers report what was rejected", "queue TestRampIsTold",
	},
}
