package main

// movingMutants break the change of a queue's partitions.
var movingMutants = []mutant{
	{
		"queue/internal/store/lanes.lua", `if side == '>' then return moves[1] == 'here' end`, `if side == '>' then return moves[1] ~= false end`,
		"no fence", "a tenant takes no jobs before its own have arrived", "queue TestJobsOfATenantThatMoves",
	},
	{
		"queue/internal/store/lanes.lua", `return moves[2] ~= sum and (not moves[1] or moves[1] == 'stop')`, `return not moves[1] or moves[1] == 'stop'`,
		"no fence", "no tenant comes to a partition that is closed", "queue TestJobsOfATenantThatMoves",
	},
	{
		"queue/many.go", `if batch = batch.without(strays, results); len(batch.jobs) == 0 {`, `if len(batch.jobs) == 0 {`,
		"missing condition", "no job overtakes one that was refused before it", "queue TestManyJobsOfATenantThatArrives",
	},
	{
		"queue/operate/publish.go", `if before["*"] != "" && before[store.SumField] == after[store.SumField] {`, `if before["*"] == "none" {`,
		"missing condition", "limits that are published again do not begin a change again that ends", "queue/internal/mover TestPublishedAgainAtTheEnd",
	},
	{
		"queue/internal/store/move.lua", `if config().layout ~= ARGV[2] then return done end`, ``,
		"no fence", "who was stopped in an earlier change holds no tenant", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/store/move_in.lua", `if read('HGET', headgate .. 'moves', tenant) ~= 'comes ' .. token then return end`, `if not read('HGET', headgate .. 'moves', tenant) then return end`,
		"no fence", "who was stopped puts no job into a partition again", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/store/move_in.lua", `if read('EXISTS', key) == 0 then`, `if key then`,
		"missing check", "a job that has arrived is not counted again", "queue/internal/mover TestMove",
	},
	{
		"queue/internal/store/move_out.lua", `plan('HSET', leaving, id, leaving_write(place, tonumber(score), tonumber(deadline or 0)))`, ``,
		"missing write", "a job on its way is found again", "queue/internal/mover TestMove",
	},
	{
		"queue/internal/store/move_with.lua", `if state ~= ARGV[3] then return 0 end`, ``,
		"no fence", "who was stopped does not set back what is used of limits", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/mover/carry.go", `reply, err := c.write(ctx, store.MoveInScript, to, in...)`, `reply, err := store.MoveInScript.Run(ctx, c.Redis, store.ScriptKeys(to), in...)`,
		"missing condition", "no job is deleted before a replica has it where it goes", "queue TestReplicatedTenantsMove",
	},
	{
		"queue/internal/mover/rest.go", `if err := c.values(ctx, keys[tenant], &there); err != nil {`, `if err := c.values(ctx, keys[tenant][:0], &there); err != nil {`,
		"missing write", "what is used of limits moves", "queue/internal/mover TestMove",
	},
	{
		"queue/internal/mover/rest.go", `case "b", "ramp", "adapt", "permits":`, `case "b", "ramp", "adapt":`,
		"missing write", "a tenant that moves has no more calls in flight than before", "queue TestDirectCallsOfATenantThatMoves",
	},
	{
		"queue/internal/store/direct_end.lua", `if not is_home(ARGV[13], tenant, read('HGET', headgate .. 'limits', 'layout') or '') then return -1 end`, ``,
		"missing check", "a call that ends after its tenant has moved gives its place back", "queue TestDirectCallsOfATenantThatMoves",
	},
	{
		"queue/internal/store/late.lua", `if read('EXISTS', key) == 0 then away = -2 elseif read('HEXISTS', headgate .. 'leaving', id) == 1 then away = -1 end`, `if read('EXISTS', key) == 0 then away = -2 end`,
		"missing condition", "a call that succeeded is not made again while its job moves", "queue TestLateEndOfAJobThatMoved",
	},
	{
		"queue/late.go", `if gone := reply == int64(-2); err == nil && (gone || reply == int64(-1)) {`, `if gone := reply == int64(-2); err == nil && !gone && reply == int64(-1) {`,
		"missing branch", "a call that succeeded is not made again after its job has moved", "queue TestLateEndOfAJobThatMoved",
	},
	{
		"queue/session.go", `s.live[home] = w.liveIn(of.Queue)`, `s.live[home] = w.liveIn(home)`,
		"wrong key", "a process calls a job that has moved only after its earlier call", "queue TestRunsOfAQueueInPartitions",
	},
	{
		"queue/internal/mover/rest.go", `return found, m.hasAll(ctx, node, home)`, `return found, nil`,
		"missing check", "what is used of limits moves while a slot moves to another node", "queue/internal/mover TestMoveBesideASlotMove",
	},
	{
		"internal/limitlua/limits.lua", `if ends > now then s.n, s.spent, s.keep, s.from, s.ends = used, used, used, from, ends end`, `if ends < now then s.n, s.spent, s.keep, s.from, s.ends = used, used, used, from, ends end`,
		"missing write", "what was used of a quota is used when partitions share it", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"internal/limitlua/limits.lua", `if tat <= now then return end`, `if tat >= now then return end`,
		"swapped", "what was used of a rate is used when partitions share it", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"queue/internal/store/leases.lua", `if s.version == 0 then return {held, 0}, 0 end`, `if s.version < 0 then return {held, 0}, 0 end`,
		"missing read", "calls that began before partitions share a limit count", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"queue/internal/mover/unshare.go", `if !leases.add(limit.Name, home, was) {`, `if !leases.add(limit.Name, home, "") {`,
		"missing read", "permits that were leased and not spent are there when a queue is not partitioned any more", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"queue/internal/mover/end.go", `if err := m.forget(ctx, home, shared(&q)); err != nil {`, `if err := m.forget(ctx, home, shared(&q)[:0]); err != nil {`,
		"missing write", "a partition that the queue gets again does not count twice what it used", "queue TestSharedLimitsChangePartitions",
	},
	{
		"queue/internal/store/move_out.lua", `if slot > 0 and (back or 0) > 0 then`, `if slot < 0 and (back or 0) > 0 then`,
		"missing write", "a job that moves does not keep the permits of its slot", "queue TestSlotOfAJobThatMoves",
	},
	{
		"queue/internal/store/settle.lua", `if kept == 0 then unused = slot end`, `if kept < 0 then unused = slot end`,
		"missing write", "a job that comes back after its slot has not used its permits", "queue TestPassedSlotIsGivenBack",
	},
	{
		"queue/internal/store/lanes.lua", `if (job.back or 0) > 0 and job.kept_c > 0 and job.kept_c <= now then`, `if (job.back or 0) < 0 and job.kept_c > 0 and job.kept_c <= now then`,
		"missing write", "a job that goes again does not keep the permits of its old slot", "queue TestSlotThatIsOverIsGivenBack",
	},
	{
		"queue/internal/store/lanes.lua", `slots_back[id] = true`, ``,
		"missing write", "the permits of a slot that is over come back once", "queue TestSlotIsGivenBackOnce",
	},
	{
		"queue/internal/store/sweep.lua", `_, job.kept_c, job.kept_position, job.back = slot_read(task[5])`, `_, job.kept_c, job.kept_position = slot_read(task[5])`,
		"missing write", "the permits of a slot that is over come back while its lane waits", "queue TestUnusedSlotIsGivenBack",
	},
	{
		"queue/internal/store/dispatch.lua", `if has_slot(job) then job.own, job.binding = job.kept_e, nil end -- its limits count it already`, ``,
		"missing branch", "a job with a slot does not wait for limits that count it already", "queue TestSlotAheadIsWaitedFor",
	},
	{
		"queue/internal/store/lease_ask.lua", `local function early(b) return b.kind == 'quota' and b.version == 0 and b.from > now + shift end`, `local function early(b) return false end`,
		"missing condition", "what was given ahead of a quota counts in its own window", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"queue/book.go", `if of == nil && !leads && !b.budget {`, `if of == nil && b.of == "" {`,
		"missing condition", "nobody gets a lease before it is known what was used", "queue TestOnlyTheFirstPartitionBegins",
	},
	{
		"queue/internal/mover/unshare.go", `return bucket == ""`, `return true`,
		"missing condition", "what is used before anybody asked for a lease is not forgotten", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"internal/limitlua/limits.lua", `elseif tat < s.last then`, `elseif tat < 0 then`,
		"missing condition", "a slot of before a step back of the clock does not come back as the newest", "throttle TestSlotBeforeAStepBack",
	},
	{
		"queue/internal/store/move.lua", `if not ARGV[5] then plan('HINCRBY', headgate .. 'totals', 'limits', '0') end`, ``,
		"missing write", "tenants go on until the replica that they need answers", "queue TestReplicatedTenantsMove",
	},
	{
		"queue/internal/mover/mover.go", `_ = m.releaseAll(ctx)`, ``,
		"missing write", "tenants that have not left are called where they are while a node is away", "queue/internal/mover TestNodeAwayWhenTenantsMove",
	},
	{
		"queue/internal/store/lanes.lua", `moves = moves or scopes[i] == move_scope(tenant)`, ``,
		"missing write", "lanes of a tenant that moves go on without the mover", "queue/internal/mover TestLanesWakeWithoutTheMover",
	},
	{
		"queue/internal/mover/end.go", `if err := m.budgetsBack(ctx, homes[m.Of.N:]); err != nil {`, `if err := m.budgetsBack(ctx, nil); err != nil {`,
		"missing write", "what a partition that ends had of a budget is used elsewhere", "queue TestBudgetOfAPartitionThatEnds",
	},
	{
		"queue/internal/mover/end.go", `if added, err := tx.HExists(ctx, moves, mark).Result(); err != nil || added {`, `if _, err := tx.HExists(ctx, moves, mark).Result(); err != nil {`,
		"no fence", "what a partition that ends has counted is not counted twice", "queue/internal/mover TestCountsOfPartitionsThatEnd",
	},
	{
		"queue/internal/mover/end.go", `if q.Conformance {`, `if q.Conformance && false {`,
		"missing write", "the latest calls of a partition that ends are counted", "queue/internal/mover TestCallsOfAPartitionThatEnds",
	},
	{
		"queue/internal/mover/round.go", `case state == "":`, `case state == "-":`,
		"missing condition", "a tenant does not wait for a damaged job to end", "queue/internal/mover TestMoveBesideADamagedJob",
	},
}
