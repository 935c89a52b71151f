package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	// horizon is how far ahead a slot may be given: jobs held this long in
	// workers keep the rate exact while dispatch is under way. Not longer: a slot
	// that is missed can be moved only while none was given after it, and at a few
	// calls a second each slot counts.
	horizon = 150 * time.Millisecond

	// pickup is how long a worker usually takes to get hold of a released job.
	pickup = 50 * time.Millisecond

	// inHand is the same for a job that the worker holds already: a round trip.
	inHand = 5 * time.Millisecond

	// late is how long after its slot a call may still leave: less than the 5 ms
	// that the promise allows at the receiver, by what the way there may differ.
	late = 3 * time.Millisecond

	redisTimeout = 5 * time.Second

	// usualMisses is how many slots in a row a job may miss and ask for the next at
	// once. One that misses more, whatever the reason, must not ask without end.
	usualMisses = 3
	longestMiss = 500 * time.Millisecond
)

// missPause is how long a job waits that missed so many slots in a row.
func missPause(missed int) time.Duration {
	return min(inHand<<min(missed-usualMisses, 10), longestMiss)
}

// gate stands in front of every handler of one queue: it holds the call until
// its slot, makes it, and settles what came of it. It is an asynq.Handler.
type gate struct {
	queue    string
	redis    redis.UniversalClient
	handlers map[string]*handler
	observer Observer
	logger   *slog.Logger

	clock    *redisClock
	suspects *suspects // of all queues
	runs     *atomic.Int64
	sending  *atomic.Int64 // calls under way, of all queues
	worker   string        // this process, in owner marks
	client   *Client       // for what follows a job
	live     *liveRuns     // what this process runs of the queue
	renewals *renewals     // of its leases
	limits   *limitsCache  // calendars for the scripts
	pauses   *pauses
	starving *starvation
	woke     func()          // called when a settlement let a waiting lane go on
	replans  *replans        // of lanes that a hold kept
	lease    time.Duration   // how long the call of a probe may take
	stopping <-chan struct{} // closed: nothing new is sent
	ended    <-chan struct{} // closed: nothing can be settled any more

	begins  batcher[beginQuestion, beginAnswer]
	settles batcher[settleQuestion, settled]
}

type beginQuestion struct{ id, owner, tenant, kind string }

type beginAnswer struct {
	answer string
	slot
	probe    bool // see Running
	crashes  int64
	forgiven int64         // failed attempts that do not count any more
	first    int64         // when the first run began whose call may have been made, µs
	unsure   bool          // see Running
	accepted time.Duration // when it came into its lane, on the boot clock; 0: not known

	reason ParkReason // of 'park'
	limit  string     // likewise
}

// slot is when a call may leave. It is converted when it is received, since the
// answer that brought it also told the time: both belong to the clock as it was set
// then.
type slot struct {
	earliest, latest time.Duration // on the boot clock; latest 0: no end
	told             int64         // the latest by Redis's clock, µs
}

func (g *gate) slot(earliest, latest int64) slot {
	return slot{g.clock.boot(earliest), g.clock.boot(latest), latest}
}

type settleQuestion struct {
	id, owner, tenant, kind, outcome string

	text   string // the result of 'done', why of 'failed'
	hold   hold
	probe  string // of a probe: "up" when it was answered, else "none"
	actual string // costs that the call had, "unit=n;…"
	record string // see [verdict.record]
}

// needsLimits reports whether buckets are touched.
func (q settleQuestion) needsLimits() bool {
	return q.hold.length > 0 || q.actual != "" || q.probe != ""
}

// why is the hold as settle.lua reads it.
func (q settleQuestion) why() string {
	text := q.hold.who + q.hold.sign + " " + q.hold.reason
	if q.probe != "" {
		text = "?" + q.probe + " " + text
	}
	return text
}

func (job Running) settled(owner, outcome string) settleQuestion {
	q := settleQuestion{id: job.ID, owner: owner, tenant: job.tenant(), kind: job.kind(), outcome: outcome}
	if job.Probe && outcome != "alone" && outcome != "beside" {
		q.probe = "none"
	}
	return q
}

// settled is whether the job was still this worker's, and whether it ended and
// others are to follow it.
type settled struct{ mine, follow bool }

// What of a queue is to be asked anew, because a hold ended, is added to a settlement's
// answer.
const askTenant, askAll = 4, 8

func (g *gate) init() *gate {
	g.begins.run, g.begins.gap = g.sendBegin, shareWithin
	g.settles.run, g.settles.gap = g.sendSettle, shareWithin
	return g
}

// ProcessTask is what asynq calls. Its errors tell asynq where the task goes.
func (g *gate) ProcessTask(ctx context.Context, task *asynq.Task) error {
	job := readRunning(ctx, task)
	owner := g.worker + ":" + strconv.FormatInt(g.runs.Add(1), 36)
	v := g.run(ctx, task, job, owner)
	g.observer.Finished(g.queue, g.known(job.Kind), v.outcome)
	if again, ok := errors.AsType[*retryError](v.err); ok {
		again.skew = g.clock.skew()
	}
	return v.err
}

// run processes a job once no earlier run of it is left in this process.
func (g *gate) run(ctx context.Context, task *asynq.Task, job Running, owner string) verdict {
	run, leave, err := g.live.enter(ctx, job.ID, g.stopping)
	if err != nil {
		return g.park(job, ParkedByStop, "", 0)
	}
	defer leave()
	ctx, end := g.live.detach(ctx, run)
	defer end()
	return g.process(ctx, task, job, owner)
}

func parked() verdict { return verdict{outcome: Parked, err: &retryError{err: errParked}} }

// park sends a job back to its lane, and tells the observer why.
func (g *gate) park(job Running, reason ParkReason, limit string, asked time.Duration) verdict {
	g.observer.Gated(g.queue, Gating{Kind: g.known(job.Kind), Decision: "parked", Reason: reason, Limit: limit, Asked: asked})
	return parked()
}

func (g *gate) process(ctx context.Context, task *asynq.Task, job Running, owner string) verdict {
	began, asked := bootTime(), time.Now()
	slot, err := g.begin(ctx, job, owner)
	took := time.Since(asked)
	if err != nil {
		return g.park(job, ParkedByStop, "", took) // before anything was known of the job
	}
	if slot.answer == "crashed" && !g.certain(ctx, job) {
		slot.answer = "slot" // it runs alone once more
	}
	switch slot.answer {
	case "gone":
		return lost()
	case "done", "failed":
		return g.putAway(ctx, job)
	case "crashed":
		return g.finish(ctx, job, owner, archive(Crashed, errCrashed))
	}
	job.Attempt, job.First, job.unsure = max(job.Attempt-int(slot.forgiven), 1), time.UnixMicro(slot.first), slot.unsure
	job.Probe = slot.probe
	handler := g.handlers[job.Kind]
	if handler == nil {
		// Any worker is handed what only has to be put away.
		if job.expired(g.clock.now()) {
			return g.finish(ctx, job, owner, expire(job))
		}
		return g.keep(job, owner, ParkedByKind)
	}
	var turn *turn // of a suspect
	if slot.crashes >= suspicious {
		if turn = g.takeTurn(ctx, job, owner); turn == nil {
			return g.postpone(ctx, job, owner)
		}
		defer g.suspects.pass()
	}
	marked, accepted := slot.crashes == 0, slot.accepted
	held := time.Duration(0)
	runnable := time.Duration(0) // when its first slot came; 0: it had none yet
	granted := began             // when Redis last said that the job is this worker's
	missed := 0                  // slots in a row
	for {
		// What nobody wants any more needs no slot, and no pause holds it.
		if job.expired(g.clock.now()) {
			return g.finish(ctx, job, owner, expire(job))
		}
		if slot.answer == "slot" {
			granted, asked = bootTime(), time.Now()
			slot, err = g.newSlot(ctx, job, owner)
			took = time.Since(asked)
			switch {
			case err != nil:
				return g.giveUp(ctx, job, owner)
			case slot.answer == "gone":
				return g.endLate(job, owner, verdict{})
			case slot.answer == "park" && job.lastOfAsynq:
				// asynq would archive what is parked: it is held until its slot is near.
				if g.pause(ctx, slowestDispatch) != nil {
					return g.giveUp(ctx, job, owner)
				}
				slot.answer = "slot"
				continue
			case slot.answer == "park":
				return g.finish(ctx, job, owner, g.park(job, slot.reason, slot.limit, took))
			}
		}
		if runnable == 0 && slot.earliest > 0 {
			runnable = slot.earliest
		}
		job.Probe = job.Probe || slot.probe
		holds := bootTime()
		if !marked {
			if !g.hold(ctx, slot.earliest-inHand) {
				return g.giveUp(ctx, job, owner)
			}
			if !g.mark(job, owner, turn) {
				return g.endLate(job, owner, verdict{})
			}
			marked = true
		}
		if !g.hold(ctx, slot.earliest) {
			return g.giveUp(ctx, job, owner)
		}
		held += bootTime() - holds
		if job.expired(g.clock.now()) {
			return g.finish(ctx, job, owner, expire(job))
		}
		leave := func() {}
		if turn == nil {
			leave = g.suspects.enter()
		}
		paused := g.paused(job)
		if g.onTime(slot.slot) && g.renewals.cover(granted) && !paused {
			g.observer.Gated(g.queue, g.sent(job, took, held, runnable, began, accepted))
			job.Held = held
			v := g.call(ctx, handler, task, job)
			leave()
			return g.finish(ctx, job, owner, v)
		}
		leave()
		if paused {
			runnable = 0 // nobody was late
		}
		g.observer.Gated(g.queue, Gating{Kind: job.Kind, Decision: "missed", Asked: took})
		slot.answer = "slot"
		if missed++; missed > usualMisses && g.pause(ctx, missPause(missed)) != nil {
			return g.giveUp(ctx, job, owner)
		}
	}
}

// sent is what the observer is told of a call that leaves now.
func (g *gate) sent(job Running, asked, held, runnable, began, accepted time.Duration) Gating {
	now := bootTime()
	if runnable == 0 {
		runnable = began // no limit holds it, and nothing gave it a slot
	}
	if runnable <= began {
		runnable = g.starving.since(accepted, runnable)
	}
	told := Gating{Kind: job.Kind, Decision: "sent", Asked: asked, Held: held, Runnable: max(now-runnable, 0)}
	if job.Attempt == 1 && accepted > 0 {
		told.Waited = max(now-accepted, 0)
	}
	return told
}

// known is a kind as the observer is told it: anybody may enqueue jobs of endless
// kinds, and no metric is to have as many series.
func (g *gate) known(kind string) string {
	if g.handlers[kind] == nil {
		return ""
	}
	return kind
}

// begin retries until Redis answers: nothing can be done with a job before.
// The error says that the worker stops.
func (g *gate) begin(ctx context.Context, job Running, owner string) (beginAnswer, error) {
	for {
		answer, err := g.begins.do(beginQuestion{job.ID, owner, job.tenant(), job.kind()})
		if err == nil {
			return answer, nil
		}
		if err := g.pauseAfter(ctx, "begin", job, err); err != nil {
			return beginAnswer{}, err
		}
	}
}

// newSlot asks for a slot near now. A lost reply may waste a slot; it cannot
// make two calls of one.
func (g *gate) newSlot(ctx context.Context, job Running, owner string) (beginAnswer, error) {
	for {
		slot, err := g.askSlot(ctx, job, owner)
		if err == nil {
			return slot, nil
		}
		if err := g.pauseAfter(ctx, "slot", job, err); err != nil {
			return beginAnswer{}, err
		}
	}
}

func (g *gate) askSlot(ctx context.Context, job Running, owner string) (beginAnswer, error) {
	windows, err := g.limits.windows(ctx)
	if err != nil {
		return beginAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	sent := bootTime()
	reply, err := slotScript.Run(ctx, g.redis, scriptKeys(g.queue), g.queue, (2 * horizon).Microseconds(), inHand.Microseconds(), windows,
		job.ID, owner, job.tenant(), job.attributes, job.kind(), job.Cost, job.costs, g.lease.Microseconds())
	if err != nil {
		g.limits.look(err)
		return beginAnswer{}, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) < 4 {
		return beginAnswer{}, fmt.Errorf("unexpected reply %v", reply)
	}
	n, err := numbers(values[1:4], 3)
	if err != nil {
		return beginAnswer{}, err
	}
	g.clock.observe(n[2], sent, bootTime())
	slot := beginAnswer{answer: fmt.Sprint(values[0]), slot: g.slot(n[0], n[1])}
	switch len(values) {
	case 5:
		slot.probe = fmt.Sprint(values[4]) == "1"
	case 6:
		slot.reason, slot.limit = ParkReason(fmt.Sprint(values[4])), fmt.Sprint(values[5])
	}
	return slot, nil
}

var errStopping = errors.New("the worker stops")

// pauseAfter waits a little after an error of Redis, or says that there is no time.
func (g *gate) pauseAfter(ctx context.Context, what string, job Running, err error) error {
	g.logger.Warn("redis does not answer", "step", what, logQueue, g.queue, logJob, job.ID, logError, err)
	return g.pause(ctx, 200*time.Millisecond)
}

// pause waits, or says why there is no time.
func (g *gate) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.stopping:
		return errStopping
	case <-time.After(d):
		return nil
	}
}

// hold waits until the earliest moment of a slot; false: the worker stops, or
// lost its lease, and the call must not be made.
func (g *gate) hold(ctx context.Context, earliest time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-g.stopping:
		return false
	default:
	}
	wait := earliest - bootTime()
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.stopping:
		return false
	case <-ctx.Done():
		return false
	}
}

// onTime reports whether a call that left now would still be in its slot. The
// boot clock decides: a process that was stopped sends nothing stale when it wakes.
// Where Redis's clock was set forward since, the slot is over by that, and its limits
// give others from then on.
func (g *gate) onTime(s slot) bool {
	return s.latest == 0 || bootTime() <= min(s.latest, g.clock.boot(s.told))+late
}

func (g *gate) paused(job Running) bool {
	now := g.clock.now()
	if g.pauses.holds(now, pauseScopes(job.tenant(), job.kind())...) {
		return true
	}
	// A probe goes because of the holds that keep the others.
	return !job.Probe && g.pauses.holds(now, holdScopes(job.tenant(), job.kind(), endpointIn(job.attributes))...)
}

// mark notes that a job is about to be called whose worker died before, so that its
// death can be told from those that it only saw. False: the job is another's.
func (g *gate) mark(job Running, owner string, turn *turn) bool {
	mark := func(alone bool) bool {
		outcome := "beside"
		if alone {
			outcome = "alone"
		}
		return g.settle(job.settled(owner, outcome)).mine
	}
	if turn == nil {
		return mark(false)
	}
	return g.suspects.mark(turn, mark)
}

// takeTurn waits until a suspect may be called; nil: its turn did not come.
func (g *gate) takeTurn(ctx context.Context, job Running, owner string) *turn {
	for {
		waits, cancel := context.WithTimeout(ctx, turnWait)
		turn := g.suspects.take(waits, func() { g.settle(job.settled(owner, "beside")) })
		cancel()
		// asynq would archive its own task on the last retry: that one waits here.
		if turn != nil || !job.lastOfAsynq || g.pause(ctx, slowestDispatch) != nil {
			return turn
		}
	}
}

// postpone sends a suspect back for a moment, because it is not its turn.
func (g *gate) postpone(ctx context.Context, job Running, owner string) verdict {
	if !g.hold(ctx, 0) {
		return g.giveUp(ctx, job, owner)
	}
	v := g.keep(job, owner, ParkedBySuspicion)
	if again, ok := errors.AsType[*retryError](v.err); ok {
		again.after = time.Second
	}
	return v
}

// call makes the call and judges its answer.
func (g *gate) call(ctx context.Context, h *handler, task *asynq.Task, job Running) (v verdict) {
	current, result := &call{job: job, repeatUnknown: h.repeatUnknown}, &callResult{}
	callCtx, cancel := context.WithTimeout(withResult(context.WithValue(ctx, callKey{}, current), result), h.timeout)
	defer cancel()
	called, began := g.clock.now(), time.Now()
	g.sending.Add(1)
	err := h.protected(callCtx, task.Payload())
	g.sending.Add(-1)
	took, answer := time.Since(began), answerOf(err)
	cutOff := canceled(ctx, err)
	if cutOff {
		answer = AnswerUnknown
	}
	if answer != "" {
		g.observer.Called(g.queue, Called{Kind: job.Kind, Attempt: job.Attempt, Took: took, Answer: answer})
	}
	defer func() { v.actual, v.answer, v.called, v.took = current.actualCosts(), answer, called, took }()
	if cutOff {
		return verdict{outcome: Parked, unsure: true, err: &retryError{err: fmt.Errorf("cut off: %w", err)}}
	}
	v = judge(err, job, h.repeatUnknown, time.Now())
	if v.hold.who == "" {
		v.hold = holdOf(err) // it failed, and others would
	}
	if after := current.pauseAfter(); after.length > v.hold.length && v.hold.sign == "" {
		v.hold = after
	}
	v.result = result.take()
	if err != nil {
		g.logger.Info("call failed", logQueue, g.queue, logKind, job.Kind, logJob, job.ID, logTenant, job.Tenant,
			logAttempt, job.Attempt, logOutcome, v.outcome, logError, err)
	}
	return v
}

// finish settles a job whose slot is spent, then tells asynq.
func (g *gate) finish(ctx context.Context, job Running, owner string, v verdict) verdict {
	question := job.settled(owner, "free")
	question.hold, question.actual, question.record = v.hold, v.actual, v.record(job)
	if job.Probe && v.answer != "" && !errors.Is(v.err, context.Canceled) {
		question.probe = "up"
	}
	switch {
	case v.outcome == Done:
		question.outcome, question.text = "done", string(v.result)
	case v.outcome.failed():
		question.outcome, question.text = "failed", string(v.outcome)+" "+v.err.Error()
	case v.unsure:
		question.outcome = "unsure"
	case v.outcome == Throttled || v.outcome == Postponed && !v.first || errors.Is(v.err, errParked):
		question.outcome = "refused"
	}
	if v.actual == "" && (v.outcome == Throttled || v.outcome == Postponed || v.outcome == Expired) {
		// The provider did nothing for it.
		question.actual = nothing(job.Costs)
	}
	if v.hold.length > 0 {
		question.hold.reason = printable(v.hold.reason, mostWords)
		g.pauses.add(job.scope(v.hold), g.clock.now(), v.hold.length)
	}
	switch settled := g.settle(question); {
	case !settled.mine:
		return g.endLate(job, owner, v)
	case settled.follow:
		return g.putAway(ctx, job)
	}
	return v
}

// scope is that of a pause that the job brought about.
func (job Running) scope(h hold) string {
	endpoint := endpointIn(job.attributes)
	switch {
	case h.sign == "" && h.who == ofAccount:
		return wholeQueue
	case h.sign == "":
		return job.tenant()
	case h.who == ofAccount:
		return accountScope(job.kind())
	case h.who == ofEndpoint && endpoint != "":
		return endpointScope(job.tenant(), endpoint)
	}
	return ownAccountScope(job.kind(), job.tenant())
}

// giveUp ends a job that was not called because the worker stops.
func (g *gate) giveUp(ctx context.Context, job Running, owner string) verdict {
	v := g.keep(job, owner, ParkedByStop)
	if job.lastOfAsynq {
		<-ctx.Done() // asynq would archive it; at its end the worker gives it back instead
	}
	return v
}

// keep gives a job back with its slot, for another worker to use.
func (g *gate) keep(job Running, owner string, reason ParkReason) verdict {
	if !g.settle(job.settled(owner, "keep")).mine {
		return g.endLate(job, owner, verdict{})
	}
	return g.park(job, reason, "", 0)
}

// settle keeps on until Redis has it: a call that was made must never be
// forgotten, and no new work is taken meanwhile, as the job keeps its place in
// the worker.
func (g *gate) settle(q settleQuestion) settled {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		answer, err := g.settles.do(q)
		if err == nil {
			return answer
		}
		g.logger.Warn("redis does not take a settlement", logQueue, g.queue, logJob, q.id, "outcome", q.outcome, logError, err)
		select {
		case <-g.ended:
			return settled{mine: true} // nobody is left to tell; the next worker recovers the job
		case <-time.After(wait):
		}
	}
}

func (g *gate) sendBegin(questions []beginQuestion) ([]beginAnswer, error) {
	const words, answer = 4, 8
	args := make([]any, 1, 1+words*len(questions))
	args[0] = g.queue
	for _, q := range questions {
		args = append(args, q.id, q.owner, q.tenant, q.kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	sent := bootTime()
	reply, err := beginScript.Run(ctx, g.redis, scriptKeys(g.queue), args...)
	if err != nil {
		return nil, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != answer*len(questions)+1 {
		return nil, fmt.Errorf("unexpected reply %v", reply)
	}
	now, err := numbers(values[len(values)-1:], 1)
	if err != nil {
		return nil, err
	}
	came := bootTime()
	g.clock.observe(now[0], sent, came)
	answers := make([]beginAnswer, len(questions))
	for i := range answers {
		at := answer * i
		n, err := numbers(values[at+1:at+answer], answer-1)
		if err != nil {
			return nil, err
		}
		answers[i] = beginAnswer{answer: fmt.Sprint(values[at]), crashes: n[2], forgiven: n[3], first: n[4], unsure: n[5]&1 > 0, probe: n[5]&2 > 0, accepted: g.clock.boot(n[6])}
		switch given := g.slot(n[0], n[1]); {
		case answers[i].answer != "go":
		case given.earliest > came+2*horizon:
			answers[i].answer = "slot" // it was given before Redis's clock was set back
		default:
			answers[i].slot = given
		}
	}
	return answers, nil
}

func (g *gate) sendSettle(questions []settleQuestion) ([]settled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	windows := "none"
	if slices.ContainsFunc(questions, settleQuestion.needsLimits) {
		var err error
		if windows, err = g.limits.windows(ctx); err != nil {
			return nil, err
		}
	}
	const words = 10
	args := make([]any, 3, 3+words*len(questions))
	args[0], args[1], args[2] = g.queue, windows, pickup.Microseconds()
	for _, q := range questions {
		args = append(args, q.id, q.owner, q.tenant, q.kind, q.outcome, q.hold.length.Microseconds(), q.why(), q.actual, q.text, q.record)
	}
	reply, err := settleScript.Run(ctx, g.redis, scriptKeys(g.queue), args...)
	if err != nil {
		g.limits.look(err)
		return nil, err
	}
	n, err := numbers(reply, len(questions)+1)
	if err != nil {
		return nil, err
	}
	answers := make([]settled, len(questions))
	for i := range answers {
		answers[i] = settled{mine: n[i] > 0, follow: n[i]&2 > 0}
		switch {
		case n[i]&askAll > 0:
			g.replans.add("")
		case n[i]&askTenant > 0:
			g.replans.add(unescape(questions[i].tenant))
		}
	}
	if n[len(questions)] > 0 {
		g.woke()
	}
	if slices.ContainsFunc(questions, func(q settleQuestion) bool { return q.hold.length > 0 }) {
		announce(ctx, g.redis, g.queue)
	}
	return answers, nil
}
