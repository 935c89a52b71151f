package main

// gateMutants break the Go code of package queue: the gate, the dispatcher, and the code that
// they use.
var gateMutants = []mutant{
	{
		"queue/clock.go", `return s.latest == 0 || boottime.Now() <= min(s.latest, c.boot(s.latestMicros))+late`, `return s.latest == 0 || boottime.Now() <= min(s.latest, c.boot(s.latestMicros))+1000*late`,
		"clock", "a process that was paused sends nothing stale", "queue TestOnTime",
	},
	{
		"queue/gate.go", `return boottime.Now() < s.latest && (g.clock.boot(s.latestMicros)-s.latest).Abs() < late`, `return boottime.Now() < s.latest`,
		"clock", "a slot does not come back with a clock that is set back", "queue TestOnTime",
	},
	{
		"queue/gate.go", `return min(inHand<<min(missed, 10), store.Horizon)`, `return inHand`,
		"missing bound", "a job goes although the answers of Redis take longer than a slot", "queue TestMissesSlowDown|TestSlowScripts",
	},
	{
		"queue/internal/boottime/boottime_linux.go", `if known == nil || (wall-known.wall).Abs() > maxDrift {`, `if known == nil || wall == known.wall+1 {`,
		"clock", "a slot that passed while the machine slept is late", "queue/internal/boottime TestBootTime",
	},
	{
		"queue/run.go", `if paused || !r.clock.onTime(r.slot) || !r.renewals.cover(r.asked) {`, `if paused || !r.clock.onTime(r.slot) || !r.renewals.cover(r.asked) && false {`,
		"no fence", "a call leaves only while its job is certainly this worker's", "queue TestNoCallWithoutALease",
	},
	{
		"queue/run.go", `return r.job.expired(r.clock.now()), true`, `return true, true`,
		"clock", "no job expires by the time before the clock was set back", "queue TestNoDeadlinePassesByAnOldClock",
	},
	{
		"queue/run.go", `r.early = r.handler.early(r.job.task.Payload)`, `_ = r.handler.early(r.job.task.Payload)`,
		"late", "a call leaves at its slot, however large its payload", "queue TestPayloadIsDecodedBeforeItsSlot",
	},
	{
		"queue/gate.go", `return !job.Probe && g.pauses.holds(now, store.HoldScopes(job.tenant(), job.kind(), store.EndpointIn(job.attributes))...)`, `return g.pauses.holds(now, store.HoldScopes(job.tenant(), job.kind(), store.EndpointIn(job.attributes))...)`,
		"missing condition", "a probe goes while the others are held", "queue TestNoCallWhilePaused",
	},
	{
		"queue/gate.go", `if g.pauses.holds(now, store.PauseScopes(job.tenant(), job.kind())...) {`, `if g.pauses.holds(now, store.WholeQueue) {`,
		"wrong key", "no call leaves while its tenant or kind is paused", "queue TestNoCallWhilePaused",
	},
	{
		"queue/run.go", `job.Attempt = max(job.Attempt-int(r.forgiven), 1)`, `job.Attempt = max(job.Attempt, 1)`,
		"wrong number", "a job that an operator retries begins anew", "queue TestRetriedJobBeginsWithItsFirstAttempt",
	},
	{
		"queue/gate.go", `question.actual = store.NoCosts(job.Costs)`, `question.actual = ""`,
		"missing write", "a call that the provider refused gives its permits back", "queue TestThrottledCallCostsNothing",
	},
	{
		"queue/gate.go", `case v.outcome == lifecycle.Throttled || v.outcome == lifecycle.Postponed && !v.first || errors.Is(v.err, errParked):`, `case v.outcome == lifecycle.Throttled || errors.Is(v.err, errParked):`,
		"missing condition", "a call that is not wanted yet does not count as the first one", "queue TestParkedIsNotFirst",
	},
	{
		"queue/gate.go", `case v.unsure:`, `case v.unsure && v.outcome == lifecycle.Done:`,
		"missing branch", "Redis records that the end of a call is unknown", "queue TestUnknownStaysUnknown|TestOutcomeOfRepeatUnknown",
	},
	{
		"queue/gate.go", `answer = lifecycle.AnswerUnknown`, `answer = lifecycle.AnswerRetryable`,
		"swapped", "of a call that was cut off nobody knows the end", "queue TestOutcomeOfACallThatWasCutOff|TestStopSettlesWhatItCutsOff|TestCallThatOutlivesItsWorker|TestAnswer",
	},
	{
		"queue/hand.go", `if job.answer == answerGo && job.earliest > now+2*store.Horizon {`, `if job.answer == answerGo && job.earliest > now+2000*store.Horizon {`,
		"clock", "a slot that was given before the clock was set back is given up", "queue TestNoFarSlotIsUsed",
	},
	{
		"queue/hand.go", `if after && (h.answer == answerGo || h.answer == answerSlot) {`, `if after && h.answer == answerSlot {`,
		"missing condition", "a job that an earlier run ended meanwhile is not called", "queue TestEarlierRunEndsTheJob|TestStoppedWorkerIsNoCrash",
	},
	{
		"queue/announce.go", `if heeded[s].After(now) || !s.all && d.stands.Load() {`, `if heeded[s].After(now) || d.stands.Load() {`,
		"missing condition", "who stands by looks because of what is for all", "queue TestStandingBy",
	},
	{
		"queue/lead.go", `if changed { // the leader does not know when the next job is due`, `if !changed {`,
		"swapped", "the leader looks after the round of another worker", "queue TestStandingByTellsOfItsRound",
	},
	{
		"queue/lead.go", `if d.stands.Load() && !d.had {`, `if d.stands.Load() {`,
		"missing condition", "who stands by and has jobs in its hands follows pauses", "queue TestStandingByWithJobs",
	},
	{
		"queue/roles.go", `if who[i].Err() != nil || who[i].Val() == r.worker || who[i].Val() == dispatchedByAll || left[i].Val() <= 0 || left[i].Val() > maxRole {`, `if who[i].Err() != nil || who[i].Val() == r.worker || who[i].Val() == dispatchedByAll || left[i].Val() <= 0 {`,
		"clock", "a lead does not last for longer because the clock was set back", "queue TestLeadEnds",
	},
	{
		"queue/settle.go", `store.AnnounceToAll(ctx, g.redis, g.queue)`, `store.Announce(ctx, g.redis, g.queue)`,
		"wrong call", "workers that stand by do not send what a call of another one paused", "queue TestPauseReachesWhoStandsBy",
	},
	{
		"queue/dispatcher.go", `n := max(min(c.all-taken, most), 0)`, `n := max(min(c.all, most), 0)`,
		"missing condition", "a worker takes no more jobs than it has places, of all its queues", "queue TestRoomOfAllQueues",
	},
	{
		"queue/dispatcher.go", `d.unheard = unheard{cmp.Or(d.unheard.first, run), runs}`, `d.unheard = unheard{run, runs}`,
		"wrong number", "what was handed over in a reply that was lost is handed over again", "queue TestLostReplyOfDispatch",
	},
	{
		"queue/settle.go", `repeated = repeated || !certain(err)`, `repeated = false`,
		"no fence", "a settlement of which the reply was lost is the run's own", "queue TestLostSettlement",
	},
	{
		"queue/settle.go", `answers[i] = settled{mine: flags > 0, follow: flags&2 > 0}`, `answers[i] = settled{mine: true, follow: flags&2 > 0}`,
		"no fence", "a worker that lost its job does not end it", "queue TestLost|TestSettleIsFenced|TestCallThatOutlivesItsWorker|TestStoppedWorkerIsNoCrash",
	},
	{
		"queue/gate.go", `case h.sign == "" && h.who == ofAccount:`, `case h.who == ofAccount:`,
		"missing condition", "what is wrong with the account of a kind holds that kind, and not the queue", "queue TestScopeOfAFailure",
	},
	{
		"queue/recoverer.go", `for ids := range slices.Chunk(r.live.ids(r.queue), 50) {`, `for ids := range slices.Chunk(r.live.ids(r.queue)[:0], 50) {`,
		"missing call", "a call that outlives a worker which stops is no crash", "queue TestCallThatOutlivesItsWorker",
	},
	{
		"queue/recoverer.go", `if len(owners) == 0 {`, `if len(owners) == 0 || try > 1 {`,
		"missing repeat", "a worker that stops gives back a job whose lease it renews at that moment", "queue TestAbandon",
	},
	{
		"queue/recoverer.go", `maps.DeleteFunc(owners, func(_, owner string) bool { return workers.Of(owner) != r.worker })`,
		`maps.DeleteFunc(owners, func(_, owner string) bool { return owner == "" })`,
		"no fence", "a worker that stops takes no job from a worker that lives", "queue TestAbandon",
	},
	{
		"queue/session.go", `heart.begin(alive)`, `heart.info.Started = clocks[s.queues[0].Queue].now()`,
		"wrong order", "a worker is listed when it makes its first call", "queue TestWorkerWithoutQueues",
	},
	{
		"queue/dispatcher.go", `ahead := max(room-d.capacity.all/4, 0)`, `ahead := room`,
		"wrong number", "a quiet tenant finds a place in a worker that busy ones fill", "queue TestPlacesForQuietTenants",
	},
	{
		"queue/dispatcher.go", `return d.pauses.follow(ctx, d.redis, d.queue, a.pauses, d.clock.now())`, `return d.pauses.follow(ctx, d.redis, d.queue, 0, d.clock.now())`,
		"wrong number", "a worker follows pauses that others begin", "queue TestRoundFollowsPauses",
	},
	{
		"queue/internal/chores/chores.go", `c.cursor, err = effective.SweepSlice(ctx, c.redis, c.queue, "", c.cursor, calendars, true)`, `c.cursor, err = effective.SweepSlice(ctx, c.redis, c.queue, "", c.cursor, calendars, false)`,
		"swapped", "a worker mends counts and permits that asynq's tools took away", "queue TestPermitsOfDeletedJobsComeBack|TestCountsOfEndpointsAreMended|TestRecountKnowsANewKind|TestEndedPausesArePurged",
	},
	{
		"queue/outcome.go", `if job.Attempt >= job.MaxAttempts {`, `if job.Attempt > job.MaxAttempts {`,
		"off by one", "a job is tried as often as it says", "queue TestJudge|TestAttemptsAreCounted",
	},
	{
		"queue/outcome.go", `if unknown && !h.repeatUnknown {`, `if unknown && h.repeatUnknown {`,
		"swapped", "a call whose end is not known is repeated only where that is safe", "queue TestJudge|TestOutcomeOfRepeatUnknown",
	},
	{
		"queue/outcome.go", `end, err = lifecycle.Unknown, fmt.Errorf("%w; %w", err, errUnsure)`, `err = fmt.Errorf("%w; %w", err, errUnsure)`,
		"missing write", "a job with a call of unknown end is archived as unknown", "queue TestJudge|TestUnknownStaysUnknown",
	},
	{
		"queue/outcome.go", `return says(err, permanentError.Permanent) || errors.Is(err, asynq.SkipRetry)`, `return says(err, permanentError.Permanent) || err == asynq.SkipRetry`,
		"missing condition", "asynq's SkipRetry ends a job", "queue TestWrappedSkipRetry",
	},
	{
		"queue/outcome.go", `pause = throttledPause`, `pause = 0`,
		"wrong number", "a 429 without a time pauses for a second", "queue TestJudge|TestThrottled",
	},
	{
		"queue/outcome.go", `outcome: lifecycle.Throttled, hold: hold{who: whoOf(says(err, accountError.WholeAccount)), length: min(pause, maxPause), reason: err.Error()},`, `outcome: lifecycle.Throttled, hold: hold{who: whoOf(says(err, accountError.WholeAccount)), length: pause, reason: err.Error()},`,
		"no bound", "no provider pauses a queue for longer than a day", "queue TestJudge|TestThrottled",
	},
	{
		"queue/outcome.go", `wait := min(max(postponed.PostponeUntil().Sub(now), 0), check.MaxAhead)`, `wait := min(max(postponed.PostponeUntil().Sub(now)-time.Minute, 0), check.MaxAhead)`,
		"clock", "a job that is not wanted before a time does not go before it", "queue TestJudgeKeepsTheTime",
	},
	{
		"queue/handle.go", `for i := 1; i < attempt && wait < maxWait; i++ {`, `for i := 0; i < attempt && wait < maxWait; i++ {`,
		"off by one", "the first retry comes within a second", "queue TestBackoff",
	},
	{
		"queue/live.go", `live.cancel(message.Payload)`, `live.has(message.Payload)`,
		"missing call", "asynq's tools cancel a call", "queue TestAsynqCancelsACall",
	},
	{
		"queue/outcome.go", `h.length = min(h.length, maxHold)`, `h.length = max(h.length, maxHold)`,
		"swapped", "no hold lasts longer than its length", "queue TestJudge|TestUsedUpAccount|TestEndpointIsHeldAlone|TestPauseAfter",
	},
	{
		"queue/outcome.go", `if says(err, notCalledError.NotCalled) {`, `if !says(err, notCalledError.NotCalled) {`,
		"swapped", "what was never sent is no answer of the provider's", "queue TestAnswerOf|TestRecord",
	},
	{
		"queue/clock.go", `case most < c.least:`, `case most > c.least:`,
		"swapped", "jitter of the network shifts no slot", "queue TestRedisClock",
	},
	{
		"queue/clock.go", `case !c.known || lowest > min(c.least, c.before):`, `case !c.known || lowest > min(c.least, c.before)+1000*time.Hour:`,
		"clock", "a clock that was set back is followed at once", "queue TestRedisClock|TestTimedClockSteps",
	},
	{
		"queue/suspects.go", `t.alone = s.calls == 0`, `t.alone = true`,
		"no fence", "a suspect is guilty only of deaths beside nothing else", "queue TestSuspectIsNotAlone|TestGuilt",
	},
	{
		"queue/recoverer.go", `if now-r.lastLook > blind {`, `if now-r.lastLook > 1000*blind {`,
		"clock", "a watcher that was stopped takes no job of a worker that lives", "queue TestRecovererCompares",
	},
	{
		"queue/recoverer.go", `if now-s.since > silence {`, `if now-s.since > silence/4 {`,
		"clock", "a worker is silent after two renewals that did not come", "queue TestRecovererCompares",
	},
	{
		"queue/recoverer.go", `dead := slices.DeleteFunc(r.compare(now, boottime.Now()), r.live.has)`, `dead := r.compare(now, boottime.Now())`,
		"no fence", "a worker takes no job from itself", "queue TestOneWatcher",
	},
	{
		"queue/retry.go", `if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {`, `if _, ok := errors.AsType[*net.OpError](err); ok {`,
		"missing condition", "an enqueue of which nobody knows the end is not called failed", "queue TestCertain",
	},
	{
		"internal/coalesce/batcher.go", `a.answer = answers[i]`, `a.answer = answers[len(answers)-1-i]`,
		"wrong key", "callers that share a round trip get their own answers", "internal/coalesce TestBatcher",
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
	{
		"queue/inspect/renewed.go", `case now.Sub(r.until) < late:`, `case now.Sub(r.until) < 0:`,
		"missing condition", "nobody waits while very many lanes are read anew", "queue/inspect TestRenewed",
	},
	{
		"queue/inspect/forecast.go", `since = f.lanes[f.indexOf(subject)].read`, `since = f.now.UnixMicro()`,
		"wrong moment", "jobs that came before their lane was read did not come since", "queue TestInspectorFollowsTheLane",
	},
}
