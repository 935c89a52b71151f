package main

// conformanceMutants break the counting of calls, and what explains that a limit was exceeded.
var conformanceMutants = []mutant{
	{
		"queue/internal/conformance/window.go", `return at - s.Length + 1`, `return at - s.Length`,
		"off by one", "a window has its length", "queue/internal/conformance TestRule",
	},
	{
		"queue/internal/conformance/window.go", `missed = from(calls, max(w.newest()-Late, w.since))`, `missed = from(calls, max(w.newest(), w.since))`,
		"missing condition", "late calls are counted in their place", "queue/internal/conformance TestWindow",
	},
	{
		"queue/internal/conformance/window.go", `due := max(w.newest()-Late, w.since) // no call that comes before is counted`, `due := w.newest()`,
		"missing condition", "what late calls are counted with stays", "queue/internal/conformance TestWindow",
	},
	{
		"queue/internal/conformance/window.go", `w.calls[joined-1].N += c.N`, `w.calls[joined-1].N++`,
		"rounding", "calls that are joined keep what they took", "queue/internal/conformance TestWindow",
	},
	{
		"queue/internal/conformance/window.go", `first := max(w.insert(calls), from(w.calls, w.since))`, `first := w.insert(calls)`,
		"missing condition", "no window of joined calls counts too much", "queue/internal/conformance TestWindow",
	},
	{
		"queue/internal/conformance/window.go", `tooMany := len(w.calls) > most`, `tooMany := false`,
		"missing condition", "what is kept of a window has a bound", "queue/internal/conformance TestManyCalls",
	},
	{
		"queue/internal/conformance/window.go", `return slices.Insert(slices.Clone(w.calls), 0, Call{At: w.since})`, `return w.calls`,
		"missing write", "who counts next knows which calls are joined", "queue/internal/conformance TestWindow",
	},
	{
		"queue/internal/conformance/hours.go", `if n > h.Most || n == h.Most && allowed < h.Allowed {`, `if n > h.Most && h.Over == nil {`,
		"missing condition", "an hour has its most", "queue/internal/conformance TestHoursAreKept",
	},
	{
		"queue/internal/conformance/hours.go", `if over := n - allowed; over > 0 && (h.Over == nil || over > h.Over.excess() || over == h.Over.excess() && at < h.Over.At) {`, `if over := n - allowed; over > 1 && (h.Over == nil || over > h.Over.excess() || over == h.Over.excess() && at < h.Over.At) {`,
		"off by one", "a limit that is exceeded by one is exceeded", "queue/internal/conformance TestHoursAreKept",
	},
	{
		"queue/internal/conformance/kept.go", `if since&1 == 1 {`, `if since&3 == 1 {`,
		"rounding", "what calls took is kept", "queue/internal/conformance TestKeptCalls",
	},
	{
		"queue/internal/conformance/page.go", `for len(p.all) > maxPages || len(p.all) > 1 && p.all[1] < now-keepsDay {`, `for len(p.all) > 1 && p.all[1] < now-keepsDay {`,
		"missing condition", "what is kept of calls has a bound", "queue/internal/conformance TestPagesAreBounded",
	},
	{
		"queue/internal/store/conformance.lua", `plan('EXPIRE', pages .. ':' .. bucket, more)`, ``,
		"missing write", "calls are kept for a day", "queue/internal/conformance TestArrivals",
	},
	{
		"queue/internal/store/conformance.lua", `plan('DEL', pages .. ':' .. bucket)`, ``,
		"missing write", "what is older than a day goes", "queue/internal/conformance TestArrivals",
	},
	{
		"queue/internal/conformance/arrivals.go", `p.size = pageBytes // calls go to a new one`, `p.left = 0`,
		"missing condition", "calls are not added to a page that is damaged", "queue/internal/conformance TestArrivals",
	},
	{
		"queue/running.go", `if job.waited > 0 {`, `if job.Attempt > 1 {`,
		"swapped branch", "how long a job waited is known", "queue TestConformance",
	},
	{
		"queue/internal/replay/replay.go", `if l.Tenant.finish = l.start + l.forward(); owed {`, `if l.Tenant.finish = l.start; owed {`,
		"missing write", "a replay is fair by weight", "queue/internal/replay TestReplayIsExact",
	},
	{
		"queue/internal/replay/replay.go", `if first := b.waiting.first(q.now); first != nil && first.ahead(l, q.now) || b.Earliest(q.now, l.need(i)) > q.now {`, `if b.Earliest(q.now, l.need(i)) > q.now {`,
		"missing condition", "no job of a replay overtakes those that waited before it", "queue/internal/replay TestLargeJobsAreNotOvertaken",
	},
	{
		"queue/internal/replay/replay.go", `if q.now = comes; happens-q.Ahead < comes-moment {`, `if q.now = comes; happens < comes-moment {`,
		"missing condition", "a slot of a replay that is given before a job comes stays with the one that has it", "queue/internal/replay TestReplayIsExact",
	},
	{
		"queue/inspect/trialrun.go", `q := &replay.Queue{Ahead: store.Horizon.Seconds()}`, `q := &replay.Queue{}`,
		"missing write", "a trial knows how far ahead slots are given", "queue/inspect TestTry",
	},
	{
		"queue/internal/fluid/single.go", `t = max(t, s.last)`, `_ = s.last`,
		"no fence", "a slot of a replay comes after those that are given", "queue/internal/replay TestReplayIsExact",
	},
	{
		"queue/internal/replay/replay.go", `if n < 0 { // the first that waits may go sooner`, `if false {`,
		"missing condition", "what is given back lets a job of a replay go", "queue/inspect TestTry",
	},
	{
		"queue/internal/fluid/single.go", `t = max(t, ahead.log[i].at+s.Period)`, `t = max(t, ahead.log[i].at+s.Period/2)`,
		"rounding", "a replay of a sliding window log is exact", "queue/internal/replay TestReplayIsExact",
	},
	{
		"queue/inspect/trial.go", `proposed.Resolve(q.Limits, tenant)`, `_ = tenant`,
		"missing condition", "overrides stay in force when limits are tried", "queue/inspect TestTry",
	},
	{
		"queue/internal/store/conformance.lua", `if (read('HGET', counted, '*') or '0') ~= ARGV[4] then return 0 end`, ``,
		"no fence", "two workers count each call once", "queue/internal/conformance TestAuditorsTakeTurns",
	},
	{
		"queue/internal/store/conformance.lua", `if what == 'sent' then try('APPEND', key, text) else plan('SET', key, text, 'PX', more) end`, `plan('SET', key, text)`,
		"missing write", "who counts next knows the calls before", "queue/internal/conformance TestAuditorsTakeTurns",
	},
	{
		"queue/internal/store/calls.lua", `for i = known and 2 or 1, #entries do`, `for i = 1, #entries do`,
		"off by one", "no call is counted twice", "queue/internal/conformance TestAuditorsTakeTurns",
	},
	{
		"queue/internal/store/calls.lua", `local gap, missed = not known and last ~= '0-0', 0`, `local gap, missed = false, 0`,
		"missing condition", "events that are gone are said to be missing", "queue/internal/conformance TestMissedCalls",
	},
	{
		"queue/internal/conformance/call.go", `if limit.For == limits.Jobs && c.direct || limit.For == limits.Direct && !c.direct {`, `if limit.For == limits.Jobs && c.direct {`,
		"missing condition", "a limit counts the calls of its side", "queue/internal/conformance TestAuditorsTakeTurns",
	},
	{
		"queue/internal/conformance/auditor.go", `for _, at := range []int64{c.At, c.At + Late} { // and of later calls whose windows it is in`, `for _, at := range []int64{c.At} {`,
		"missing condition", "a call that is known after midnight counts on both days", "queue/internal/conformance TestMidnight",
	},
	{
		"queue/internal/store/record.lua", `if not understood or not limits.conformance then return end`, `if not understood then return end`,
		"missing condition", "a queue that does not count calls keeps nothing for it", "queue TestNothingIsCountedUnlessAsked",
	},
	{
		"queue/internal/store/record.lua", `local understood, limits = pcall(config)`, `local understood, limits = true, config()`,
		"missing condition", "damaged limits keep no job with a worker that died", "queue TestRecoveryBesideDamagedLimits",
	},
	{
		"queue/internal/conformance/bucket.go", `case at < b.since:`, `case false:`,
		"missing condition", "a window is compared with the limit of its time", "queue/internal/conformance TestLimitThatWasRaised",
	},
	{
		"queue/internal/conformance/bucket.go", `if lasts := b.rule.lasts(); b.grown > 2*b.size+256 || now+lasts > b.lasts {`, `if lasts := b.rule.lasts(); b.grown > 2*b.size+256 || b.lasts == 0 {`,
		"missing write", "calls that expired are kept again", "queue/internal/conformance TestKeptCallsThatExpired",
	},
	{
		"queue/internal/store/recover.lua", `if earliest > 0 and earliest <= now and (task[2] or '') ~= '' then`, `if false then`,
		"missing write", "a run whose worker died counts", "queue TestLostRunCounts",
	},
	{
		"queue/gate.go", `taken, attributes = job.taken(question.actual), job.attributesIn(names)`, `taken, attributes = job.taken(""), job.attributesIn(names)`,
		"rounding", "what was used counts, not what was expected", "queue TestConformance$",
	},
	{
		"queue/operate/causes.go", `if own && e.Tenant != "" && e.Tenant != tenant {`, `if own && tenant == "" {`,
		"missing condition", "what happened to others explains nothing", "queue/operate TestCauses$",
	},
	{
		"queue/operate/causes.go", `isNew := e.Before[name] == "" && e.After[name] != ""`, `isNew := name == ""`,
		"missing condition", "a limit that is new was not lowered", "queue/operate TestCauses$",
	},
	{
		"queue/operate/causes.go", `return err == nil && failed == nil && less <= more`, `return err == nil && failed == nil && less == more`,
		"missing condition", "a limit that was raised explains no excess", "queue/operate TestCauses$",
	},
	{
		"queue/operate/causes.go", `case within(e.Until) && !c.replaced(i) && c.replaces(i): // what was before it did not come back`, `case false:`,
		"missing condition", "the end of an override explains an excess", "queue/operate TestCauses$",
	},
	{
		"queue/operate/causes.go", `return c.groups[tenant] == group || slices.ContainsFunc(c.entries[:i], func(e AuditEntry) bool { return e.Before[tenant+": in group"] == group })`, `return i >= 0`,
		"missing condition", "jobs of other groups explain nothing", "queue/operate TestRunsOfOthers",
	},
	{
		"queue/operate/causes.go", `if len(all) == 0 && began.Add(-runTakes).Before(c.from) {`, `if false {`,
		"missing condition", "a cause that the audit may have dropped is not denied", "queue/operate TestCausesBeforeTheAudit",
	},
}
