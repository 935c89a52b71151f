package main

// directMutants break the calls without a job, and what limits keep for one side.
var directMutants = []mutant{
	{
		"queue/internal/store/direct.lua", `c = math.max(call.own, latest)`, `c = call.own`,
		"rounding", "a direct call that leaves late is accounted late", "queue TestCallsAreAccountedLate",
	},
	{
		"queue/internal/store/direct.lua", `if call.own > near then return no(call, near - now) end`, `if call.own > 2 * near then return no(call, near - now) end`,
		"missing condition", "a direct call that may not go is refused", "queue TestDirectCallsShareTheLimits",
	},
	{
		"queue/internal/store/direct.lua", `if early(limits, call) then return no(call, latest - now) end`, ``,
		"missing condition", "a call that its own limit holds takes no far slot of a shared one", "queue TestCallsWaitForTheirOwnLimitFirst",
	},
	{
		"queue/internal/store/direct.lua", `if call.blocked then return {'no', born, 0, 0, 'concurrency', call.blocked.name, call.blocked.key} end`, ``,
		"missing condition", "a direct call waits for a place", "queue TestDirectConcurrency",
	},
	{
		"queue/internal/store/direct.lua", `if read('EXISTS', asynq .. 'paused') == 1 then return {'no', born, 0, LATER, 'pause', '', ''} end`, ``,
		"missing condition", "asynq's tools pause direct calls, too", "queue TestDirectCallsAreHeldAsJobsAre",
	},
	{
		"queue/internal/store/direct.lua", `if lessee then return {'leased', lessee} end`, ``,
		"missing condition", "a direct call takes no leases of jobs", "queue TestDirectCallFindsItsPartition",
	},
	{
		"queue/internal/store/direct.lua", `if not is_home(layout, tenant) then return {'moved'} end`, ``,
		"no fence", "a direct call takes from the partition of its tenant", "queue TestDirectCallFindsItsPartition",
	},
	{
		"queue/internal/store/direct.lua", `if never then return {'never', unpack(never, 2, 5)} end`, ``,
		"missing condition", "a call that costs too much is refused for good", "queue TestDirectCosts",
	},
	{
		"queue/internal/store/direct.lua", `count(headgate .. 'totals', 'direct', 1)`, ``,
		"missing write", "direct calls are counted", "queue TestDirectCallsShareTheLimits",
	},
	{
		"queue/internal/store/direct_end.lua", `refund_all(list, now, slot, costs, marks)`, ``,
		"missing write", "a call that was not made used nothing", "queue TestCanceledCallsComeBack",
	},
	{
		"queue/internal/store/direct_end.lua", `correct_all(list, now, slot, costs, costs_read('0', actual), marks)`, ``,
		"missing write", "what a call did not use comes back", "queue TestDirectCosts",
	},
	{
		"queue/internal/store/direct_end.lua", `if read('ZSCORE', key, id) then`, `if true then`,
		"no fence", "a late renewal takes no place again", "queue TestDirectConcurrency",
	},
	{
		"queue/internal/store/sweep.lua", `local state = is_direct(id) and 'active' or read('HGET', task_key(id), 'state')`, `local state = read('HGET', task_key(id), 'state')`,
		"missing condition", "chores leave the places of direct calls", "queue TestDirectConcurrency",
	},
	{
		"queue/internal/store/lanes.lua", `local others = direct and 'jobs' or 'direct'`, `local others = direct and 'direct' or 'jobs'`,
		"swapped", "a limit holds its side", "queue TestReserveOfASide",
	},
	{
		"queue/permit.go", `return ctx.Err() == nil && in.clock.onTime(p.slot)`, `return ctx.Err() == nil`,
		"missing condition", "a direct call that missed its slot gets another", "queue TestMissedDirectCalls",
	},
	{
		"queue/permit.go", `if !p.ended.CompareAndSwap(false, true) {`, `if p.ended.Store(true); false {`,
		"no fence", "a permit ends once", "queue TestCanceledCallsComeBack",
	},
	{
		"queue/lines.go", `first := line.Acquire(ctx, 1) == nil`, `first := line.Acquire(ctx, 0) == nil && false`,
		"missing condition", "of the calls that wait one asks", "queue TestLineGoesInOrder",
	},
	{
		"queue/internal/store/direct.lua", `if call.paused >= ENDLESS then return {'no', born, 0, LATER, 'pause', '', ''} end`, ``,
		"missing condition", "a call waits for a pause without an end", "queue TestDirectCallsAreHeldAsJobsAre",
	},
	{
		"queue/internal/store/direct.lua", `_, born = set_calendars(ARGV[2], tonumber(ARGV[12]))`, `_, born = set_calendars(ARGV[2])`,
		"missing condition", "no call goes while the limits are lost", "queue TestDirectCallsKnowLostLimits",
	},
	{
		"queue/internal/store/direct.lua", `plan('ZREMRANGEBYSCORE', entry.key, '-inf', int(now))`, ``,
		"missing write", "lapsed places do not pile up", "queue TestReleaseAfterTheContext",
	},
	{
		"queue/internal/store/direct_end.lua", `pause_all(list, now, ends, reason)`, ``,
		"missing write", "buckets stop while a provider wants no calls", "queue TestTransport",
	},
	{
		"queue/internal/store/lanes.lua", `if limit['for'] == others then n = 0 end`, ``,
		"missing condition", "a limit of one side refuses nothing of the other", "queue TestCostsUnderOneSide",
	},
	{
		"queue/internal/store/lanes.lua", `local used = entry.spec and entry.unit ~= '' and actual[entry.unit] -- a send window has no spec`, `local used, _ = entry.unit ~= '' and actual[entry.unit], share_of(entry, costs)`,
		"no check", "costs are settled beside a send window", "queue TestDirectCosts",
	},
	{
		"queue/permit.go", `ctx = context.WithoutCancel(ctx) // a call whose context has ended is over, too`, ``,
		"wrong context", "a call whose context has ended gives its place back", "queue TestReleaseAfterTheContext",
	},
	{
		"queue/clock.go", `return c.known && !c.asking && boottime.Now()-c.since < 2*clockWindow`, `return c.known && !c.asking`,
		"missing condition", "a clock that was not asked for long is asked again", "queue TestClockIsAskedAgain",
	},
	{
		"queue/transport.go", `httpcall.WhenRead(resp, func() { _ = p.Release(later) }) // else its place lapses`, `_ = p.Release(later)`,
		"too early", "a call holds its place until its answer was read", "queue TestTransportGivesBack",
	},
	{
		"queue/transport.go", `go func() { _ = p.SetQuota(later, quotas...) }() // the answer is here, and does not wait for Redis`, `_ = p`,
		"missing write", "what the answer to a direct call says of the provider's limits counts", "queue TestTransportHears",
	},
	{
		"queue/internal/store/direct_end.lua", `attempt('limits', function() hear(limits(), now, actual) end)`, `limits()`,
		"missing write", "what the provider of a direct call admits is kept", "queue TestTransportHears",
	},
	{
		"queue/transport.go", `if !sent {`, `if sent {`,
		"swapped", "a call that was not sent used nothing", "queue TestTransportGivesBack",
	},
	{
		"queue/transport.go", `if quotas := t.quotas(resp); length > 0 {`, `if quotas := t.quotas(resp); length > time.Hour {`,
		"missing condition", "a provider that asks for a pause gets it", "queue TestTransport",
	},
	{
		"queue/internal/store/direct.lua", `if limit ~= '' and rest >= left then return end`, ``,
		"missing condition", "a call that goes is observed with the limit that has the fewest permits left", "queue TestObserveTakes",
	},
	{
		"queue/internal/store/direct.lua", `if not goes and entry.name ~= reply[6] then return end`, ``,
		"missing condition", "a call that is refused is observed with the limit that refused it", "queue TestObserveTakes",
	},
	{
		"queue/internal/store/direct.lua", `local rest = math.max(limit_left(spec, b, at) - n, 0)`, `local rest = limit_left(spec, b, at)`,
		"missing term", "a call that is observed counts for a concurrency limit", "queue TestObserveTakes",
	},
	{
		"queue/internal/store/direct.lua", `local at = goes and math.max(tonumber(reply[4]), latest) or latest`, `local at = now`,
		"wrong moment", "what is left is counted when calls are accounted", "queue TestObserveTakes",
	},
	{
		"queue/direct.go", `seen.waits(p.slot.earliest - boottime.Now())`, ``,
		"missing term", "the wait for a slot is observed", "queue TestObserveWaits",
	},
	{
		"queue/direct.go", `return nil, nil, seen.failed(fmt.Errorf("a call of queue %q: %w", a.queue(), err))`, `return nil, nil, fmt.Errorf("a call of queue %q: %w", a.queue(), err)`,
		"missing write", "a call without an answer of Redis is observed", "queue TestObserveWithoutRedis",
	},
	{
		"queue/observed.go", `case o.observe == nil, errors.Is(err, context.Canceled):`, `case o.observe == nil, errors.Is(err, context.Canceled) && err == nil:`,
		"missing condition", "a call that is cancelled was not refused", "queue TestObserveGivingUp",
	},
	{
		"queue/observed.go", `if !o.Decision.Allowed {`, `if false {`,
		"missing condition", "only calls that go have waited", "queue TestObserveGivingUp",
	},
	{
		"queue/limitsfile/reserve.go", `*kept = append(*kept, reserve{of: of, rest: 100 - percent, at: path})`, `*kept = append(*kept, reserve{of: of, rest: percent, at: path})`,
		"swapped", "what is kept is not the rest", "queue/limitsfile TestReserve",
	},
	{
		"queue/limitsfile/reserve.go", `burst = max(burst, 1+int64(math.Ceil(float64(rate.Count)*slack.Seconds()/rate.Period.Seconds())))`, `burst = max(burst, 1+int64(math.Ceil(0*float64(rate.Count)*slack.Seconds()/rate.Period.Seconds())))`,
		"missing bound", "a side catches up on the other", "queue/limitsfile TestReserve",
	},
	{
		"queue/inspect/forecast.go", `f.limits.Queue.Limits = slices.DeleteFunc(f.limits.Queue.Limits, func(l effective.Limit) bool { return l.For == limits.Direct })`, ``,
		"missing condition", "a limit of direct calls holds no job in forecasts", "queue TestForecastLeavesDirectLimitsOut",
	},
}
