package main

// queueMutants break the other scripts of package queue: how jobs come, end, and are recovered.
var queueMutants = []mutant{
	// plan.lua.
	{
		"queue/internal/store/plan.lua", `for i = #plans, known + 1, -1 do`, `for i = #plans, known + 2, -1 do`,
		"off by one", "what is decided about a damaged job is dropped as a whole", "queue TestScriptsOnDamagedState|TestScriptsReportFaults",
	},
	{
		"queue/internal/store/plan.lua", `if found ~= 'none' and found ~= is then error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. is, 0) end`, `if found ~= 'none' and found == is then types[key] = is end`,
		"no fence", "no write meets a key of another type half-way", "queue TestScriptsOnDamagedState",
	},

	// enqueue_fresh.lua, and the lines of calls.
	{
		"queue/internal/store/enqueue_fresh.lua", `if kept and (type(kept) ~= 'string' or answers_read(kept, number)) then return end`, `if kept and type(kept) ~= 'string' then return end`,
		"no fence", "a repeated call of one job answers as the first one did", "queue TestAnswersOfALine",
	},
	{
		"queue/internal/store/enqueue_fresh.lua", `if not all[1] or (own[1] or 0) == 0 or type(call('HINCRBY', headgate .. 'totals', 'enqueued', '1')) ~= 'number' then return end`, `if not (all[1] and own[1]) or type(call('HINCRBY', headgate .. 'totals', 'enqueued', '1')) ~= 'number' then return end`,
		"missing condition", "a tenant whose counts miss its jobs is left to enqueue.lua", "queue TestFreshLeavesWhatIsDamaged",
	},
	{
		"queue/internal/store/formats.lua", `if known ~= number then error('a later call was answered', 0) end`, `if known ~= number then return nil end`,
		"no fence", "an earlier call of a line is not made again", "queue TestAnswersOfALine",
	},
	{
		"queue/request.go", `if r.unknown.IsZero() {`, `if r != nil {`,
		"no fence", "two requests at a time have two lines", "queue TestLinesOfRequests",
	},

	// enqueue.lua.
	{
		"queue/internal/store/enqueue.lua", `if answers then return cjson.decode(answers) end`, `if answers then cjson.decode(answers) end`,
		"no fence", "a repeated call answers as the first one did", "queue TestLostReplyOfEnqueue|TestLateTryOfEnqueue",
	},
	{
		"queue/internal/store/enqueue.lua", `if line ~= '' and (#accepted > 0 or again == '1') then`, `if line ~= '' and #accepted > 0 then`,
		"no fence", "a refusal holds for a try that arrives later", "queue TestLateTryOfEnqueue",
	},
	{
		"queue/internal/store/enqueue.lua", `if there[1] then return there[2] == digest and {0, there[1], id} or {-1} end`, `if there[1] then return {0, there[1], id} end`,
		"no fence", "another job of the same id is a conflict, not a repetition", "queue TestKeysAreIdempotent|TestOneBatchSeesItself",
	},
	{
		"queue/internal/store/enqueue.lua", `if there[1] and there[2] ~= digest then return {-1} end`, `if there[1] and not there[2] then return {-1} end`,
		"no fence", "another job of the same key is a conflict, not a repetition", "queue TestKeyUntilEnded|TestOneBatchSeesItself|TestKeyWindow",
	},
	{
		"queue/internal/store/enqueue.lua", `if window == '0' and (not there[1] or there[3] or there[1] == 'archived' or there[1] == 'completed') then return nil end`, `if window == '0' and (not there[1] or there[1] == 'archived' or there[1] == 'completed') then return nil end`,
		"missing condition", "a key is free when its job has ended", "queue TestKeyOfAnArchivedJobIsFree",
	},
	{
		"queue/internal/store/enqueue.lua", `return (most > 0 and jobs >= most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)`, `return (most > 0 and jobs > most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)`,
		"off by one", "a backlog ends at its cap", "queue TestCaps$",
	},
	{
		"queue/internal/store/enqueue.lua", `return (most > 0 and jobs >= most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)`, `return (most > 0 and jobs >= most) or (most_bytes > 0 and units * SIZE_UNIT > most_bytes)`,
		"off by one", "a job that would go beyond the cap of bytes is refused", "queue TestCapsOfBytes",
	},
	{
		"internal/limitlua/limits.lua", `if lost_at > 0 and lost_at <= now and name ~= 'permits' then`, `if false then`,
		"missing condition", "limits that were lost start empty", "queue TestLostLimits",
	},
	{
		"queue/internal/store/lanes.lua", `if born == 0 then error('they are gone from Redis: publish them again', 0) end`, `if born == 0 then return config().kinds or {}, 0 end`,
		"missing condition", "nothing goes without the limits", "queue TestLostLimits",
	},
	{
		"queue/internal/store/enqueue.lua", `if ghosts <= 0 then return jobs, units end`, `if true then return jobs, units end`,
		"missing condition", "jobs that asynq's tools deleted fill no cap", "queue TestCapsCountAllStates",
	},
	{
		"queue/internal/store/settle.lua", `if first or c > now then announcement = '' end -- its slot is soon over, or the dispatcher does not know it`, ``,
		"missing write", "another worker hears of a slot that a stopping one gives back", "queue TestHeldSlotsAreUsedByAnotherWorker",
	},
	{
		"queue/internal/store/settle.lua", `if size then tenant_add(tenant_of(lane), 0, 0, -1, -size) end`, ``,
		"missing write", "a job that is gone does not count any more", "queue TestCapsOfBytes",
	},
	{
		"queue/internal/store/settle.lua", `stored_result(id, tenant_of(lane), task.body, text)`, `stored_result(id, tenant_of(lane), task.body, '')`,
		"missing write", "a result counts", "queue TestCapsOfBytes",
	},
	{
		"queue/internal/asynqwire/message.lua", `if size then tenant_add(tenant_of(task[2] or ''), 0, 0, -1, -size) end`, ``,
		"missing write", "a deleted job does not count any more", "queue TestCapsOfBytes",
	},
	{
		"queue/internal/store/lanes.lua", `if spec.a ~= 'cc' and spec.b > 0 and n > spec.b then return {-3, limit.name, spec.b, n, limit.unit or ''} end`, `if spec.a ~= 'cc' and spec.b > 0 and n >= spec.b then return {-3, limit.name, spec.b, n, limit.unit or ''} end`,
		"off by one", "a job may cost as much as its limit holds", "queue TestMeteredLimit|TestUnitsHoldOnlyTheirJobs|TestBudget",
	},
	{
		"queue/internal/store/enqueue.lua", `local place = tonumber(band) * BAND + (i - FIRST) / WORDS`, `local place = tonumber(band) * BAND`,
		"wrong number", "jobs of one call keep their order", "queue TestLaneIsFirstInFirstOut",
	},
	{
		"queue/internal/store/enqueue.lua", `if deadline ~= '0' then plan('ZADD', headgate .. 'deadlines', deadline, id) end`, `if deadline == '' then plan('ZADD', headgate .. 'deadlines', deadline, id) end`,
		"missing write", "a job whose deadline passes is put away wherever it waits", "queue TestDeadlinePassesWhileTheTenantIsPaused|TestDeadlineAfterAStep",
	},
	{
		"queue/internal/store/enqueue.lua", `if job.position < first then`, `if job.position > first then`,
		"swapped", "a lane that gets its first job is known to the dispatcher", "queue TestKeptSlotTakesAPermit",
	},

	// settle.lua, end.lua.
	{
		"queue/internal/store/settle.lua", `if task.owner ~= owner or task.state ~= 'active' then return 0 end`, `if task.state ~= 'active' then return 0 end`,
		"no fence", "a run settles its own job, and not that of another run", "queue TestSettleIsFenced",
	},
	{
		"queue/internal/store/settle.lua", `if outcome == 'done' and new then`, `if outcome == 'done' then`,
		"no fence", "a settlement that is sent twice counts once", "queue TestLostSettlement|TestRecordIsOnce|TestSettleIsFenced",
	},
	{
		"queue/internal/store/settle.lua", `done_add(tenant)`, `done_add('nobody')`,
		"missing write", "every job that was done is counted", "queue TestSettleIsFenced",
	},
	{
		"queue/internal/store/settle.lua", `set('hg_slot', slot_write(0, 0, position or BAND + now))`, `set('hg_slot', slot_write(0, 0, BAND + now))`,
		"wrong number", "a job that failed keeps its place in its lane", "queue TestSettledJobIsNobodys",
	},
	{
		"queue/internal/store/settle.lua", `if outcome == 'unsure' then set('hg_unsure', '1') end`, `if outcome == 'unsure' and task.done then set('hg_unsure', '1') end`,
		"missing write", "that a call's end is not known is remembered", "queue TestUnknownStaysUnknown|TestOutcomeOfRepeatUnknown",
	},
	{
		"queue/internal/store/lanes.lua", `if unique and read('GET', unique_key(unique)) == id then plan('DEL', unique_key(unique)) end`, `if unique then plan('DEL', unique_key(unique)) end`,
		"no fence", "the end of a job frees its own key, and not that of another job", "queue TestSettledJobIsNobodys",
	},
	{
		"queue/internal/store/settle.lua", `if ended then free_key(id, task.unique) end`, `if follows then free_key(id, task.unique) end`,
		"missing write", "the end of a job frees its key", "queue TestKeyUntilEnded|TestKeyOfAnArchivedJobIsFree|TestWhatIsLeftExpires",
	},
	{
		"queue/internal/store/settle.lua", `if ended and task.deadline then plan('ZREM', headgate .. 'deadlines', id) end`, `if ended and task.deadline == '' then plan('ZREM', headgate .. 'deadlines', id) end`,
		"missing write", "no deadline is kept of a job that ended", "queue TestDeadlinesOfEndedJobs",
	},
	{
		"queue/internal/store/settle.lua", `if ended or spent or outcome == 'away' then woken = woken + free_permits(id, task.permits, now) end`, `if ended or outcome == 'away' then woken = woken + free_permits(id, task.permits, now) end`,
		"missing condition", "a job that waits for another try holds no permit", "queue TestWaitingForAnotherTryHoldsNoPermit",
	},
	{
		"queue/internal/store/settle.lua", `if task.owner ~= owner or task.state ~= 'active' then return 0 end`, `if task.owner ~= owner then return 0 end`,
		"no fence", "a job that has left its worker is not settled again", "queue TestSettledJobIsNobodys|TestRecordIsOnce",
	},
	{
		"queue/internal/store/settle.lua", `plan('ZADD', asynq .. 'retry', int(math.ceil((now + tonumber(n)) / 1000000)), id)`, `plan('ZADD', asynq .. 'retry', int(math.floor((now + tonumber(n)) / 1000000)), id)`,
		"rounding", "no retry comes early", "queue TestRetriesNeverComeEarly",
	},
	{
		"queue/settle.go", `return q.outcome == settleDone && !q.needsLimits() && !q.frees && g.capacity.taken.Load() <= g.capacity.all/2`,
		`return q.outcome == settleDone && !q.needsLimits() && g.capacity.taken.Load() <= g.capacity.all/2`,
		"missing condition", "who waits for a permit gets it at once", "queue TestEndsThatMayWait",
	},
	{
		"queue/internal/store/settle.lua", `try('LREM', asynq .. 'active', -1, id)`, `read('LPOS', asynq .. 'active', id)`,
		"missing write", "a job that has ended is not active", "queue TestAsynqContract|TestLostSettlement|TestRecovery",
	},
	{
		"queue/internal/store/settle.lua", `if what == 'lane' or (what == 'retry' and failed == '0') then return end`, `if what == 'lane' then return end`,
		"missing condition", "asynq counts the runs that ended, and no job that waits", "queue TestCountsOfAsynq",
	},
	{
		"queue/internal/store/settle.lua", `local MAX_UNREACHABLE = 3`, `local MAX_UNREACHABLE = 2`,
		"off by one", "an endpoint is held for all when three tenants cannot reach it", "queue TestHostIsDownForAll|TestEndpointIsHeldAlone",
	},
	{
		"queue/internal/store/settle.lua", `elseif who == 'endpoint' and endpoint then`, `elseif who == 'endpoint' and not endpoint then`,
		"swapped", "what a receiver says holds its own jobs and no others", "queue TestEndpointIsHeldAlone|TestHostIsDownForAll",
	},
	{
		"queue/internal/store/settle.lua", `if sign == '' then pause(who == 'account' and '*' or tenant, now + length, 'provider', reason) end`, `if sign == '' then pause('*', now + length, 'provider', reason) end`,
		"wrong key", "a tenant's 429 holds no other tenant", "queue TestThrottledPausesTheTenantAndSpendsNoAttempt|TestPauses$",
	},
	{
		"queue/internal/store/settle.lua", `correct_all(lane_limits(lane, now).all, now, slot, costs_read(task.cost, task.costs), costs_read('0', actual), task.marks)`, `correct_all(lane_limits(lane, now).all, now, slot, costs_read(task.cost, task.costs), costs_read('0', ''), task.marks)`,
		"missing write", "what a call used beyond its estimate, or less, is corrected", "queue TestMeteredLimit|TestMeteredOverrun",
	},
	{
		"queue/internal/store/settle.lua", `set('hg_crashes', '0')`, `set('hg_called', '')`,
		"missing write", "a call that came to an end clears its job", "queue TestCallThatEndsClears",
	},
	{
		"queue/internal/store/end.lua", `plan('HSET', key, 'hg_done', '0', 'hg_outcome', outcome, 'hg_error', reason, 'hg_log', log, 'hg_released', '')`, `plan('HSET', key, 'hg_done', '1', 'hg_outcome', outcome, 'hg_error', reason, 'hg_log', log, 'hg_released', '')`,
		"swapped", "what follows a failure is not what follows a success", "queue TestChain|TestCancelledJobsAreFollowed",
	},

	// recover.lua, late.lua, watch.lua.
	{
		"queue/internal/store/recover.lua", `if (lease and tonumber(lease) or '') ~= (tonumber(seen) or '') then return end`, `if not lease and seen ~= '' then return end`,
		"no fence", "a job whose lease was renewed is not taken", "queue TestRecoverLeavesOtherRuns",
	},
	{
		"queue/internal/store/recover.lua", `if (task[8] or '') ~= owner then return end`, `if (task[8] or '') ~= owner and owner == '?' then return end`,
		"no fence", "a job that another run has is not taken", "queue TestRecoverLeavesOtherRuns",
	},
	{
		"queue/internal/store/recover.lua", `if ended == '1' and (crashes == 0 or called == 'alone' or (crashes == 1 and called)) then`, `if (crashes == 0 or called == 'alone' or (crashes == 1 and called)) then`,
		"missing condition", "a worker that lives has not crashed", "queue TestCrashNeedsAnEnd|TestStoppedWorkerIsNoCrash",
	},
	{
		"queue/internal/store/recover.lua", `set('hg_unsure', '1')`, `set('hg_called', '')`,
		"missing write", "of a call whose worker died nobody knows the end", "queue TestCrash|TestUnknownStaysUnknown|TestRecovery",
	},
	{
		"queue/internal/store/recover.lua", `free_permits(id, task[7], now)`, `free_permits(id, nil, now)`,
		"missing write", "a job that was recovered holds no permit", "queue TestRecoverFreesPermits",
	},
	{
		"queue/internal/store/recover.lua", `plan('LREM', asynq .. 'active', 1, id)`, `read('LPOS', asynq .. 'active', id)`,
		"missing write", "a job that was recovered stands in its lane alone", "queue TestRecovery|TestScriptsOnDamagedState",
	},
	{
		"queue/internal/store/late.lua", `done = succeeded == '1' and not task[5]`, `done = not task[5]`,
		"missing condition", "a run that failed late ends no job", "queue TestLateEnd|TestStopped",
	},
	{
		"queue/internal/store/late.lua", `if run[1] == owner then counted = run[2] else others[#others + 1] = run end`, `if run[1] ~= '' then counted = run[2] else others[#others + 1] = run end`,
		"no fence", "a late end is that of a run which was taken", "queue TestLateEnd",
	},
	{
		"queue/internal/store/late.lua", `plan('HSET', key, 'hg_crashes', int(math.max(crashes - 1, 0)))`, `plan('HSET', key, 'hg_crashes', int(math.max(crashes, 0)))`,
		"missing write", "a run that ended late was no crash", "queue TestLateEnd|TestStoppedWorkerIsNoCrash",
	},
	{
		"queue/internal/store/watch.lua", `if type(watcher) == 'string' and watcher ~= ARGV[2] then`, `if watcher == '' then`,
		"no fence", "one worker at a time watches a queue", "queue TestOneWatcher",
	},
	{
		"queue/internal/store/watch.lua", `if left >= 0 and left <= tonumber(ARGV[3]) then return math.max(left, 1) end`, `return 1`,
		"no end", "a watch that does not end keeps nobody from watching", "queue TestWatchThatDoesNotEnd",
	},
	{
		"queue/internal/store/scripts.go", `WatchScript     = limitlua.NewScript(Lua("watch"), asynqwire.Lua).AllowOOM()`, `WatchScript     = limitlua.NewScript(Lua("watch"), asynqwire.Lua)`,
		"too strict", "a full Redis is made room in", "queue TestChoresOfAFullRedis",
	},

	// lead.lua, resign.lua.
	{
		"queue/internal/store/lead.lua", `elseif leader ~= '' and leader ~= HAND_WORKER then`, `elseif leader ~= '' and leader == HAND_WORKER then`,
		"swapped", "one worker leads while there is little to do", "queue TestOneLeads|TestLeaderThatDied",
	},
	{
		"queue/internal/store/lead.lua", `if not leader or left < 0 or left > (leader == '*' and ALL_MS or LEAD_MS) then leader, left = '', 0 end`, `if not leader or left < 0 then leader, left = '', 0 end`,
		"clock", "a lead does not last for longer because the clock was set back", "queue TestLeadEnds",
	},
	{
		"queue/internal/store/lead.lua", `if not leader or left < 0 or left > (leader == '*' and ALL_MS or LEAD_MS) then leader, left = '', 0 end`, `if not leader or left > (leader == '*' and ALL_MS or LEAD_MS) then leader, left = '', 0 end`,
		"no end", "a lead without an end is none", "queue TestLeadEnds",
	},
	{
		"queue/internal/store/lead.lua", `if leader ~= '*' then announcement = 'all' end`, ``,
		"missing call", "a leader that has no room calls the other workers", "queue TestAllDispatchUnderLoad|TestFullLeader",
	},
	{
		"queue/internal/store/lead.lua", `if left < 0.75 * LEAD_MS then plan('SET', LEAD, HAND_WORKER, 'PX', int(LEAD_MS)) end`, `if left == 0 then plan('SET', LEAD, HAND_WORKER, 'PX', int(LEAD_MS)) end`,
		"missing renewal", "a leader goes on", "queue TestLeadIsRenewed",
	},
	{
		"queue/internal/store/resign.lua", `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end`, `if redis.call('GET', KEYS[1]) == ARGV[1] then return 0 end`,
		"swapped", "a worker that ends gives up its lead", "queue TestLeaderThatStops",
	},

	// janitor.lua, sweep.lua, verbs.lua, periodic jobs.
	{
		"queue/internal/store/janitor.lua", `if state == 'completed' then`, `if state ~= '' then`,
		"no fence", "what is kept after its end is forgotten, and nothing else", "queue TestJanitor",
	},
	{
		"queue/internal/store/slot.lua", `elseif task[9] then`, `elseif task[9] == '2' then`,
		"no fence", "a job that an earlier run ended meanwhile is not called", "queue TestEarlierRunEndsTheJob",
	},
	{
		"queue/internal/store/sweep.lua", `if state ~= 'pending' and state ~= 'active' and state ~= 'retry' then free_permits(id, permits_write({entry.key}), now) end`, `if state == 'completed' then free_permits(id, permits_write({entry.key}), now) end`,
		"swapped", "permits of jobs that asynq's tools deleted come back", "queue TestPermitsOfDeletedJobsComeBack",
	},
	{
		"queue/internal/store/sweep.lua", `if finish <= virtual - 2 * typical / tenant_config(tenant, now).w then plan('HDEL', vtime, tenant) end`, `plan('HDEL', vtime, tenant)`,
		"missing condition", "a tenant that returns gains nothing from having been forgotten", "queue TestVirtualTimesAreForgotten",
	},
	{
		"queue/internal/store/sweep.lua", `if not tenant or summed[tenant] or counted > MAX_COUNTED then return end`, `if not tenant or summed[tenant] then return end`,
		"missing bound", "a sweep counts a bounded number of lanes", "queue TestSweepOfManyKinds",
	},
	{
		"queue/internal/store/sweep.lua", `if due and due <= e then return end`, `if due then return end`,
		"missing condition", "a limit that was raised lets its lanes go on", "queue TestRaisedQuotaWakesLanes|TestChangesWake|TestTimedLimitsAreLive",
	},
	{
		"queue/internal/store/verbs.lua", `if not may or (task.done and task.state ~= 'archived') then`, `if not may then`,
		"missing condition", "no operator takes back what is done", "queue TestVerbsLeaveWhatIsDone",
	},
	{
		"queue/internal/store/verbs.lua", `if c <= now then -- the permits of a slot that it kept are taken already`, `if c > now then`,
		"swapped", "a job that an operator runs at once is charged", "queue TestRunNowIsCharged",
	},
	{
		"queue/internal/store/archive.lua", `if moved >= excess and at > cutoff then break end`, `if moved >= excess then break end`,
		"missing condition", "nothing stays in asynq's archive for so long that asynq deletes it", "queue TestArchiveMoves|TestOldArchiveMoves",
	},
	{
		"queue/internal/store/periodic_fire.lua", `if tick <= last[entry] or tick < oldest then`, `if tick < last[entry] or tick < oldest then`,
		"no fence", "a tick is fired once", "queue TestTickIsFencedWithItsJob|TestPeriodicLostReply",
	},
	{
		"queue/internal/store/periodic_fire.lua", `if overlap == 'skip' and open[entry] then`, `if overlap == 'skip' and not open[entry] then`,
		"inverted", "a tick is skipped while the last job has not ended", "queue TestPeriodicWithoutWorker|TestPeriodicOverlapModel",
	},
	{
		"queue/internal/store/periodic_fire.lua", `if job.state == 'active' then return end`, `if job.state == 'retry' then return end`,
		"wrong state", "a job that waits is replaced, and a call in flight is not", "queue TestPeriodicOverlapModel",
	},
	{
		"queue/internal/store/enqueue.lua", `note_length(job.lane, 1)`, ``,
		"removed", "a lane stays known when its only job is replaced", "queue TestPeriodicOverlapModel",
	},
	{
		"queue/internal/store/periodic_choose.lua", `elseif chosen == tick then`, `elseif chosen == tick + 1 then`,
		"off by one", "a tick goes into one queue", "queue TestPeriodic|TestTick",
	},
}
