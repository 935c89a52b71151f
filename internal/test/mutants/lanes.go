package main

// laneMutants break the scripts that put jobs into lanes, and hand them out by fairness and limits.
var laneMutants = []mutant{
	// lanes.lua.
	{
		"queue/internal/store/formats.lua", `return (string.gsub(text, '[^a-zA-Z0-9._~@-]', function(c) return string.format('%%%02X', string.byte(c)) end))`, `return (string.gsub(text, '[^a-zA-Z0-9._~@;=-]', function(c) return string.format('%%%02X', string.byte(c)) end))`,
		"no escape", "no name becomes a part of another lane's", "queue TestScheduledForOthers",
	},
	{
		"queue/internal/store/lanes.lua", `if entry.spec.b > 0 and n > entry.spec.b then return entry.spec.b end`, `if entry.spec.b > 0 and n > entry.spec.b then return 0 end`,
		"wrong number", "a job that costs more than its limit holds takes all of it", "queue TestLoweredBelowACost",
	},
	{
		"queue/internal/store/lanes.lua", `if change.limit and (change['until'] == 0 or change['until'] > now) then`, `if change.limit then`,
		"clock", "an override ends at its end", "queue TestEndOfAnOverrideWakes",
	},
	{
		"queue/internal/store/lanes.lua", `before = math.floor(level / 2)`, `before = level`,
		"wrong number", "a 429 halves an adaptive limit", "queue TestAdaptiveLimit",
	},
	{
		"queue/internal/store/lanes.lua", `local function risen(times) return math.min(adapting.parts, level + RISE * (2 ^ times - 1)) end`, `local function risen(times) return level + RISE * (2 ^ times - 1) end`,
		"missing condition", "an adaptive limit never rises beyond its own rate", "queue TestAdaptiveLimit",
	},
	{
		"queue/internal/store/lanes.lua", `before = math.floor(a.high - gap / 2 ^ (n - 1))`, `before = math.floor(level / 2)`,
		"wrong number", "a refusal of a level leads to the level before it", "queue TestSearch",
	},
	{
		"queue/internal/store/lanes.lua", `if now < a.at + adapting.TOLD_US and a.told <= level then level, till = a.told, a.at + adapting.TOLD_US end`, `if now < a.at + adapting.TOLD_US then level, till = a.told, a.at + adapting.TOLD_US end`,
		"missing condition", "what a provider says does not raise a limit that it has refused", "queue/inspect TestAdaptIsLanes",
	},
	{
		"queue/internal/store/lanes.lua", `for _, entry in ipairs(of == 'account' and limits.shared or limits.own) do`, `for _, entry in ipairs(limits.all) do`,
		"missing condition", "what a tenant's own account admits does not hold the others", "queue TestQuotaIsKept",
	},
	{
		"queue/internal/store/lanes.lua", `if a.since == 0 and now < a.at + 1000000 then return end -- it has just said what it admits`, ``,
		"missing condition", "a refusal does not lower what the provider has just named", "queue TestRefusalsBelowAQuota",
	},
	{
		"queue/internal/store/lanes.lua", `adapt_save(entry.key, {low = adapting.parts, high = adapting.parts, since = 0, told = told, at = now})`, `adapt_save(entry.key, {low = a and a.low or 1024, high = a and a.high or 1024, since = a and a.since or 0, told = told, at = now})`,
		"missing write", "a limit that the provider names anew forgets what was refused", "queue TestRefusalsBelowAQuota",
	},
	{
		"queue/internal/store/lanes.lua", `whole = whole and (tenant.l[whole.name] or whole.spec), adapts = headgate .. 'b:' .. (whole or limit).name .. of,`, `whole = whole and (tenant.l[whole.name] or whole.spec), adapts = headgate .. 'b:' .. limit.name .. of,`,
		"wrong key", "what a reserve keeps of an adaptive limit stays the same part", "queue TestReserveOfAnAdaptiveLimit",
	},
	{
		"queue/internal/store/lanes.lua", `if more > 0 then limit_charge(entry.spec, b, now, more) end`, ``,
		"missing write", "a bucket has no more than the provider says remains", "queue TestQuotaIsKept",
	},
	{
		"queue/internal/store/lanes.lua", `local follows = entry.adaptive and entry.unit == unit and (of == 'account' or of == 'tenant' and entry.tenants or of == 'endpoint' and entry.endpoints)`, `local follows = entry.adaptive and entry.unit == unit and (of == 'account' or entry.tenants or entry.endpoints)`,
		"missing condition", "what a receiver says holds back its own calls alone", "queue TestWhatFollowsAQuota",
	},
	{
		"queue/internal/store/lanes.lua", `if spec and left >= 0 and (spec.c and spec.c[2] - spec.c[1] or size(spec)) <= math.max(window, 60000000) then`, `if spec and left >= 0 then`,
		"missing condition", "what remains for a second does not use up a day", "queue TestWhatFollowsAQuota",
	},
	{
		"queue/quota.go", `if q.Remaining != nil && took < freshQuota {`, `if q.Remaining != nil {`,
		"missing condition", "what remained before a long call is not believed", "queue TestSetQuota",
	},
	{
		"queue/internal/store/lanes.lua", `if t < openings[i + 1] then return math.max(t, openings[i]) end`, `if t < openings[i + 1] then return t end`,
		"clock", "no job goes outside of its send window", "queue TestSendWindow$|TestExplainPauseAndWindow",
	},
	{
		"queue/internal/store/lanes.lua", `lower.b = math.max(1, math.floor(spec.b * parts / adapting.parts))`, `lower.b = math.max(1, spec.b)`,
		"wrong number", "an adaptive window is lowered, too", "queue TestRecoveryOfAnAdaptiveLimitWakes",
	},
	{
		"queue/internal/store/lanes.lua", `if ends > b.pause then b.pause, b.why, b.mended = ends, reason, true end`, `if ends < b.pause then b.pause, b.why, b.mended = ends, reason, true end`,
		"swapped", "a provider's pause stops the buckets, and the longer one holds", "queue TestThrottledStopsTheBucket",
	},
	{
		"queue/internal/store/lanes.lua", `local function permit_left(entry, now) return limit_earliest(entry.spec, bucket(entry, now), now, now, 1) <= now end`, `local function permit_left(entry, now) return limit_earliest(entry.spec, bucket(entry, now), now, now, 1) <= now + 1e15 end`,
		"wrong number", "no more calls are under way than a concurrency limit says", "queue TestConcurrencyLimit|TestKeptSlotTakesAPermit",
	},
	{
		"queue/internal/store/lanes.lua", `plan('ZREM', key, id)`, `read('ZSCORE', key, id)`,
		"missing write", "a job that ended or waits holds no permit", "queue TestWaitingForAnotherTryHoldsNoPermit|TestCancelFreesOnePermit|TestConcurrencyLimit",
	},
	{
		"queue/internal/store/lanes.lua", `for _, lane in ipairs(pick(headgate .. 'blocked:' .. string.sub(key, #PERMITS + 1), 1)) do`, `for _, lane in ipairs(pick(headgate .. 'blocked:' .. string.sub(key, #PERMITS), 1)) do`,
		"wrong key", "a freed permit lets the next lane go on", "queue TestSettlementWakesTheBlockedLane|TestFreedPermitIsPassedOn",
	},
	{
		"queue/internal/store/lanes.lua", `return not empty and tenant_write(unpack(new)) or nil`, `return tenant_write(unpack(new))`,
		"missing write", "a tenant without jobs leaves nothing in Redis", "queue TestNoCountsOfATenantWithoutJobs",
	},
	{
		"queue/internal/store/lanes.lua", `latest = math.max(latest, pause_ends_at(text))`, `latest = math.min(latest, pause_ends_at(text))`,
		"swapped", "a pause keeps the jobs of its scope", "queue TestPauseScopes|TestPauses$",
	},
	{
		"queue/internal/store/lanes.lua", `if known and pause_ends_at(known) >= ends then return known end`, `if known and pause_ends_at(known) < ends then return known end`,
		"swapped", "of two pauses the one that ends later holds", "queue TestPauseLaterEndWins",
	},
	{
		"queue/internal/store/lanes.lua", `length = math.min(math.max(2 * known.length, length), GROWTH * length)`, `length = math.min(math.max(known.length, length), GROWTH * length)`,
		"wrong number", "the pauses of what is down grow", "queue TestGrowingHolds",
	},
	{
		"queue/internal/store/lanes.lua", `hold_set(scope, {ends = now + lease_us, length = hold.length, since = hold.since, probe = escape(id), reason = hold.reason})`, `hold_set(scope, {ends = now, length = hold.length, since = hold.since, probe = escape(id), reason = hold.reason})`,
		"clock", "one probe at a time tries what is down", "queue TestOneProbe|TestUsedUpAccount",
	},
	{
		"queue/internal/store/lanes.lua", `plan('ZADD', headgate .. 'pause_ends', int(keep_until), scope)`, `plan('ZADD', headgate .. 'pause_ends', int(keep_until + 1e15), scope)`,
		"clock", "pauses that ended leave nothing in Redis", "queue TestEndedPausesArePurged|TestHoldsAreForgotten",
	},
	{
		"queue/internal/store/formats.lua", `if not e or (more ~= '' and not back) or math.max(#e, #c, #position, #(back or '')) > 16 then error(string.format('%q', text) .. ' is no slot', 0) end`, `if not e then error(string.format('%q', text) .. ' is no slot', 0) end`,
		"no fence", "a slot that cannot be one is a fault, and no number", "queue TestSlotTexts",
	},
	{
		"queue/internal/store/lanes.lua", `if slot <= 0 then return end`, ``,
		"missing condition", "a job without a slot gives nothing back", "queue TestExpiredJob",
	},
	{
		"queue/internal/store/sweep.lua", `if slice[1] == '0' or #slice[2] >= ENOUGH then break end`, `if slice[1] == '0' then break end`,
		"missing condition", "the sweep of a tenant with many lanes looks at some of them in a call", "queue TestSweepOfManyEndpoints",
	},

	// dispatch.lua.
	{
		"queue/internal/store/dispatch.lua", `local ok, job, none = pcall(next_weighed, lane)`, `local ok, job, none = true, next_weighed(lane)`,
		"missing condition", "a damaged lane holds no other", "queue TestDamagedLaneHoldsNoOther|TestDispatchOnDamagedParts",
	},
	{
		"queue/internal/store/dispatch.lua", `if not (position >= 0 and position < 1e16) then error('its position in the lane is out of range', 0) end`, ``,
		"missing condition", "a job whose position cannot be written holds no other", "queue TestDamagedLaneHoldsNoOther",
	},
	{
		"queue/internal/store/dispatch.lua", `if room then plan('ZREM', set, id) end`, `if room then read('ZSCORE', set, id) end`,
		"missing write", "a job stands in one place", "queue TestScriptsOnDamagedState|TestForwardedAndExpiredAtOnce",
	},
	{
		"queue/internal/store/hand.lua", `local function hand_full(room) return #handed >= room or handed_bytes >= MAX_BYTES end`, `local function hand_full(room) return #handed > room or handed_bytes >= MAX_BYTES end`,
		"off by one", "a worker is handed no more jobs than it has places", "queue TestRoomOfARound",
	},
	{
		"queue/internal/store/dispatch.lua", `local start = math.max(virtual - 2 * typical / limits.w, finish_of(tenant))`, `local start = math.max(virtual - 200 * typical / limits.w, finish_of(tenant))`,
		"wrong number", "a tenant that was away earns no credit", "queue TestTimedAbsenceIsNoCredit",
	},
	{
		"queue/internal/store/dispatch.lua", `finish[tenant] = before + turn.spent / w`, `finish[tenant] = before + turn.spent`,
		"wrong number", "a shared limit is divided by weights", "queue TestTimedSharedLimitIsDividedByWeight|TestWeightsAreLive",
	},
	{
		"queue/internal/store/dispatch.lua", `local MAX_SKIPS = 9`, `local MAX_SKIPS = 900`,
		"wrong number", "jobs of low priority are not starved", "queue TestLowIsNotStarved|TestPriorityWithinATenant",
	},
	{
		"queue/internal/store/dispatch.lua", `if order == 'below' then v.skips, v.skipped = 0, true end`, `if order == 'below' then v.skipped = true end`,
		"missing write", "jobs of high priority go first nine times of ten", "queue TestLowIsNotStarved|TestPriorityWithinATenant",
	},
	{
		"queue/internal/store/lanes.lua", `if not job.permits then job.blocked = blocked_by(limits, now) end`, `if job.permits then job.blocked = blocked_by(limits, now) end`,
		"swapped", "a lane without a permit waits for one", "queue TestConcurrencyLimit|TestKeptSlotTakesAPermit|TestFreedPermitIsPassedOn",
	},
	{
		"queue/internal/store/dispatch.lua", `job.position, job.permits = job.kept_position or job.position, job.permits or take_permits(job.limits, job.id, now)`, `job.position, job.permits = job.kept_position or job.position, job.permits or ''`,
		"missing write", "a job that kept its slot takes a permit, too", "queue TestKeptSlotTakesAPermit",
	},
	{
		"queue/internal/store/dispatch.lua", `if job.deadline > 0 and job.deadline <= t and job.deadline <= horizon then return go_expired end`, `if job.deadline > 0 and job.deadline > t and job.deadline <= horizon then return go_expired end`,
		"swapped", "a job that cannot go before its deadline takes no slot", "queue TestDeadlineBeforeTheSlot",
	},
	{
		"queue/internal/store/dispatch.lua", `if reply[3] == 'slot' then reply[3], reply[4], reply[5] = 'go', math.max(job.deadline, now), 1 end`, `if reply[3] == 'slot' then reply[3], reply[4], reply[5] = 'go', math.max(job.deadline, now), 0 end`,
		"clock", "a job that took no permit because it expires is not called if it does not", "queue TestNoCallByADeadlineThatDoesNotCome",
	},
	{
		"queue/internal/store/dispatch.lua", `if t > horizon or (t > now + pickup and ahead >= max_ahead) then return too_far end`, `if t > horizon + 1e6 or (t > now + pickup and ahead >= max_ahead) then return too_far end`,
		"wrong number", "no slot is given further ahead than the horizon", "queue TestNoSlotBehindTheHorizon",
	},
	{
		"queue/internal/store/dispatch.lua", `if own <= horizon and t > math.max(horizon, now + KEEP_US) and job.held_by and job.held_by.unit ~= '' then return unit_used_up end`, ``,
		"missing branch", "a used-up shared limit with a unit does not hold jobs that take nothing of it", "queue TestUsedUpUnitHoldsOnlyItsJobs",
	},
	{
		"queue/internal/store/dispatch.lua", `put_back(turn.lane, job.all, job.held_by, 0)`, `stop(turn, job, job.all)`,
		"wrong branch", "lanes that wait for a used-up unit do not hide those behind them", "queue TestUsedUpUnitHoldsOnlyItsJobs",
	},
	{
		"queue/internal/store/dispatch.lua", `if limit.kind ~= 'window' and limit.kind ~= 'quota' then limit.kept_till = job.all end`, `limit.kept_till = job.all`,
		"missing condition", "the rest of a window is not kept for a job of the next one", "queue TestRestOfAWindowIsUsed",
	},
	{
		"queue/internal/store/lanes.lua", `e = math.max(limit_earliest(entry.spec, b, now, t, n), b.kept_till or 0)`, `e = limit_earliest(entry.spec, b, now, t, n)`,
		"missing check", "small jobs do not take what is left of a unit from the one whose turn it is", "queue TestUsedUpUnitHoldsOnlyItsJobs",
	},
	{
		"queue/internal/store/lanes.lua", `marks = commit_all(limits.all, now, c, job.costs)`, `marks = commit_all(limits.all, now, t, job.costs)`,
		"clock", "a call is accounted at the last moment at which it may leave", "queue TestAccounting",
	},
	{
		"queue/internal/store/lanes.lua", `b.detailed = b.detailed or entry.unit ~= '' or (spec.a == 'tb' and not spec.leased and spec.p >= 1e6 * spec.r)`, `b.detailed = b.detailed or entry.unit ~= ''`,
		"missing write", "a slow limit loses no slot that is missed", "queue TestMissedSlotsOfABurst",
	},
	{
		"queue/internal/store/lanes.lua", `marks = commit_all(limits.all, now, c, job.costs)`, `marks = ''`,
		"missing write", "every release is counted by its limits", "queue TestLoweredBelowACost",
	},
	{
		"queue/internal/store/dispatch.lua", `lane_drop(lane, job.id)`, `view(lane)`,
		"missing write", "a job is released once", "queue TestGhosts",
	},
	{
		"queue/internal/store/dispatch.lua", `backlog_add(tenant, -turn.taken)`, `backlog_add(tenant, 1 - turn.taken)`,
		"off by one", "what was released does not count as waiting", "queue TestCaps$|TestVerbsByState|TestWhatIsLeftExpires",
	},
	{
		"queue/internal/store/dispatch.lua", `if not handles(limits.kind) then return unserved_here end`, `if not handles('') and limits.kind == '' then return unserved_here end`,
		"swapped", "a worker is handed no job of a kind that it does not know", "queue TestWorkersOfDifferentKinds|TestUnservedIsSaid|TestKindsWithoutEnd",
	},
	{
		"queue/internal/store/dispatch.lua", `if t <= horizon and job.suspect then return go_without_slot end`, `if t <= horizon and job.suspect == 3 then return go_without_slot end`,
		"missing branch", "a suspect is given its slot when its turn has come", "queue TestSuspectGetsItsSlotInTurn",
	},
	{
		"queue/internal/store/dispatch.lua", `local stepped = looked_at > now + 500000`, `local stepped = looked_at > now + 5e14`,
		"clock", "lanes that wait by another clock are asked again", "queue TestReplanBesideRounds",
	},
	{
		"queue/internal/store/dispatch.lua", `if not understood then plan('ZADD', set, int(math.floor(now / 1000000) + 60), id) end`, `if not understood then plan('ZADD', set, int(math.floor(now / 1000000)), id) end`,
		"clock", "a damaged job does not stand in front of all others", "queue TestDamagedLanesHoldUpNobody|TestTaskWithoutAState|TestScriptsReportFaults",
	},
	{
		"queue/internal/store/dispatch.lua", `if tries >= MAX_GHOSTS then return nil, damaged and 'damaged' or 'ghosts' end`, `if tries >= 1e6 then return nil, damaged and 'damaged' or 'ghosts' end`,
		"no bound", "a call looks at a bounded number of damaged jobs", "queue TestManyGhosts",
	},
	{
		"queue/internal/store/dispatch.lua", `local function has_slot(job) return job.kept_c > now and job.kept_e <= horizon + horizon - now end`, `local function has_slot(job) return job.kept_c > now end`,
		"clock", "a slot that was given before the clock was set back is given up", "queue TestNoFarSlotIsUsed",
	},
	{
		"queue/internal/store/dispatch.lua", `usable = usable and not exists(asynq .. 'paused')`, `usable = usable and not exists(asynq .. 'pause')`,
		"wrong key", "a queue that asynq's tools pause is paused", "queue TestAsynqPausesAQueue",
	},
	{
		"queue/internal/store/dispatch.lua", `if settled(job) then`, `if settled(job) and job.done == '0' then`,
		"missing condition", "what only has to be put away goes to any worker", "queue TestPendingTasks",
	},
	{
		"queue/internal/store/dispatch.lua", `if goes and handles(escape(message_kind(job.msg))) then`, `if goes then`,
		"missing condition", "a job that an operator lets go at once goes to a worker that handles it", "queue TestRunNowIsForItsWorkers",
	},

	// hand.lua, slot.lua.
	{
		"queue/internal/store/hand.lua", `if not job or job.state ~= 'active' or job.owner ~= owner_write(HAND_WORKER, run + i - 1) then return end`, `if not job or job.state ~= 'active' then return end`,
		"no fence", "a job that another run has is not handed over again", "queue TestLostReplyOfDispatch",
	},
	{
		"queue/internal/store/hand.lua", `if not run or run < first or run >= HAND_RUN then return end`, `if not run or run < first then return end`,
		"no fence", "a call that arrives late takes no jobs from a later one", "queue TestLostReplyOfDispatch",
	},
	{
		"queue/internal/store/hand.lua", `if job.crashes >= 3 then return 'crashed' end`, `if job.crashes >= 4 then return 'crashed' end`,
		"off by one", "the job that took three workers with it is archived", "queue TestThirdCrashIsTheLast",
	},
	{
		"queue/internal/store/hand.lua", `plan('SET', HANDED_KEY, handed_write(HAND_RUN, handed), 'PX', KEPT_MS)`, `plan('PEXPIRE', HANDED_KEY, KEPT_MS)`,
		"missing write", "what was handed over in a reply that was lost is handed over again", "queue TestLostReplyOfDispatch",
	},
	{
		"queue/internal/store/hand.lua", `job.id, job.msg, answer, e, c, job.crashes, job.base, job.first and job.began or now,`, `job.id, job.msg, answer, e, c, job.crashes, job.base, now,`,
		"wrong number", "the first attempt's time stays the first one's", "queue TestFirst|TestKeepsFirst",
	},
	{
		"queue/internal/store/hand.lua", `if job.done then return job.done == '1' and 'done' or 'failed' end`, `if job.done == '2' then return 'done' end`,
		"no fence", "a job that ended is never called again", "queue TestDoneIsNeverCalledAgain|TestPendingTasks",
	},
	{
		"queue/internal/store/hand.lua", `(job.unsure and 1 or 0) + (probe and 2 or 0) + ((job.permits or '') ~= '' and 4 or 0), (job.position or 0) % BAND,`,
		`(probe and 2 or 0) + ((job.permits or '') ~= '' and 4 or 0), (job.position or 0) % BAND,`,
		"missing condition", "that an earlier call's end is not known stays known", "queue TestUnknownStaysUnknown|TestCallThatOutlivesItsWorker",
	},
	{
		"queue/internal/store/slot.lua", `if task[1] ~= 'active' or task[2] ~= owner then`, `if task[1] ~= 'active' then`,
		"no fence", "only the run that has a job gets a slot for it", "queue TestSlotWaitsForAPause",
	},
	{
		"queue/internal/store/slot.lua", `if job.missed > 0 then refund_all(limits.all, now, job.missed, job.costs, job.marks) end`, `if job.missed < 0 then refund_all(limits.all, now, job.missed, job.costs, job.marks) end`,
		"swapped", "a slot that was missed moves to now and is not lost", "queue TestMissedSlotMoves",
	},
	{
		"queue/internal/store/lanes.lua", `job.own, job.binding = earliest_all(list, now, math.max(now, job.paused), job.costs)`, `job.own, job.binding = earliest_all(list, now, now, job.costs)`,
		"missing condition", "a job that a worker holds waits for the end of a pause, too", "queue TestSlotWaitsForAPause",
	},
	{
		"queue/internal/store/slot.lua", `free_permits(id, job.held, now)`, `free_permits(id, nil, now)`,
		"missing write", "a job that goes back to its lane holds no permit", "queue TestSlotWaitsForAPause",
	},
	{
		"queue/internal/store/lanes.lua", `if without_turn and left[lane] then wake(lane, now, true) end`, `if false then wake(lane, now, true) end`,
		"missing write", "a lane whose first job left is looked at again", "queue TestAnotherFirstJobWakesItsLane",
	},
	{
		"queue/internal/store/lanes.lua", `wake(lane, now, at_once or first)`, `wake(lane, now, at_once)`,
		"missing condition", "a lane to which an earlier job comes back is looked at again", "queue TestAnotherFirstJobWakesItsLane",
	},
	{
		"queue/internal/store/enqueue.lua", `wake(job.lane, now, true)`, `wake(job.lane, now)`,
		"missing condition", "a lane that gets another first job is looked at again", "queue TestAnotherFirstJobWakesItsLane",
	},
	{
		"queue/internal/store/settle.lua", `if first or c > now then announcement = '' end -- its slot is soon over, or the dispatcher does not know it`, `if c > now then announcement = '' end`,
		"missing write", "a job that goes back to an empty lane is announced", "queue TestJobThatGoesBackIsAnnounced",
	},
	{
		"queue/internal/store/dispatch.lua", `if blocked.lapses and not (till and till > now and till < blocked.lapses) then till = blocked.lapses end`, `till = blocked.till`,
		"missing condition", "a place of a direct call that lapses wakes a lane", "queue TestPlaceThatLapsesIsAwaited",
	},
	{
		"queue/internal/mover/rest.go", `if err != nil || next == written {`, `if err != nil || written != "" {`,
		"missing condition", "limits published while an override moves apply to it", "queue/internal/mover TestPublishedWhileAnOverrideMoves",
	},
	{
		"queue/outcome.go", `return errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || repeatUnknown && says(err, unknownError.Unknown))`, `return errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled)`,
		"missing condition", "a call that the worker's stop cuts off spends no attempt", "queue TestStopSpendsNoAttempt",
	},
}
