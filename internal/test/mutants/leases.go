package main

// leaseMutants break what partitions and queues are leased of limits that they share.
var leaseMutants = []mutant{
	{
		"internal/limitlua/limits.lua", `if whole > span.keep or (whole == span.keep and frac > span.keep_frac) then return nil end`, `if whole > span.keep + span.p then return nil end`,
		"off by one", "a partition spends no more of a shared limit than it was leased", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"queue/internal/store/leases.lua", `if version <= s.version then return end`, `if version < 0 then return end`,
		"no fence", "an old answer of the ledger changes nothing", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"internal/limitlua/limits.lua", `if math.max(e, now) + math.max(HAND_OVER, limit.within or 0) + s.shift < s.ends and s.spent + n <= math.min(s.n, s.keep) then return e end`, `if math.max(e, now) + math.max(HAND_OVER, limit.within or 0) + s.shift < s.ends and s.spent <= math.min(s.n, s.keep) then return e end`,
		"off by one", "a partition uses no more of a quota than was leased to it", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"internal/limitlua/limits.lua", `if math.max(e, now) + math.max(HAND_OVER, limit.within or 0) + s.shift < s.ends and s.spent + n <= math.min(s.n, s.keep) then return e end`, `if math.max(e, now + math.max(HAND_OVER, limit.within or 0)) + s.shift < s.ends and s.spent + n <= math.min(s.n, s.keep) then return e end`,
		"off by one", "no slot at the end of a quota's window, from which a call could get into the next one", "queue/internal/store TestQuotaEndsBeforeItsWindow",
	},
	{
		"queue/internal/store/leases.lua", `if from ~= s.from or ends ~= s.ends then s.spent = 0 end`, `s.spent = 0`,
		"missing condition", "what was used of a quota is used until its window ends", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"internal/partition/ledger.go", `if start >= l.s.End {`, `if start != l.s.Start {`,
		"clock", "what was used counts after the clock was set back", "internal/partition TestChangedQuota",
	},
	{
		"internal/partition/ledger.go", `if l.s.Lost[0] < end && l.s.Lost[1] >= start {`, `if l.s.Lost[0] < end && l.s.Lost[0] >= start {`,
		"off by one", "a lost ledger leases nothing that may be leased", "internal/partition TestLostQuota",
	},
	{
		"internal/partition/ledger.go", `n = min(n, left/newPart)`, `n = min(n, left)`,
		"missing condition", "the first that asks does not get a whole quota", "internal/partition TestTheFirstGetsAPart",
	},
	{
		"queue/internal/store/lease_ask.lua", `for _, entry in ipairs(others) do add(entry, over) end`, `for _, entry in ipairs(others) do add(entry, false) end`,
		"missing condition", "nobody gets permits of a rate that a quota holds back", "queue TestSharedQuotaOfAMonth",
	},
	{
		"queue/internal/store/lease_ask.lua", `if entry.unit ~= '' then used[#used + 1] = entry else over = true end`, `over = true`,
		"missing condition", "a used up quota with a unit holds back no job that takes nothing of it", "queue TestUsedUpUnitHoldsNoOtherJobs",
	},
	{
		"queue/internal/store/lease_ask.lua", `if b.kind == 'quota' then jobs, weight = demand.all, demand.all_weight end`, ``,
		"missing condition", "a partition whose jobs wait for calls keeps what it has of a quota", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `jobs, weight = jobs + demand.blocked[i].jobs, weight + demand.blocked[i].weight`, `jobs, weight = demand.jobs + demand.blocked[i].jobs, demand.weight + demand.blocked[i].weight`,
		"missing condition", "a partition whose jobs wait for one concurrency limit keeps what it has of an earlier one", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `return math.min(jobs, (entry.lease or entry).spec.b), weight`, `return jobs, weight`,
		"missing condition", "a partition keeps no more of a quota than for the calls that its jobs wait for", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `lacks = lacks or used_up(bucket(entry, now))`, `lacks = false`,
		"missing condition", "two partitions that have the rest of one quota each do not wait for each other", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `add(entry, lacks)`, `add(entry, over)`,
		"missing condition", "of two quotas, the first is kept while the second is used up", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `if not paused then one.jobs, one.weight = blocked_jobs(entry, used) end`, `one.jobs, one.weight = blocked_jobs(entry, {})`,
		"missing condition", "a partition wants no calls for jobs that take some of a used up quota", "queue TestHeldJobsKeepWhatComesFirst",
	},
	{
		"queue/internal/store/lease_ask.lua", `if share_of(entry, costs) > 0 then return true end`, `if false then return true end`,
		"missing condition", "jobs that wait for a used up quota keep no permits of another one", "queue TestUsedUpUnitHoldsNoOtherJobs",
	},
	{
		"queue/internal/store/lease_ask.lua", `if b.from and b.ends > 0 then b.from, b.ends = b.from + by, b.ends + by end -- else nothing was used`, `if b.from then b.from, b.ends = b.from + by, b.ends + by end`,
		"missing condition", "a partition whose clock is ahead of the ledger's gets its part of a quota", "queue TestQuotaBesideAClockAhead",
	},
	{
		"queue/operate/unregister.go", `if err := seats.Expire(ctx, client, queue, store.Key(queue, "ledger"), store.LedgerKept); err != nil {`, `if err := seats.Expire(ctx, client, queue, store.Key(queue, "ledger"), -store.LedgerKept); err != nil {`,
		"wrong time", "what was used of a quota is used by a queue that comes back", "queue TestUsedQuotaOutlivesUnregister",
	},
	{
		"queue/lessor.go", `faults = append(faults, b.newFaults(err)...)`, `_ = b.newFaults(err)`,
		"missing write", "a ledger that cannot be read is among the faults of its queue", "queue TestDamagedBudget",
	},
	{
		"queue/lessor.go", `if len(all) == 0 || slices.Max(all)-slices.Min(all) > sameClock {`, `if len(all) == 0 {`,
		"clock", "nothing is leased by a clock that was set", "queue TestClockOfALedger",
	},
	{
		"queue/lessor.go", `own, answered = offset, known // so that it is asked, which shows that its node is away`, ``,
		"missing write", "the others are asked for leases while the first partition is away", "queue TestLeasesBesideTheFirstNodeAway",
	},
	{
		"queue/book.go", `of.Calendar, b.unsaved = a.Calendar, true`, `of.Calendar = a.Calendar`,
		"missing write", "a quota of a calendar is leased while the first partition is away", "queue TestCalendarOutlivesItsLessor",
	},
	{
		"queue/internal/store/ledgers.go", `} else if err == nil && all.Of == nil {`, `} else if false {`,
		"missing condition", "a text without limits is no ledger without limits", "queue/internal/store TestReadLedgers",
	},
	{
		"queue/lessor.go", `if a.budget {`, `if a.budget && a.tenant != "" {`,
		"wrong key", "queues that share a budget use no more than it", "queue TestBudgetOfQueues",
	},
	{
		"queue/lessor.go", `key = store.Key(home, "ledger:"+a.tenant)`, `key = store.Key(home, "ledger:")`,
		"wrong key", "a budget per tenant is of each tenant", "queue TestTenantBudgets",
	},
	{
		"queue/lessor.go", `window = max(window, a.Calendar[i]-a.Calendar[i-1])`, `window = min(window, a.Calendar[i]-a.Calendar[i-1])`,
		"wrong time", "what is used of a budget is used until its window ends", "queue TestLedgerOfATenantIsKept",
	},
	{
		"queue/internal/store/ledger.lua", `if ARGV[5] == '' then plan('SET', KEYS[1], value) else plan('SET', KEYS[1], value, 'PX', int(math.max(tonumber(ARGV[5]), read('PTTL', KEYS[1])))) end`, `if ARGV[5] == '' then plan('SET', KEYS[1], value) else plan('SET', KEYS[1], value, 'PX', ARGV[5]) end`,
		"wrong time", "a queue that has a shorter window of a budget forgets nothing for the others", "queue/internal/seats TestKept",
	},
	{
		"queue/internal/effective/stored.go", `spec.Leased = l.Queues != nil`, `spec.Leased = false`,
		"missing condition", "a queue spends no budget that it was not leased", "queue TestBudgetOfQueues",
	},
	{
		"queue/internal/store/lease_ask.lua", `elseif earliest_all(others, now, now, ONE) <= horizon then`, `elseif true then`,
		"missing condition", "a queue that a tenant's own limit holds back keeps a budget from no other", "queue TestBudgetIsWhereJobsGo",
	},
	{
		"queue/internal/store/lease_ask.lua", `if jobs == 0 and have == 0 then`, `if jobs == 0 then`,
		"missing condition", "what is leased of a budget and has no jobs is given back", "queue TestQuietTenantGivesBack",
	},
	{
		"queue/internal/store/lease_ask.lua", `if spec and not entry.asker then`, `if spec then`,
		"missing condition", "a tenant without a part of a budget asks for the other limits of its jobs", "queue TestDamagedBudget",
	},
	{
		"queue/internal/store/lease_ask.lua", `permits = lane and math.ceil(math.min(jobs, MANY, own_admits(others)) * n) or has`, `permits = math.ceil(math.min(jobs, MANY, own_admits(others)) * n)`,
		"missing condition", "a tenant keeps its part of a budget until it has that of a shared limit, too", "queue TestPartOfABudgetIsKept",
	},
	{
		"queue/internal/store/lease_ask.lua", `if other ~= entry and not waits then others[#others + 1] = other end`, `if other ~= entry then others[#others + 1] = other end`,
		"missing condition", "two budgets of a tenant do not wait for each other", "queue TestTwoBudgets",
	},
	{
		"queue/internal/effective/check.go", `if limit.Queues != nil {`, `if false {`,
		"missing check", "nobody changes a budget in one of its queues", "queue TestOverrideOfABudget",
	},
	{
		"internal/partition/ledger.go", `turns(l.s.Claims, c, old, acc.N)`, `_ = old`,
		"missing condition", "no partition keeps all of a few calls at once", "internal/partition TestFewCallsAreTakenInTurns",
	},
	{
		"internal/partition/ledger.go", `if fair != acc.Fair {`, `if fair < acc.Fair-9 {`,
		"missing write", "a partition is told when it may make more or fewer calls at once", "queue TestSharedConcurrency",
	},
	{
		"internal/partition/ledger.go", `if over := l.left(now) < max(1, a.Least); !calls && acc.Over != over {`, `if over := l.left(now) < max(1, a.Least); !calls && acc.Over && !over {`,
		"missing write", "a partition is told that others had the last of a quota", "internal/partition TestUsedUpIsTold",
	},
	{
		"internal/filewatch/filewatch.go", `v[path] = Stamp{info.Mode().Perm(), info.Size(), info.ModTime(), age >= 0 && age < tick}`, `v[path] = Stamp{info.Mode().Perm(), info.Size(), info.ModTime(), age < 0}`,
		"clock", "a file that changes within a tick is read again", "internal/filewatch TestChangesAtTheSameTime",
	},
	{
		"internal/partition/ledger.go", `return now + ahead + Horizon.Microseconds() + max(0, r.Burst-1)*r.Permit/r.Flow`, `return now + Horizon.Microseconds() + max(0, r.Burst-1)*r.Permit/r.Flow`,
		"clock", "a slow Redis takes nothing of a shared limit", "internal/partition TestAhead",
	},
	{
		"queue/lessor.go", `useful, wants := home == l.of.Queue && len(asks) > 0, false`, `useful, wants := false, false`,
		"missing condition", "shared limits are in force while the first partition has no jobs", "queue TestIdleFirstPartition",
	},
	{
		"queue/lessor.go", `return a.Want > 0 || len(a.Keep) > 0 || a.N != a.had || a.Since > 0 || renew`, `return a.Want > 0 || len(a.Keep) > 0 || renew`,
		"missing write", "what a partition gives back of a quota goes to the others", "queue TestWhatTheLedgerHears",
	},
	{
		"queue/internal/store/ledger.lua", `local agrees = term > known or (not begins and term == known and caller == ARGV[3])`, `local agrees = term > known or not begins`,
		"no fence", "no part of a limit is leased by two workers", "queue TestLedgerIsStoredBeforeItIsUsed",
	},
	{
		"queue/internal/store/ledger.lua", `local late = agrees and not begins and tonumber(of) == term and number_of(ARGV[4]) <= number_of(ledger)`, `local late = false`,
		"missing condition", "a ledger that comes late does not replace a newer one", "queue/internal/seats TestLateText",
	},
	{
		"queue/internal/store/ledger.lua", `local agrees = term > known or (not begins and term == known and caller == ARGV[3])`, `local agrees = term > known or (not begins and term == known)`,
		"no fence", "a seat that was set back takes ledgers of one worker in a term", "queue/internal/seats TestForgottenTerm",
	},
	{
		"queue/internal/seats/seats.go", `answers, asked, need := make(chan answer, len(r.seats)), 0, len(r.seats)/2+1`, `answers, asked, need := make(chan answer, len(r.seats)), 0, 1`,
		"no fence", "a ledger is in more than half of its seats", "queue/internal/seats TestOneAfterAnother",
	},
	{
		"queue/internal/seats/seats.go", `return last, same > len(r.seats)/2, err`, `return last, same > 0, err`,
		"missing write", "a ledger that is read is in more than half of its seats", "queue/internal/seats TestOneAfterAnother",
	},
	{
		"queue/internal/store/dispatch.lua", `return leased and math.min(at, horizon + 1) or at`, `return at`,
		"missing condition", "what is leased is used though its announcement gets lost", "queue TestLeaseIsLookedForAgain",
	},
	{
		"queue/internal/seats/seats.go", `if last.number != r.number {`, `if last.number < r.number {`,
		"missing condition", "a ledger is stored only over the one that was read", "queue/internal/seats TestOneAfterAnother",
	},
	{
		"queue/lessor.go", `l := &lessor{of: of, worker: worker, redis: client, clocks: clocks, limits: limits, lasts: lasts, roles: roles, seats: seats.Tags(client, of.Queue), logger: logger, stir: make(chan struct{})}`, `l := &lessor{of: of, worker: worker, redis: client, clocks: clocks, limits: limits, lasts: lasts, roles: roles, seats: []string{of.Queue}, logger: logger, stir: make(chan struct{})}`,
		"wrong key", "the worker that leases goes on without the first partition", "queue TestTimedSharedLimitsThroughFaults",
	},
	{
		"queue/book.go", `b.unsaved = number < b.number // a failover lost the newer ones`, `b.unsaved = false`,
		"missing condition", "a ledger that was set back leases nothing that is leased", "queue TestLedgerIsStoredBeforeItIsUsed",
	},
	{
		"queue/operate/publish.go", `one.Spec.Leased = one.Spec.Leased || len(layout.Names()) > 1 && limit.Leased()`, `one.Spec.Leased = one.Spec.Leased || q.Partitions > 64 && limit.Leased()`,
		"no fence", "partitions share a limit", "queue TestTimedSharedLimits",
	},
	{
		"queue/internal/store/lease_grant.lua", `if entry.unit ~= '' or entry.asker then`, `if entry.asker then`,
		"missing branch", "lanes that wait for a shared unit go on with a lease of it", "queue TestGrantOfAUnitReachesAllLanes",
	},
	{
		"internal/partition/pool.go", `if full := l.s.Rate.after(Point{US: at}, out); l.s.Next.before(full) {`, `if full := l.s.Rate.after(Point{US: at}, 0*out); l.s.Next.before(full) {`,
		"missing condition", "permits that are leased have their room in the pool", "internal/partition TestPoolIsNoFullerThanItsBurst",
	},
	{
		"internal/partition/pool.go", `l.comeBack(back, acc.lacked(a.Since))`, `l.comeBack(back, max(math.MaxInt64, acc.lacked(a.Since)))`,
		"missing condition", "nothing comes back to a pool that was full since", "internal/partition TestUnusedComesBack",
	},
	{
		"internal/partition/pool.go", `l.comeBack(unspent, acc.Lack)`, `l.comeBack(unspent, max(math.MaxInt64, acc.Lack))`,
		"missing condition", "what a lease that ended had left comes back to a pool that was full since", "internal/partition TestSpentBeforeItsLeaseEnded",
	},
	{
		"internal/partition/pool.go", `acc.Lack = min(acc.Lack, lack)`, `acc.Lack = max(acc.Lack, lack)`,
		"missing write", "nobody notices that a pool is full while a lease is over", "internal/partition TestSpentBeforeItsLeaseEnded",
	},
	{
		"internal/partition/pool.go", `spent := max(0, min(n-acc.N, acc.Lapsed))`, `spent := 0 * max(0, min(n-acc.N, acc.Lapsed))`,
		"rounding to the caller's loss", "what was spent before a lease ended is owed twice", "internal/partition TestSpentBeforeItsLeaseEnded",
	},
	{
		"internal/partition/pool.go", `l.room(acc.Until, out)`, `l.room(0*acc.Until, out)`,
		"clock", "a lease of a pool has its room until it ends", "internal/partition TestLeaseOfAPoolEnds",
	},
	{
		"internal/partition/pool.go", `acc.Lapsed, acc.N = acc.Lapsed+acc.out(), acc.Spent // its holder alone knows what was spent of them`, `acc.Lapsed, acc.Spent = acc.Lapsed+acc.out(), acc.N // its holder alone knows what was spent of them`,
		"missing write", "nothing of a lease that ended is spent", "internal/partition TestLeaseOfAPoolEnds",
	},
	{
		"internal/partition/ledger.go", `return n - n%least // what is too little for a call would only come back`, `return n // what is too little for a call would only come back`,
		"rounding", "a grant is of whole calls, so that what comes back is nobody's loss", "internal/partition TestGrantsAreOfWholeCalls",
	},
	{
		"internal/limitlua/limits.lua", `s.leaving[#s.leaving + 1] = {till = till, n = n}`, `s.leaving[#s.leaving + 1] = {till = till, n = 0}`,
		"missing write", "a call of a pool has its room until it has left", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"internal/limitlua/limits.lua", `s.back = s.back + n`, `s.back = s.back + 0 * n`,
		"missing write", "what a call did not use comes back to the pool", "queue/internal/store TestLeasesAreHolders",
	},
	{
		"internal/limitlua/limits.lua", `s.last, s.mark, s.spent = last, nil, used`, `s.last, s.mark, s.spent = last, nil, 0 * used`,
		"missing write", "what was used of a pool before it was shared is", "queue TestWhatIsUsedWhenPartitionsChange",
	},
	{
		"queue/lessor.go", `return a.Want > 0 || len(a.Keep) > 0 || a.N != a.had || a.Since > 0 || renew`, `return a.Want > 0 || len(a.Keep) > 0 || a.N != a.had || renew`,
		"missing condition", "the ledger learns what calls gave back, although their partition has no more jobs", "queue TestUnusedTokensComeBack",
	},
	{
		"queue/operate/publish.go", `one.Spec.Pool = one.Spec.Leased && limit.Pooled()`, `one.Spec.Pool = false`,
		"missing write", "permits of a metered limit come back to all partitions", "queue TestUnusedTokensComeBack",
	},
	{
		"queue/internal/store/dispatch.lua", `announcement = 'lease'`, ``,
		"missing write", "a partition that had no jobs is asked at once when it has some", "queue TestPartitionsWithoutJobs",
	},
	{
		"queue/lessor.go", `wait = max(wait, min(next, l.slow))`, ``,
		"missing condition", "a partition without jobs is seldom asked", "queue TestPartitionsWithoutJobs",
	},
	{
		"queue/internal/store/leases.lua", `if span.keep > now - 1000000 then -- else it is over, and would keep an idle partition asking`, `if span then`,
		"missing condition", "a lease that is over keeps no partition asking", "queue TestPartitionsWithoutJobs",
	},
	{
		"queue/internal/store/lease_ask.lua", `return waiting_jobs('*') > 0 or read('LLEN', asynq .. 'pending') > 0 or read('LLEN', asynq .. 'active') > 0`, `return waiting_jobs('*') > 0`,
		"missing condition", "a partition whose calls are under way is asked what they give back", "queue TestPartitionsWithoutJobs",
	},
	{
		"queue/internal/store/dispatch.lua", `if known[7] and not announcement then keep[1], keep[2] = '*idle', known[7] end`, ``,
		"missing write", "a partition without jobs is still announced after its limits got another unit", "queue TestIdleThroughAnotherUnit",
	},
	{
		"queue/internal/store/lease_idle.lua", `if type(next_ask) ~= 'string' or not tonumber(next_ask) or not no_jobs() then return 0 end`, `if type(next_ask) ~= 'string' or not tonumber(next_ask) then return 0 end`,
		"missing condition", "a partition with jobs is asked what it wants", "queue TestRest",
	},
	{
		"queue/internal/store/idle.lua", `if counts and (type(counts) ~= 'string' or not string.find(counts, '^0 ')) then return false end -- "waiting ..."`, `if counts and (type(counts) ~= 'string' or not string.find(counts, '^0')) then return false end`,
		"missing condition", "jobs that wait for a permit are jobs", "queue TestRest",
	},
	{
		"queue/internal/store/dispatch_idle.lua", `if redis.pcall('GET', KEYS[1]) ~= ARGV[2] or not no_jobs('scheduled', 'retry') then return 0 end`, `if redis.pcall('GET', KEYS[1]) ~= ARGV[2] or not no_jobs() then return 0 end`,
		"missing condition", "scheduled jobs are dispatched in idle partitions, too", "queue TestDispatcherRests",
	},
	{
		"queue/internal/store/dispatch_idle.lua", `redis.call('PEXPIRE', KEYS[1], ARGV[3])`, ``,
		"missing write", "who leads an idle partition goes on to lead", "queue TestDispatcherRests",
	},
	{
		"queue/lead.go", `if d.restsSince == 0 || boottime.Now()-d.restsSince > longestRest {`, `if d.restsSince == 0 || boottime.Now()-d.restsSince > 1000*longestRest {`,
		"clock", "an idle partition is looked at each minute", "queue TestDispatcherRests",
	},
	{
		"queue/internal/store/watch.lua", `local idle = ARGV[4] and redis.call('EXISTS', asynq .. 'active', asynq .. 'lease') == 0`, `local idle = ARGV[4] and redis.call('EXISTS', asynq .. 'lease') == 0`,
		"missing condition", "a job without a lease is recovered", "queue TestWatchOfAnIdleQueue",
	},
	{
		"queue/lessor.go", `if restsSince > 0 && began-restsSince < longestRest {`, `if false {`,
		"missing condition", "a partition without jobs is only asked whether it has some", "queue TestPartitionsRest",
	},
	{
		"queue/internal/store/lease_ask.lua", `if later then asks_at(tonumber(later)) end`, ``,
		"missing condition", "a tenant's bucket is asked when its time has come", "queue TestNextAsk",
	},
	{
		"internal/partition/ledger.go", `used, version, at := l.owed(now), l.s.Version, l.s.At`, `used, version, at := int64(0), l.s.Version, l.s.At`,
		"missing write", "what was used of a shared limit counts under another algorithm", "internal/partition TestUseOutlivesTheAlgorithm",
	},
	{
		"internal/limitlua/limits.lua", `local used = not limit.leased and now + s.shift < s.ends and s.spent or 0`, `local used = 0`,
		"missing write", "what was spent of a budget counts in a queue that leaves it", "queue/internal/store TestLeaseOfFormerLimit",
	},
	{
		"queue/book.go", `ask.Clock = b.of // its time is by that of the queue's first partition`, ``,
		"clock", "the ledger of a budget knows by whose clock it is asked", "queue TestLedgerOfATenantIsKept",
	},
	{
		"internal/partition/ledger.go", `if name == "" {`, `if name != "-" {`,
		"clock", "a window of a budget that is over for one queue is over for all", "internal/partition TestClocksThatDiffer",
	},
	{
		"queue/internal/store/leases.lua", `return {keep, s.n}, lease_over(s, now) and 0 or keep - s.spent`, `return {keep, s.n}, keep - s.spent`,
		"no escape", "a lease that is over is asked for anew",
		"queue TestEndedLeaseIsAskedForAgain",
	},
	{
		"internal/partition/pool.go", `units := min(n*l.s.Rate.Permit, lacked)`, `units := min(n, lacked/l.s.Rate.Permit) * l.s.Rate.Permit`,
		"rounding", "tokens of a lease that ended come back to the last part of one",
		"internal/partition TestLeaseOfAPoolEnds",
	},
}
