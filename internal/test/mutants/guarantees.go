package main

// guaranteeMutants break guaranteed parts of shared limits.
var guaranteeMutants = []mutant{
	{
		"queue/internal/store/dispatch.lua", `if guarantees then lane, start = first_owed(s) end`, ``,
		"missing condition", "a tenant gets what is guaranteed to it", "queue TestGuarantees",
	},
	{
		"queue/internal/store/dispatch.lua", `if guarantees then guarantees.count(job.limits, job.costs, c, now) end`, ``,
		"missing write", "a tenant gets no more than its guarantee before others", "queue TestGuarantees",
	},
	{
		"queue/internal/store/dispatch.lua", `if guarantees then claim(lane) end`, ``,
		"missing write", "a lane that keeps its place has its guarantee there", "queue TestGuaranteeOfALaneThatStays",
	},
	{
		"queue/internal/store/dispatch.lua", `finish[tenant] = math.max(before, math.min(finish[tenant], virtual + ahead / w))`, `finish[tenant] = before`,
		"missing write", "a tenant does not get its guarantee and its share by weight", "queue TestGuarantees",
	},
	{
		"queue/internal/store/dispatch.lua", `if turn.owed then return guarantees.due(limits, now) > turn.s end`, `if turn.owed then return false end`,
		"missing condition", "a turn before others ends with the guarantee", "queue TestGuarantees",
	},
	{
		"queue/internal/store/dispatch.lua", `return turn.spent / limits.w + turn.start > turn.share or (owed[1] ~= nil and owed[1][1] <= turn.s)`, `return turn.spent / limits.w + turn.start > turn.share`,
		"missing condition", "the turn of a tenant of great weight ends when another is owed its guarantee", "queue TestGuaranteeOfNobody",
	},
	{
		"queue/internal/store/dispatch.lua", `if i then table.remove(ready, i) end`, ``,
		"missing write", "a lane that goes before others has one place in line", "queue TestGuaranteeOfSeveralLanes",
	},
	{
		"queue/internal/store/lanes.lua", `local p, r = whole.p * PARTS, whole.r * part`, `local p, r = whole.p * PARTS, whole.r * part * 2`,
		"wrong unit", "a guarantee is a part of a rate", "queue TestTimedGuarantee",
	},
	{
		"queue/internal/store/lanes.lua", `return {a = 'tb', p = p / common, r = r / common, b = math.max(2, burst), ahead = whole.ahead}`, `return {a = 'tb', p = p / common, r = r / common, b = math.max(1, burst), ahead = whole.ahead}`,
		"off by one", "a call that goes a little late does not make the next one late", "queue TestTimedGuarantee",
	},
	{
		"queue/internal/store/lanes.lua", `local burst = whole.a == 'tb' and math.floor(whole.b * part / PARTS) or 0`, `local burst = 0`,
		"missing condition", "a guarantee holds of a burst, too", "queue TestGuaranteesAreLent",
	},
	{
		"queue/internal/store/dispatch.lua", `if score then return score_read(score) end`, `if score then return nil end`,
		"missing branch", "a guarantee holds behind more lanes than a call reads", "queue TestGuaranteeBehindManyLanes",
	},
	{
		"queue/internal/store/dispatch.lua", `if not turned[lane] then owed_at[lane] = false end`, `if not turned[lane] then owed_at[lane] = nil end`,
		"missing write", "nothing is owed to a lane without jobs", "queue TestGuaranteeOfNobody",
	},
	{
		"queue/internal/store/lanes.lua", `if n > 0 and due(entry, now, t) <= t then limit_commit(entry.spec, bucket(entry, now), now, t, n) end`, `if n > 0 and due(entry, now, t) <= t then limit_commit(entry.spec, bucket(entry, now), now, t, 1) end`,
		"wrong unit", "a guarantee is a part of what jobs take", "queue TestGuaranteeByCost",
	},
	{
		"queue/internal/store/sweep.lua", `plan('ZADD', headgate .. 'owed', 'NX', int(now), lane)`, ``,
		"missing write", "a new guarantee is in force for lanes in line", "queue TestGuaranteeIsLive",
	},
	{
		"queue/internal/store/dispatch.lua", `if earlier and earlier < start then start, i, at = earlier, j, k end`, ``,
		"missing condition", "the lanes of a tenant share its guarantee", "queue TestGuaranteeOfSeveralLanes",
	},
	{
		"queue/internal/fluid/fluid.go", `f.sure, found = sure, true`, `f.sure = sure`,
		"missing write", "forecasts know guarantees", "queue/internal/fluid TestGuarantees",
	},
	{
		"queue/limits/limits.go", `} else if guaranteed += t.GuaranteeParts(); guaranteed > GuaranteeParts && t.Guarantee > 0 {`, `} else if guaranteed += t.GuaranteeParts(); guaranteed > 2*GuaranteeParts && t.Guarantee > 0 {`,
		"off by one", "no more is guaranteed than there is", "queue/limitsfile TestGuaranteeMistakes",
	},
}
