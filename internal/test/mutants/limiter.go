package main

// limiterMutants break package throttle: its scripts and its Go code.
var limiterMutants = []mutant{
	// limits.lua, buckets with a rate.
	{
		"internal/limitlua/limits.lua", `units = permits * limit.p + math.ceil(part / (p / common))`, `units = permits * limit.p + math.floor(part / (p / common))`,
		"rounding", "a changed rate gives no part of a permit away", "throttle TestConvert",
	},
	{
		"internal/limitlua/limits.lua", `local function set_back(at, now) return at - now > 1000000 and at - now or 0 end`, `local function set_back(at, now) return at - now > 1e15 and at - now or 0 end`,
		"clock", "a clock that was set back holds no bucket up", "throttle TestClockSetBackHeals",
	},
	{
		"internal/limitlua/limits.lua", `s.tat, s.last, s.at, s.mended = math.max(0, s.tat - back), math.max(0, s.last - back), now, true`, `s.tat, s.last, s.at, s.mended = 0, math.max(0, s.last - back), now, true`,
		"clock", "a clock that was set back refills no bucket", "throttle TestClockSetBackHeals",
	},
	{
		"internal/limitlua/limits.lua", `redis.call('SET', s.key, text, 'PX', math.max(math.ceil((ends - now) / 1000), 0) + 2000)`, `redis.call('SET', s.key, text, 'PX', math.max(math.ceil((ends - now) / 2000), 0) + 1)`,
		"expiry", "a bucket lives until it is full", "throttle TestExpiry",
	},
	{
		"internal/limitlua/limits.lua", `elseif s.p ~= limit.p or s.r ~= limit.r then`, `elseif s.p ~= limit.p and s.r ~= limit.r then`,
		"swapped", "a changed rate counts what is owed in permits", "throttle TestChangedLimit",
	},
	{
		"internal/limitlua/limits.lua", `local last = math.min(math.max(s.last, now), now + limit.ahead)`, `local last = now`,
		"swapped", "a faster rate gives no slot a second time", "throttle TestFarSlotsOutliveAFasterRate|TestLawOverChanges",
	},
	{
		"internal/limitlua/limits.lua", `if limit.a ~= 'lb' then floor = floor + math.ceil((limit.b - 1) * limit.p / limit.r) end`, `if limit.a == 'lb' then floor = floor + math.ceil((limit.b - 1) * limit.p / limit.r) end`,
		"swapped", "after a pause a bucket begins with one permit, not with a burst", "throttle TestPause$|TestResume",
	},
	{
		"internal/limitlua/limits.lua", `local slack = limit.a == 'lb' and 0 or limit.b - n -- permits that may be ahead of the rate`, `local slack = limit.a == 'lb' and 0 or limit.b - n + 1`,
		"off by one", "never more than burst + rate × time", "throttle TestSequences|TestReservationsAreAlike",
	},
	{
		"internal/limitlua/limits.lua", `return math.max(t, s.tat - math.floor((slack * limit.p - s.frac) / limit.r))`, `return math.max(t, s.tat - math.ceil((slack * limit.p - s.frac) / limit.r))`,
		"rounding", "no call goes a part of a µs too early", "throttle TestSequences|TestExactModels/token_bucket/^redis",
	},
	{
		"internal/limitlua/limits.lua", `if tat < now or tat + (frac > 0 and 1 or 0) < t then tat, frac = t, 0 end`, `if tat < t then tat, frac = t, 0 end`,
		"rounding", "a rate of any number is used to the last permit", "throttle TestNothingIsLostOrWonByRounding|TestCapacityIsUsed|TestReservationsAreAlike",
	},
	{
		"internal/limitlua/limits.lua", `s.tat, s.frac, s.at = tat + whole, units - whole * limit.r, now`, `s.tat, s.frac, s.at = tat + whole, 0, now`,
		"rounding", "parts of a µs add up against the caller, too", "throttle TestNothingIsLostOrWonByRounding|TestExactModels/token_bucket/^redis",
	},
	{
		"internal/limitlua/limits.lua", `if s.lows[i].mark > mark then`, `if s.lows[i].mark >= mark then`,
		"off by one", "what was owed before a call says nothing about what comes back of it", "throttle TestOlderSlotsComeBackWhereNobodyStands|TestCancelledTogether",
	},
	{
		"internal/limitlua/limits.lua", `units = math.min(units, s.lows[i].low * limit.r)`, `units = math.max(units, s.lows[i].low * limit.r)`,
		"swapped", "permits that flowed back in the meantime do not come back again", "throttle TestRefilledPermitsDoNotComeBack|TestLawOverCancelledSlots",
	},
	{
		"internal/limitlua/limits.lua", `if one.mark > mark then one.low = math.max(0, one.low - math.ceil(units / limit.r)) end`, `if one.mark > mark then one.low = math.max(0, one.low) end`,
		"missing write", "two cancelled calls do not get the same permits back", "throttle TestCancelledTogether",
	},
	{
		"internal/limitlua/limits.lua", `local most = math.max(now, s.last) + (limit.b > 0 and 2 * size(limit) or YEAR)`, `local most = math.max(now, s.last) + (limit.b > 0 and 20 * size(limit) or YEAR)`,
		"wrong number", "one call's overrun is charged up to twice the limit", "throttle TestSettle$",
	},
	{
		"internal/limitlua/limits.lua", `return t - math.floor(room / limit.r)`, `return t - math.floor(room / limit.r) - 1`,
		"off by one", "no more wait in a leaky bucket than its capacity", "throttle TestExactModels/leaky_bucket/^redis|TestFullQueue",
	},
	{
		"internal/limitlua/limits.lua", `return math.max(0, most - math.ceil(((s.tat - now) * limit.r + s.frac) / limit.p))`, `return math.max(0, most - math.floor(((s.tat - now) * limit.r + s.frac) / limit.p))`,
		"rounding", "Remaining never tells more than there is", "throttle TestExactModels/token_bucket/^redis|TestSequences",
	},

	// Windows.
	{
		"internal/limitlua/limits.lua", `if used(s, start, following) + n > limit.b then return following end`, `if used(s, start, following) + n > limit.b + 1 then return following end`,
		"off by one", "a window admits its count", "throttle TestSequences",
	},
	{
		"internal/limitlua/limits.lua", `if s.start == start or (s.last >= start and s.last < following) then return s.used end`, `if s.start == start then return s.used end`,
		"swapped", "what was used of a window counts when its length changes", "throttle TestChangedWindows",
	},
	{
		"internal/limitlua/limits.lua", `s.used = used(s, start, following) + n`, `s.used = used(s, start, following) + 1`,
		"wrong number", "a call of cost n takes n permits of a window", "throttle TestSequences",
	},
	{
		"internal/limitlua/limits.lua", `if previous <= room then return t end`, `if previous <= room + 1 then return t end`,
		"off by one", "a sliding counter weighs the window before", "throttle TestSequences|TestExactModels/sliding_window_counter/^redis",
	},
	{
		"internal/limitlua/limits.lua", `local d = limit.w - math.floor(((room + 1) * math.floor(limit.w / u) - 1) / previous) * u`, `local d = limit.w - math.floor((room + 1) * math.floor(limit.w / u) / previous) * u`,
		"rounding", "a sliding counter admits nothing a µs early", "throttle TestSequences|TestExactModels/sliding_window_counter/^redis",
	},
	{
		"internal/limitlua/limits.lua", `previous, used, start = used, 0, start + limit.w`, `previous, used, start = 0, 0, start + limit.w`,
		"missing write", "what a sliding counter used weighs on the next window", "throttle TestSequences|TestExactModels/sliding_window_counter/^redis",
	},
	{
		"internal/limitlua/limits.lua", `return used + math.ceil(weighed), base`, `return used + math.floor(weighed), base`,
		"rounding", "a sliding counter's changed limit gives nothing away", "throttle TestOnePermitOutlivesTheAlgorithm",
	},
	{
		"internal/limitlua/limits.lua", `local rank = limit.b - n + 1`, `local rank = limit.b - n + 2`,
		"off by one", "a log admits its count in any period", "throttle TestSequences",
	},
	{
		"internal/limitlua/limits.lua", `if k.stored(s, middle) <= t then low = middle else high = middle - 1 end`, `if k.stored(s, middle) < t then low = middle else high = middle - 1 end`,
		"off by one", "a permit of a log is free again after its period, on the µs", "throttle TestSequences|TestExactModels/sliding_window_log/^redis",
	},
	{
		"internal/limitlua/limits.lua", `for _, cut in ipairs(s.cuts) do redis.call('LREM', s.key, -cut.n, string.format('%.0f', cut.t)) end`, `for _, cut in ipairs(s.cuts) do redis.call('LREM', s.key, 0, string.format('%.0f', cut.t)) end`,
		"wrong number", "a log gives back what was not used and no more", "throttle TestSettleGivesBackAnyPart|TestLawOverCancelledSlots",
	},

	// Permits of calls in flight.
	{
		"internal/limitlua/limits.lua", `local over = held(s, now) - limit.b`, `local over = held(s, now) - limit.b - 1`,
		"off by one", "no more calls are under way than the limit says", "throttle TestSequences",
	},
	{
		"internal/limitlua/limits.lua", `local count = redis.pcall('ZCOUNT', s.key, string.format('(%.0f', now), '+inf')`, `local count = redis.pcall('ZCOUNT', s.key, string.format('%.0f', now), '+inf')`,
		"off by one", "a permit lapses at the end of its lease", "throttle TestSequences",
	},
	{
		"internal/limitlua/limits.lua", `if redis.call('PTTL', s.key) < ms then redis.call('PEXPIRE', s.key, ms) end`, `if redis.call('PTTL', s.key) < ms then redis.call('PTTL', s.key) end`,
		"missing write", "permits leave nothing in Redis for ever", "throttle TestPermitsExpire",
	},

	// Buckets in general.
	{
		"internal/limitlua/limits.lua", `if used > 0 and (not limit.c or window_at(limit, base)) then`, `if used > 1 and (not limit.c or window_at(limit, base)) then`,
		"off by one", "what was used outlives a change of the algorithm", "throttle TestOnePermitOutlivesTheAlgorithm",
	},
	{
		"internal/limitlua/limits.lua", `if pause then text, s.pause, s.why = body, pause, why end`, `if pause then text, s.pause, s.why = body, now, why end`,
		"clock", "a pause lasts until its end", "throttle TestPause$",
	},
	{
		"internal/limitlua/limits.lua", `if s.pause > now then return 0 end`, `if s.pause > now + 1e9 then return 0 end`,
		"wrong number", "a paused bucket has nothing left", "throttle TestPause$",
	},
	{
		"internal/limitlua/limits.lua", `if not (s.dirty or s.mended) then return end`, `if not s.dirty then return end`,
		"missing write", "a refusal under a changed limit writes what is owed now", "throttle TestRefusalsFollowTheNewRate|TestClockSetBackHeals",
	},

	// take.lua, the short scripts, settle.lua, release.lua, renew.lua, pause.lua.
	{
		"throttle/take.lua", `if e > t then t, binding, moved = e, i, true end`, `if e > now and i == 1 then t, binding, moved = e, i, true end`,
		"missing condition", "a call goes when all of its limits admit it", "throttle TestSeveralLimits|TestLayersAtRandom",
	},
	{
		"throttle/take.lua", `if t - within > opens then opens, held_by = t - within, binding end`, `if t - within > opens + 1 then opens, held_by = t - within, binding end`,
		"off by one", "no slot is further away than the caller accepts", "throttle TestReservationsAreAlike",
	},
	{
		"throttle/take.lua", `if not refused and not peek then`, `if not refused or mode == 'reserve' then`,
		"swapped", "a look, or a refusal, takes no permit", "throttle TestPeek$|TestSequences",
	},
	{
		"throttle/plain.lua", `local owed, calls, each = tat < at and 0 or tat - at, tonumber(ARGV[10]), ARGV[9] * ARGV[3]`, `local owed, calls, each = tat - at, tonumber(ARGV[10]), ARGV[9] * ARGV[3]`,
		"clock", "an idle bucket gathers no more than its burst", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/plain.lua", `local owed, calls, each = tat < at and 0 or tat - at, tonumber(ARGV[10]), ARGV[9] * ARGV[3]`, `local owed, calls, each = tat < at and 0 or tat - at, tonumber(ARGV[10]), ARGV[9] * ARGV[3] - 1`,
		"rounding to the caller's favour", "a permit of an integer bucket costs its whole interval", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/plain.lua", `local after = owed + calls * each`, `local after = owed + each`,
		"missing write", "calls that ask the same take their permits each", "throttle TestPlainAnswersAlike|TestSharedAnswersAreTheSame",
	},
	{
		"throttle/plain.lua", `if after <= max_owed then -- else it gets a text, or the clock was set back`, `if after then`,
		"clock", "a long debt has the form that the full script reads", "throttle TestClockSetBackHeals",
	},
	{
		"throttle/plain.lua", `if tat > at + max_owed then return -1 end -- the clock was set back`, `if tat > 2 * at then return -1 end`,
		"clock", "the cheap script leaves a clock that was set back to the full one", "throttle TestPlainAnswersAlike|TestClockSetBackHeals",
	},
	{
		"throttle/plain.lua", `return tat < at and 0 or tat - at`, `return tat <= at and 0 or tat - at - 1`,
		"rounding to the caller's favour", "several buckets owe to the µs what was taken", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/plain.lua", `if rate ~= ARGV[limit + 4] or written * 1000000 > now + 1000000 then return -1 end -- the clock was set back`, `if rate ~= ARGV[limit + 4] then return -1 end`,
		"clock", "the cheap script leaves a long debt before which the clock was set back to the full one", "throttle TestPlainAfterTheClockWasSetBack",
	},
	{
		"throttle/plain.lua", `return tat < at and 0 or (tat - at) * ARGV[limit + 1] + frac`, `return tat < at and 0 or (tat - at) * ARGV[limit + 1]`,
		"rounding to the caller's favour", "thirds and sevenths stay exact", "throttle TestPlainAnswersAlike|TestDrift",
	},
	{
		"throttle/plain.lua", `local owed, calls, each = read(KEYS[1], 3), tonumber(ARGV[10]), ARGV[9] * ARGV[3]`, `local owed, calls, each = read(KEYS[1], 3), tonumber(ARGV[10]), ARGV[9] * ARGV[3] - 1`,
		"rounding to the caller's favour", "a permit costs all of its units", "throttle TestPlainAnswersAlike|TestDrift",
	},
	{
		"throttle/plain.lua", `local room = ARGV[limit + 2] * ARGV[limit] - owed`, `local room = (ARGV[limit + 2] + 1) * ARGV[limit] - owed`,
		"off by one", "the cheap script never admits more than the full one to calls that go together", "throttle TestPlainAnswersAlike|TestSharedAnswersAreTheSame",
	},
	{
		"throttle/plain.lua", `if owed < 0 or left and left[place] then`, `if owed < 0 then`,
		"missing condition", "calls of one bucket keep their order when one of them is left to the full script", "throttle TestCallsThatAreLeftKeepTheirOrder",
	},
	{
		"throttle/plain.lua", `debts[place], taken[place] = debts[place] + calls * n * ARGV[5 * i - 2], true`, `debts[place], taken[place] = debts[place] + n * ARGV[5 * i - 2], true`,
		"missing write", "calls that share a round trip take their permits each", "throttle TestPlainAnswersAlike|TestSharedAnswersAreTheSame",
	},
	{
		"throttle/plain.lua", `if places then`, `if false then`,
		"wrong key", "keys that name one bucket share it", "throttle TestPlainAnswersAlike|TestSharedAnswersAreTheSame",
	},
	{
		"throttle/plain.go", `d.owed[i] += n * spec.Permit`, `d.owed[i] += spec.Permit`,
		"off by one", "Remaining of each call counts the calls before it", "throttle TestPlainAnswersAlike",
	},
	{
		"throttle/plain.go", `if spec.left(d.owed[i]) < d.specs[which].left(d.owed[which]) {`, `if spec.left(d.owed[i]) > d.specs[which].left(d.owed[which]) {`,
		"swapped", "the limit with the fewest permits left is shown", "throttle TestPlainAnswersAlike",
	},
	{
		"throttle/plain.go", `if w := spec.after(d.owed[i] - (spec.Burst-n)*spec.Permit); w > wait {`, `if w := spec.after(d.owed[i] - (spec.Burst-n)*spec.Permit); w > wait || w > 0 {`,
		"swapped", "a refused call waits for the last of its limits", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/refusals.go", `if r == nil || r.bucket != string(bucket) || r.n != n {`, `if r == nil || r.bucket != string(bucket) {`,
		"missing condition", "a call of fewer permits than one that was refused is asked about", "throttle TestNeverRefusedWrongly|TestRefusedWithoutAsking",
	},
	{
		"throttle/refusals.go", `if since < 0 || since+wait/drift >= wait || since >= remembered {`, `if since < 0 || since >= 2*wait {`,
		"clock", "a call is refused no longer than Redis would refuse it", "throttle TestNeverRefusedWrongly|TestRefusedWithoutAsking",
	},
	{
		"throttle/refusals.go", `at.Store(nil)`, `_ = at`,
		"missing write", "a refusal that is remembered knows of calls that were admitted since", "throttle TestModel$",
	},
	{
		"throttle/refusals.go", `d.Remaining = r.spec.left(max(0, r.owed-over.Microseconds()*r.spec.Flow))`, `d.Remaining = r.spec.left(max(0, r.owed-over.Microseconds()))`,
		"rounding to the caller's loss", "a refusal that is remembered says how much is left", "throttle TestRefusedWithoutAsking",
	},
	{
		"throttle/windows.lua", `taken = back == '' and 0 or 2`, `taken = 0`,
		"missing condition", "a refusal of a window is not remembered if permits may come back", "throttle TestRefusedUntilGivenBack",
	},
	{
		"throttle/log.lua", `taken = back == '' and 0 or 2`, `taken = 0`,
		"missing condition", "a refusal of a log is not remembered if permits may come back", "throttle TestRefusedUntilGivenBack",
	},
	{
		"throttle/take.lua", `b.detailed, b.reserves = reserve, reserve -- it may be settled, which needs to know more`, `b.detailed = reserve`,
		"missing write", "a window says that permits may come back", "throttle TestRefusedUntilGivenBack",
	},
	{
		"throttle/windows.lua", `if used + n > b then opens = following end`, `if used + n > b + 1 then opens = following end`,
		"off by one", "a window admits no more than its count by the cheap script", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/windows.lua", `elseif from + w == start then`, `elseif from + w == now then`,
		"wrong key", "a sliding window counts the window before by the cheap script", "throttle TestPlainAnswersAlike|TestSequences|TestCounter",
	},
	{
		"throttle/windows.lua", `if from == start or latest >= start and latest < following then used = tonumber(count) end`, `if from == start or latest < start and latest < following then used = tonumber(count) end`,
		"swapped", "what was used under another window counts by the cheap script", "throttle TestLawOverChanges|TestPlainAnswersAlike|TestLongerWindows",
	},
	{
		"throttle/log.lua", `wait = opens - now`, `wait = opens - now - 1000`,
		"clock", "a log admits no call before one is over by the cheap script", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/log.lua", `left = last > now and 0 or math.max(0, b - len + over - fresh)`, `left = last > now and 0 or math.max(0, b - len - fresh)`,
		"missing condition", "what is over does not count as used by the cheap script", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"throttle/log.lua", `if over > 0 then redis.call('LTRIM', key, over, -1) end -- the last of them becomes the head`, `if over > 0 then redis.call('LTRIM', key, over - 1, -1) end`,
		"off by one", "a log forgets what is over by the cheap script", "throttle TestPlainAnswersAlike",
	},
	{
		"throttle/log.lua", `known = written and moment and written <= now + 1000000`, `known = written and moment`,
		"clock", "the cheap script leaves a log before which the clock was set back to the full one", "throttle TestPlainAnswersAlike",
	},
	{
		"throttle/slots.lua", `local opens = math.max(now, t - within)`, `local opens = math.max(now, t - within - 1)`,
		"off by one", "no slot is further away than the caller accepts by the cheap script", "throttle TestReservationsAreAlike|TestExactModels",
	},
	{
		"throttle/slots.lua", `opens = math.max(opens, slot - math.floor(room / r))`, `opens = math.max(opens, slot - math.floor(room / r) - 1)`,
		"off by one", "a queue has no more places than its capacity by the cheap script", "throttle TestReservationsAreAlike|TestExactModels",
	},
	{
		"throttle/slots.lua", `if not lowest or tonumber(lowest) >= low then`, `if true then`,
		"missing condition", "what comes back was owed at every commit since by the cheap script", "throttle TestReservationsAreAlike",
	},
	{
		"throttle/slots.lua", `if tat < now or tat + (frac > 0 and 1 or 0) < t then tat, frac = t, 0 end`, `if tat < t then tat, frac = t, 0 end`,
		"rounding to the caller's loss", "slots of a rate without whole µs do not drift by the cheap script", "throttle TestReservationsAreAlike|TestDrift",
	},
	{
		"throttle/permits.lua", `if known and held < b then`, `if known and held <= b then`,
		"off by one", "no more calls are in flight than a limit says by the cheap script", "throttle TestReservationsAreAlike|TestTimedCrowd",
	},
	{
		"throttle/permits.lua", `taken, held, reset = 1, held + 1, lease`, `taken, reset = 1, lease`,
		"missing write", "calls that share a round trip have a permit each", "throttle TestReservationsAreAlike",
	},
	{
		"throttle/release.lua", `for i = 1, #KEYS do redis.pcall('ZREM', KEYS[i], ARGV[i]) end -- one may have become another algorithm's`, `for i = 1, #KEYS do redis.pcall('ZSCORE', KEYS[i], ARGV[i]) end`,
		"missing write", "a call that ended holds no permit", "throttle TestEndedCallsHoldNoPermit",
	},
	{
		"throttle/settle.lua", `limit_refund(limit, b, now, slot, n - actual, tonumber(ARGV[at + 3 + i]))`, `limit_refund(limit, b, now, slot, n, tonumber(ARGV[at + 3 + i]))`,
		"wrong number", "a call gives back what it did not use, and keeps the rest", "throttle TestSettle",
	},
	{
		"throttle/settle.lua", `limit_charge(limit, b, now, actual - n)`, `limit_charge(limit, b, now, 0)`,
		"wrong number", "what a call used beyond its reservation is charged", "throttle TestSettle",
	},
	{
		"throttle/settle.lua", `for _, key in ipairs(permits) do redis.pcall('ZREM', key, id) end -- it may have become another algorithm's`, `for _, key in ipairs(permits) do redis.pcall('ZSCORE', key, id) end`,
		"missing write", "a call that was not made holds no permit", "throttle TestEndedCallsHoldNoPermit",
	},
	{
		"throttle/renew.lua", `for i, key in ipairs(KEYS) do results[i] = (tonumber(redis.pcall('ZSCORE', key, ARGV[2 * i])) or 0) > now and 1 or 0 end`, `for i, key in ipairs(KEYS) do results[i] = (tonumber(redis.pcall('ZSCORE', key, ARGV[2 * i])) or 0) > 0 and 1 or 0 end`,
		"no fence", "a permit that lapsed is not renewed: another call may have it", "throttle TestLapsedPermitsStayLapsed|TestLost",
	},
	{
		"throttle/renew.lua", `redis.call('ZADD', key, string.format('%.0f', now + lease), id)`, `redis.call('ZADD', key, string.format('%.0f', now + 1), id)`,
		"clock", "a renewed permit lives for another lease", "throttle TestHeldPermitsAreRenewed|TestChangedLease",
	},
	{
		"throttle/pause.lua", `if now + length <= b.pause then return 1 end`, `if now + length <= now then return 1 end`,
		"swapped", "of two pauses the longer one holds", "throttle TestPause$",
	},

	// Go.
	{
		"internal/rediskey/rediskey.go", `case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._~-@", c) >= 0:`, `case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._~-@:}", c) >= 0:`,
		"no escape", "no key reaches the bucket of another", "internal/rediskey TestEscape",
	},
	{
		"throttle/limiter.go", `if highest := limit.maxCost(mode == shape); highest > 0 && n > highest {`, `if highest := limit.maxCost(mode == shape); highest > 0 && n > highest+1 {`,
		"off by one", "a cost that is never admitted is an error at once", "throttle TestCosts$|TestSequences",
	},
	{
		"throttle/limiter.go", `some.company, some.now = l.company, now`, `some.now = now`,
		"missing write", "a limit has one bucket, whether it is asked alone or with others", "throttle TestOnly",
	},
	{
		"internal/coalesce/coalesce.go", `if g.leave(b, call) {`, `if g.leave(b, call) || true {`,
		"no fence", "a caller that leaves is told that its call may have been made", "internal/coalesce TestCallersLeave",
	},
	{
		"internal/coalesce/coalesce.go", `if b := g.waiting[n-1]; len(b.calls) < g.MaxCalls && b.bytes+size <= g.MaxBytes {`, `if b := g.waiting[n-1]; len(b.calls) <= g.MaxCalls && b.bytes+size <= g.MaxBytes {`,
		"off by one", "a round trip is bounded", "internal/coalesce TestCallsGather",
	},
	{
		"internal/redisscript/script.go", `func (onceCmd) NoRetry() bool { return true }`, `func (onceCmd) NoRetry() bool { return false }`,
		"no fence", "a reply that was lost takes no permit twice", "throttle TestLostReply",
	},
	{
		"internal/redisscript/anyway.go", `if redis.HasErrorPrefix(err, "OOM") {`, `if redis.HasErrorPrefix(err, "NOMEM") {`,
		"swapped", "workers are alive on a full Redis", "queue TestWorkerOnFullRedis",
	},
	{
		"internal/redisscript/script.go", `if s.tight != nil && redis.HasErrorPrefix(err, "OOM") {`, `if s.tight != nil && redis.HasErrorPrefix(err, "NOMEM") {`,
		"swapped", "limits hold also while Redis is full", "throttle TestFullMemory",
	},
	{
		"throttle/reservation.go", `if !r.Allowed || r.ended.Swap(true) {`, `if !r.Allowed || r.ended.Load() {`,
		"no fence", "a reservation gives its permits back once", "throttle TestSettle|TestReservation",
	},
	{
		"throttle/plain.go", `return max(0, s.Burst-(owed+s.Permit-1)/s.Permit)`, `return max(0, s.Burst-owed/s.Permit)`,
		"rounding", "Remaining is the same from either script", "throttle TestPlainAnswersAlike|TestSequences",
	},
	{
		"internal/limitlua/calendar.go", `d -= (int(now.In(l.Location).Weekday()) + 6) % 7 // back to Monday`, `d -= int(now.In(l.Location).Weekday())`,
		"clock", "a week begins on Monday", "throttle TestWindows",
	},
	{
		"internal/limitlua/calendar.go", `y, m, d := now.In(l.Location).Date()`, `y, m, d := now.UTC().Date()`,
		"clock", "a day is that of the limit's time zone", "throttle TestWindows",
	},
	{
		"throttle/shards.go", `if int64(i) < whole%parts {`, `if int64(i) <= whole%parts {`,
		"off by one", "the parts of a limit are no more than the whole", "throttle TestPartsAreTheWhole",
	},
	{
		"throttle/keyrates.go", `if r == nil || r.key != key {`, `if r == nil {`,
		"wrong key", "a key keeps its block while another of the same hash is refused", "throttle TestRefusalOfAnotherKey",
	},
	{
		"throttle/blocks.go", `rate.call.CompareAndSwap(before, refused) // else a block came meanwhile, which has permits for such calls`, `rate.call.Store(refused); _ = before`,
		"race", "an answer that comes after a block hides none of its permits", "throttle TestBlockComesBeforeARefusal",
	},
	{
		"throttle/keyrates.go", `if key != r.owner.key {`, `if false {`,
		"wrong key", "a key that is asked about once has no block, however many share its place", "throttle TestHotKeyAmongMany",
	},
	{
		"throttle/keyrates.go", `if r.rival.used > r.owner.used {`, `if r.rival.used > r.owner.used && r.owner.used == 0 {`,
		"missing check", "a hot key takes the place of a warm one", "throttle TestHottestKeyOwnsItsPlace",
	},
	{
		"throttle/keyrates.go", `return since, since < min(hold, r.decision.RetryAfter)`, `return since, since < r.decision.RetryAfter`,
		"missing check", "what another process gave back is found after the time of a block", "throttle TestBlocksFindWhatCameBack",
	},
	{
		"throttle/blocks.go", `rate.block.Store(&blockRefusal{key, size, r.Decision, time.Now()})`, `_ = r`,
		"missing write", "a key that is refused does not ask for a block each time", "throttle TestBlocksOfARefusedKey",
	},
	{
		"throttle/blocks.go", `if own.left >= n && passed(own.asked, time.Now()) < b.hold {`, `if own.left >= n-1 && passed(own.asked, time.Now()) < b.hold {`,
		"off by one", "a block hands out its size", "throttle TestBlock",
	},
	{
		"throttle/blocks.go", `if own.left >= n && passed(own.asked, time.Now()) < b.hold {`, `if own.left >= n {`,
		"clock", "a permit of a block is not used after its hold", "throttle TestBlock|TestCrashOfBlocks",
	},
	{
		"throttle/lease.go", `tick := time.NewTicker(shortest / 4)`, `tick := time.NewTicker(shortest * 4)`,
		"clock", "permits of calls under way are renewed in time", "throttle TestHeldPermitsAreRenewed",
	},
	{
		"internal/limitlua/limits.lua", `if limit.b > 0 and s.at > now then`, `if limit.b > 0 then`,
		"missing condition", "what is owed of a burst outlives a smaller one", "throttle TestLoweringAppliesAtOnce",
	},
}
