package main

// queueMutants break the scripts of package queue.
var queueMutants = []mutant{
	{
		"queue/fitness.go", `if len(away) == len(s.homes()) {`, `if len(away) < len(s.homes()) {`,
		"swapped branch", "a worker is ready while it serves some of its queues", "queue TestReadyBesideAMasterAway",
	},
	{
		"queue/internal/store/time.go", `node = master`, `_ = master`,
		"wrong key", "the node of a queue tells its time", "queue/internal/store TestTime",
	},
	{
		"queue/internal/store/time.go", `if _, ok := client.(*redis.ClusterClient); !ok {`, `if client != nil {`,
		"wrong key", "the node of a queue tells its time", "queue/internal/store TestTime",
	},
	{
		"queue/internal/store/script.go", `func KeysOf(queue, first string) []string { return []string{first, Key(queue, "never")} }`, `func KeysOf(queue, first string) []string { return []string{first} }`,
		"missing condition", "no script runs while its slot moves", "queue TestSlotMoves",
	},
	{
		"queue/encryption/encryption.go", `own, err := hkdf.Expand(sha256.New, key, fmt.Sprintf("headgate text %q %q %q", in.queue, in.id, in.field), 32)`, `own, err := hkdf.Expand(sha256.New, key, fmt.Sprintf("headgate text %q %q", in.queue, in.field), 32)`,
		"wrong key", "an encrypted text belongs to its job alone", "queue/encryption TestPlaces",
	},
	{
		"queue/encryption/encryption.go", `lowest := slices.Min(slices.Collect(maps.Keys(k.byID)))`, `lowest := slices.Max(slices.Collect(maps.Keys(k.byID)))`,
		"wrong key", "a job is recognized while its key is replaced", "queue TestKeyIsReplaced",
	},
	{
		"queue/follow.go", `if len(fields) > 0 && began.Sub(e.since) > followFor {`, `if len(fields) > 0 && began.Sub(e.since) > 10*followFor {`,
		"no fence", "a follow-up whose id may be forgotten is not enqueued", "queue TestFollowUpsThatCannotBeChecked",
	},
	{
		"queue/follow.go", `if slices.Contains(e.enqueued, field) {`, `if false {`,
		"missing condition", "a follow-up that is enqueued is not enqueued once more", "queue TestFollowUpsOfADayAgo",
	},
	{
		"queue/ticks.go", `next: s.Next(max(fired, stored.Since)), order: rand.Int64(),`, `next: s.Next(max(fired, stored.Since, time.Now().Unix()-ticksGrace)), order: rand.Int64(),`,
		"missing ticks", "a tick that was refused is tried again after the entries were loaded again", "queue TestPeriodicRefusedAndLoadedAgain",
	},
	{
		"queue/ticks.go", `tt.fire(ctx, due, clock(), attended)`, `tt.fire(ctx, due, now, attended)`,
		"clock", "no tick is fired later than it may be", "queue TestPeriodicMaxLateOfASlowRound",
	},
	{
		"queue/follow.go", `if !e.unclear {`, `if true {`,
		"missing condition", "a follow-up that may have been enqueued is not enqueued when its id may be forgotten", "queue TestFollowUpRefusedAfterNoAnswer",
	},
	{
		"queue/internal/store/dispatch.lua", `hand(job, hand_answer(without_slot(job)), 0, 0, false, now, {'', '', 'hg_slot', slot_write(0, 0, job.position or BAND + now)})`, `hand(job, hand_answer(without_slot(job)), 0, 0, false, now, {'', '', 'hg_slot', slot_write(now, 0, job.position or BAND + now)})`,
		"wrong number", "a job that expires has no slot", "queue TestDeadlinesElsewhere",
	},
	{
		"queue/gate.go", `g.pauses.reread()`, ``,
		"missing call", "a pause that Redis did not take is forgotten", "queue TestPauseOfALostRun",
	},
	{
		"queue/gate.go", `v.result = g.keys.Encrypt(current.result, encryption.PlaceOf(g.queue, job.ID, encryption.Result))`, `v.result = current.result`,
		"missing write", "results are encrypted", "queue TestNothingIsInTheClear",
	},
	{
		"queue/hand.go", `stored := message.Payload`, `stored := []byte("CANARY")`,
		"wrong key", "asynq's list of calls has no payload in the clear", "queue TestNothingIsInTheClear",
	},
	{
		"queue/follow.go", `} else if _, locked := errors.AsType[*lockedError](err); locked {`, `} else if _, locked := errors.AsType[*lockedError](err); locked && e.next == "" {`,
		"no escape", "a job whose follow-ups cannot be decrypted waits outside of its worker", "queue TestKeyIsGone",
	},
	{
		"queue/fitness.go", `if node.err == nil && node.left < n {`, `if node.err == nil && node.left < 0 {`,
		"off by one", "jobs are refused before Redis is full", "queue TestSharesOfMemory",
	},
	{
		"queue/fitness.go", `if left <= 0 {`, `if left <= -m.max {`,
		"missing write", "jobs are refused before Redis is full", "queue TestRedisFull",
	},
	{
		"queue/request.go", `if err := c.fit.check(ctx, c.redis, queue, n); err != nil && (!c.owed || !errors.Is(err, ErrRedisFull)) {`, `if err := c.fit.check(ctx, c.redis, queue, n); err != nil && (!c.owed || errors.Is(err, ErrRedisFull)) {`,
		"no escape", "follow-ups of accepted jobs do not wait for memory", "queue TestWorkerOnFullRedis",
	},
	// Partitions.
	{
		"internal/partition/layout.go", `if score := mix(hash ^ mix(uint64(i))); i == 1 || score > highest {`, `if score := mix(hash ^ mix(uint64(i)+1)); i == 1 || score > highest {`,
		"off by one", "a tenant is in the same partition for ever", "internal/partition TestOf",
	},
	{
		"queue/route.go", `list, err := r.in(layout.Home(tenant)).Get(ctx, age, fresh)`, `list, err := r.in(queue).Get(ctx, 0, true)`,
		"wrong key", "a producer needs no node but that of its tenant", "queue TestTimedPartitionAway",
	},
	{
		"queue/internal/refreshed/refreshed.go", `case r.known && !fresh: // as new as it can be had`, `case r.known && !fresh && r.err == nil:`,
		"no escape", "what is known of queues outlasts a node", "queue/internal/refreshed TestRefreshed",
	},
	{
		"queue/operate/publish.go", `for i, name := range slices.Backward(names) {`, `for i, name := range names[:1] {`,
		"missing write", "each partition has the limits", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/publish.go", `if ok && slices.Contains(slices.Collect(maps.Values(known)), of.Queue) {`, `if ok && of.Queue != "" {`,
		"missing check", "no worker starts without the limits of its queue", "queue TestStartBesideANodeAway",
	},
	{
		"queue/fitness.go", `return s.without(ctx, err)`, `return err`,
		"no escape", "workers start while a node of a Cluster is away", "queue TestStartBesideANodeAway",
	},
	{
		"queue/internal/store/partitions.go", `for range listed {`, `for range listed[:0] {`,
		"no escape", "operators do without the node of a queue's first partition", "queue TestAwayIsSaid",
	},
	{
		"queue/operate/partitions.go", `case was.From != nil:`, `case was.From != nil && false:`,
		"missing check", "one change of partitions at a time", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/partitions.go", `if layout.From = was.From; was.From == nil && !was.Equal(*layout) {`, `if !was.Equal(*layout) {`,
		"missing condition", "publishing again does not end a change", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/unregister.go", `passes := []bool{false, true} // all have to be empty before one is removed`, `passes := []bool{true}`,
		"missing check", "a queue with jobs in any partition is not removed", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/verbs.go", `for _, home := range homes {`, `for _, home := range homes[:1] {`,
		"missing write", "verbs change the jobs of all partitions", "queue TestPartitionsAreOneQueue",
	},
	{
		"queue/settle.go", `if home == g.queue {`, `if home != g.queue {`,
		"swapped branch", "a pause of the account reaches all partitions", "queue TestPauseOfTheAccountReachesAllPartitions",
	},
	{
		"queue/inspect/events.go", `all = slices.DeleteFunc(all, func(e Event) bool { return e.At.UnixMilli() >= until.UnixMilli() })`, `all = slices.DeleteFunc(all, func(e Event) bool { return e.At.IsZero() })`,
		"clock", "no event comes behind the cursor of who has read later ones", "queue TestEventsOfSlowClocks",
	},
	{
		"queue/inspect/partitions.go", `if errs[i] == nil {`, `if errs[i] == nil || i > 0 {`,
		"missing check", "a queue is shown while a partition does not answer", "queue TestAwayIsSaid",
	},
	{
		"queue/internal/store/enqueue.lua", `if not is_home(ARGV[5], tenant) then return {-6} end`, ``,
		"missing check", "no job goes into a partition that is gone", "queue TestProducersOfOtherPartitions",
	},
	{
		"queue/internal/store/lanes.lua", `local more = math.floor(limit_left(entry.spec, b, math.max(now, b.last or 0))) - math.floor(left * part)`, `local more = math.floor(limit_left(entry.spec, b, now)) - math.floor(left * part)`,
		"wrong time", "as much remains as the provider says", "queue TestQuotaBeforeTheAccountedMoment",
	},
	{
		"queue/internal/store/lanes.lua", `if sum ~= (latest or config().layout) then return false end`, `if sum ~= '' and config().layout == '' then return false end`,
		"no fence", "a job goes where its tenant is, whatever its client knows", "queue TestProducersOfOtherPartitions",
	},
	{
		"queue/internal/store/enqueue_fresh.lua", `if not names or (limits[2] or '') ~= ARGV[5] then return end`, `if not names then return end`,
		"no fence", "the short way in knows the partitions of its queue, too", "queue TestFreshOfAnotherLayout",
	},
	// Jobs of replicated queues.
	{
		"queue/replicas.go", `case n == 0:`, `case n < 0:`,
		"missing check", "a job of a replicated queue is accepted only after a replica has it", "queue TestNoReplica",
	},
	{
		"queue/request.go", `r.awaits = r.awaits || a.durability == limits.Replicated`, `r.awaits = r.awaits || a.durability != limits.Replicated`,
		"wrong operator", "only jobs of replicated queues wait for replicas", "queue TestOneWait",
	},
	{
		"queue/replicas.go", `return replicas{client, make(chan struct{}, max(connections/2, 1))}`, `return replicas{client, make(chan struct{}, max(connections*20, 1))}`,
		"missing bound", "other queues are not held up while no replica answers", "queue TestOthersDoNotWaitForReplicas",
	},
	{
		"queue/operate/publish.go", `if maps.Equal(before, fields) && epoch != "" {`, `if len(before) > 1000 && epoch != "" {`,
		"missing write", "a worker starts on a full Redis", "queue TestVerbsOnFullRedis",
	},
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
		"missing condition", "a key is free when its job has ended", "queue TestKeyOfADoneJobIsFree",
	},
	{
		"queue/internal/store/enqueue.lua", `return (most > 0 and jobs >= most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)`, `return (most > 0 and jobs > most) or (most_bytes > 0 and (units + size) * SIZE_UNIT > most_bytes)`,
		"off by one", "a backlog ends at its cap", "queue TestBacklogCap|TestCaps",
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
		"queue/internal/store/settle.lua", `if c > now then announcement = '' end -- its slot is soon over`, ``,
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
		"queue/internal/store/enqueue.lua", `if lengths[job.lane] == 0 then`, `if lengths[job.lane] == 1 then`,
		"off by one", "a lane that gets its first job is known to the dispatcher", "queue TestKeptSlotTakesAPermit",
	},

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
		"queue/internal/store/lanes.lua", `if now < a.at + TOLD_US and a.told <= level then level, till = a.told, a.at + TOLD_US end`, `if now < a.at + TOLD_US then level, till = a.told, a.at + TOLD_US end`,
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
		"missing write", "a job that ended or waits holds no permit", "queue TestWaitingForAnotherTryHoldsNoPermit|TestCancelFreesPermits|TestConcurrencyLimit",
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

	// dispatch.lua.
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
		"off by one", "what was released does not count as waiting", "queue TestBacklogCap|TestCaps|TestVerbsByState|TestWhatIsLeftExpires",
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
		"queue/internal/store/settle.lua", `if ended or spent then woken = woken + free_permits(id, task.permits, now) end`, `if ended then woken = woken + free_permits(id, task.permits, now) end`,
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
		"swapped", "what follows a failure is not what follows a success", "queue TestChain|TestCancelledJobIsFollowed",
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
		"queue/internal/store/watch.lua", `if watcher and watcher ~= ARGV[2] then`, `if watcher and watcher == '' then`,
		"no fence", "one worker at a time watches a queue", "queue TestOneWatcher",
	},
	{
		"queue/internal/store/watch.lua", `if left >= 0 and left <= tonumber(ARGV[3]) then return math.max(left, 1) end`, `return 1`,
		"no end", "a watch that does not end keeps nobody from watching", "queue TestWatchThatDoesNotEnd",
	},
	{
		"queue/internal/store/scripts.go", `WatchScript     = NewScript(Lua("watch")).AllowOOM()`, `WatchScript     = NewScript(Lua("watch"))`,
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

	// What the Inspector shares.
	{
		"queue/inspect/renewed.go", `case now.Sub(r.until) < late:`, `case now.Sub(r.until) < 0:`,
		"missing condition", "nobody waits while very many lanes are read anew", "queue/inspect TestRenewed",
	},
	{
		"queue/inspect/forecast.go", `since = f.lanes[f.indexOf(subject)].read`, `since = f.now.UnixMicro()`,
		"wrong moment", "jobs that came before their lane was read did not come since", "queue TestInspectorFollowsTheLane",
	},
}
