package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

const (

	// pickup is the usual time from a slot given by dispatch to the call: a round trip,
	// and the start of the run.
	pickup = 10 * time.Millisecond

	// inHand is the same for a job that the worker already holds, at first: see slotLasts.
	inHand = 5 * time.Millisecond

	// late is how long after its slot a call may still leave. The guarantee allows 5 ms
	// at the receiver; the rest is for differences in network delay.
	late = 3 * time.Millisecond

	// freeMisses is how many slots in a row a job may miss and still ask for the next at
	// once. After that it pauses, up to maxMiss, so that it does not ask all the time.
	freeMisses = 3
	maxMiss    = 500 * time.Millisecond
)

// missPause returns how long a job waits after it missed this many slots in a row.
func missPause(missed int) time.Duration {
	return min(inHand<<min(missed-freeMisses, 10), maxMiss)
}

// slotLasts returns for how long a job that the worker holds may leave from the moment at which limits admit it. It grows
// with each slot in a row that was over when it came: the answers of this Redis take longer.
func slotLasts(missed int) time.Duration {
	return min(inHand<<min(missed, 10), store.Horizon)
}

// gate runs the jobs of one queue: it holds each call until its slot, makes the call, and
// settles its outcome in Redis.
type gate struct {
	queue    string           // the partition
	of       partition.Layout // its queue
	redis    redis.UniversalClient
	handlers map[string]*handler
	observer Observer
	logger   *slog.Logger

	clock    *redisClock
	clocks   map[string]*redisClock // of all partitions
	capacity *capacity
	suspects *suspects            // of all queues
	sending  *atomic.Int64        // calls in flight, of all queues
	client   *Client              // enqueues follow-ups
	keys     *encryption.Keys     // of payloads and results
	live     *liveRuns            // runs of the queue's jobs in this process
	renewals *renewals            // of the leases
	limits   *effective.Calendars // calendars for the scripts
	pauses   *pauses
	starving *starvation
	onWake   func()          // called when a settlement let a waiting lane go on
	replans  *replans        // lanes to plan again after a hold
	lease    time.Duration   // maximum time of a probe's call
	base     context.Context // of all runs; done when calls are cut off
	running  *sync.WaitGroup // the runs of all queues
	stopping <-chan struct{} // closed when no new call may be sent
	ended    <-chan struct{} // closed when nothing can be settled any more

	settles, ends coalesce.Batcher[settleQuestion, settled] // see mayWait
}

// answer is the state of a job when it is handed over (hand.lua), or the answer to a request
// for a slot (slot.lua).
type answer string

const (
	answerGo      answer = "go"      // the job may go at its slot
	answerSlot    answer = "slot"    // the worker must ask for a slot
	answerDone    answer = "done"    // the call has succeeded; enqueue the follow-ups
	answerFailed  answer = "failed"  // the job has failed for good; enqueue the follow-ups
	answerCrashed answer = "crashed" // the job's workers died several times during its call
	answerPark    answer = "park"    // the job cannot go now
	answerGone    answer = "gone"    // another worker has the job
	answerLate    answer = "late"    // nobody waits for the answer any more
)

// grant is what hand.lua or slot.lua returns about a job of this worker.
type grant struct {
	answer answer
	slot
	probe    bool          // see [Running]
	permits  bool          // see [Running]
	crashes  int64         // deaths of workers that held the job
	forgiven int64         // failed attempts that no longer count
	first    int64         // start of the first run whose call may have been made, Unix µs
	unsure   bool          // see [Running]
	accepted time.Duration // when it came into its lane, on the boot clock; 0: not known

	reason ParkReason // of answerPark
	limit  string     // of answerPark: the limit that holds the job
}

// flags sets the fields that scripts return as bits of one number.
func (g *grant) flags(n int64) { g.unsure, g.probe, g.permits = n&1 > 0, n&2 > 0, n&4 > 0 }

// slot is the time in which a call may leave. It is converted to the boot clock when it is
// received, because the same reply has Redis's time: both are from one setting of Redis's
// clock.
type slot struct {
	earliest, latest time.Duration // on the boot clock; latest 0: no end
	latestMicros     int64         // latest on Redis's clock, Unix µs
}

func (c *redisClock) slot(earliest, latest int64) slot {
	return slot{c.boot(earliest), c.boot(latest), latest}
}

func (g *gate) init() *gate {
	g.settles.Gap, g.ends.Gap = settleGap, settleGap
	g.ends.Linger, g.ends.Enough = endLinger, fullBatch
	for _, b := range []*coalesce.Batcher[settleQuestion, settled]{&g.settles, &g.ends} {
		b.Run, b.Size = g.sendSettle, func(q settleQuestion) int { return len(q.message) + len(q.text) }
	}
	return g
}

func parked() verdict { return verdict{outcome: lifecycle.Parked, err: &retryError{err: errParked}} }

// park returns the verdict that sends a job back to its lane, and reports the reason to the
// observer.
func (g *gate) park(job *Running, reason ParkReason, limit string, asked time.Duration) verdict {
	g.observer.Gated(g.of.Queue, Gating{Kind: g.known(job.Kind), Decision: "parked", Reason: reason, Limit: limit, Asked: asked})
	return parked()
}

// known returns the kind to report to the observer: "" for a kind without a handler.
// Producers can enqueue any number of kinds, and each would be a series of its own.
func (g *gate) known(kind string) string {
	if g.handlers[kind] == nil {
		return ""
	}
	return kind
}

// newSlot asks for a slot near now until Redis answers. A lost reply may waste a slot, but
// never leads to two calls. A request that arrives after its time does nothing.
// It returns false if the run ends or the worker stops before.
func (g *gate) newSlot(ctx context.Context, job *Running, missed int) (grant, bool) {
	for {
		slot, err := g.askSlot(ctx, job, missed)
		if err == nil {
			return slot, true
		}
		if !g.pauseAfter(ctx, "slot", job, err) {
			return grant{}, false
		}
	}
}

func (g *gate) askSlot(ctx context.Context, job *Running, missed int) (grant, error) {
	var reply any
	var sent time.Duration
	err := g.limits.Run(ctx, func(calendars string) (err error) {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		sent = boottime.Now()
		reply, err = store.SlotScript.Run(ctx, g.redis, store.ScriptKeys(g.queue), g.queue, (2 * store.Horizon).Microseconds(), slotLasts(missed).Microseconds(), calendars,
			job.ID, job.owner, job.tenant(), job.attributes, job.kind(), job.Cost, job.costs, g.lease.Microseconds(), g.clock.now().Add(store.Timeout).UnixMicro())
		return err
	})
	if err != nil {
		return grant{}, err
	}
	read := store.Read(reply)
	slot := grant{answer: answer(read.Text())}
	earliest, latest, now := read.Int(), read.Int(), read.Int()
	switch read.Len() {
	case 1:
		slot.flags(read.Int())
	case 2:
		slot.reason, slot.limit = ParkReason(read.Text()), read.Text()
	}
	if err := read.End(); err != nil {
		return grant{}, err
	}
	g.clock.observe(now, sent, boottime.Now())
	if slot.answer == answerLate {
		return grant{}, errLate
	}
	slot.slot = g.clock.slot(earliest, latest)
	return slot, nil
}

var errLate = errors.New("the answer came too late, or redis's clock was set forward")

// pauseAfter logs an error of Redis and waits before the next try. It returns false if the
// run ends or the worker stops meanwhile.
func (g *gate) pauseAfter(ctx context.Context, what string, job *Running, err error) bool {
	g.logger.Warn("a request to redis failed; retrying", "step", what, logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
	return g.hold(ctx, boottime.Now()+200*time.Millisecond)
}

// hold waits until a moment on the boot clock, such as that of a slot. It returns false if
// the worker stops or ctx is done: then no call must be made.
func (g *gate) hold(ctx context.Context, until time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-g.stopping:
		return false
	default:
	}
	wait := until - boottime.Now()
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

// ahead reports whether a slot can still be used by another run: it is not over, and
// Redis's clock was not set since it was given. Otherwise limits may give the same moment
// to other jobs.
func (g *gate) ahead(s slot) bool {
	return boottime.Now() < s.latest && (g.clock.boot(s.latestMicros)-s.latest).Abs() < late
}

func (g *gate) paused(job *Running) bool {
	now := g.clock.now()
	if g.pauses.holds(now, store.PauseScopes(job.tenant(), job.kind())...) {
		return true
	}
	// Holds do not apply to a probe: it tests whether they can end.
	return !job.Probe && g.pauses.holds(now, store.HoldScopes(job.tenant(), job.kind(), store.EndpointIn(job.attributes))...)
}

// mark records in Redis that a job whose worker died before is about to be called. If this
// worker dies too, the call is known to have been in flight. mark returns false if another
// worker has the job.
func (g *gate) mark(job *Running, turn *turn) bool {
	mark := func(alone bool) bool {
		outcome := settleBeside
		if alone {
			outcome = settleAlone
		}
		return g.settle(job.settled(outcome)).mine
	}
	if turn == nil {
		return mark(false)
	}
	return g.suspects.mark(turn, mark)
}

// takeTurn waits until a suspect may be called. It returns nil if its turn did not come.
func (g *gate) takeTurn(ctx context.Context, job *Running) *turn {
	waits, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	return g.suspects.take(waits, g.running.Go, func() { g.settle(job.settled(settleBeside)) })
}

// call makes the call and returns the verdict on its answer.
func (g *gate) call(ctx context.Context, h *handler, job *Running, early *decoded) (v verdict) {
	current := &call{job: job, handler: h, gate: g, early: early}
	callCtx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, current), job.task.End(time.Now(), h.timeout))
	defer cancel()
	called, began := g.clock.now(), time.Now()
	g.sending.Add(1)
	err := h.protected(callCtx, job.task.Payload)
	took, answer := time.Since(began), answerOf(err)
	g.sending.Add(-1)
	current.end() // waits for progress that is being written; from here on current does not change
	cutOff := canceled(ctx, err, h.repeatUnknown)
	if cutOff {
		answer = lifecycle.AnswerUnknown
	}
	if answer != "" {
		g.observer.Called(g.of.Queue, Called{Kind: job.Kind, Attempt: job.Attempt, Took: took, Answer: answer})
	}
	defer func() {
		v.actual, v.unpaid, v.answer, v.called, v.took = current.actualCosts(), current.unpaid(), answer, called, took
		if adapts, grows := g.limits.Adapts(), g.limits.Grows(); adapts || grows && answer != "" {
			v.told = current.told(took, adapts, grows && answer != "")
		}
	}()
	if cutOff {
		return cut(err)
	}
	v = judge(err, job, h, time.Now())
	if v.hold.who == "" {
		v.hold = holdOf(err) // the failure holds back other jobs too
	}
	if after := current.pause; after.length > v.hold.length && v.hold.sign == "" {
		v.hold = after
	}
	v.result = g.keys.Encrypt(current.result, encryption.PlaceOf(g.queue, job.ID, encryption.Result))
	if err != nil {
		g.logger.Info("call failed", logkey.Queue, g.of.Queue, logkey.Kind, job.Kind, logkey.Job, job.ID, logkey.Tenant, job.Tenant,
			logkey.Attempt, job.Attempt, logkey.Outcome, v.outcome, logkey.Error, err)
	}
	return v
}

// finish settles a job whose slot is used: the outcome of its call, and where the job goes.
func (g *gate) finish(ctx context.Context, job *Running, v verdict) verdict {
	question := job.settled(settleFree)
	question.hold, question.actual, question.told = v.hold, v.actual, v.told
	if job.Probe && v.answer != "" && !v.cutOff() {
		question.probe = "up"
	}
	switch {
	case v.outcome == lifecycle.Done:
		question.outcome, question.text = settleDone, string(v.result)
	case v.outcome.Failed():
		question.outcome, question.text = settleFailed, string(v.outcome)+" "+v.err.Error()
	case v.unsure:
		question.outcome = settleUnsure
	case v.outcome == lifecycle.Throttled || v.outcome == lifecycle.Postponed && !v.first || errors.Is(v.err, errParked):
		question.outcome = settleRefused
	}
	if v.actual == "" && (v.outcome == lifecycle.Throttled || v.outcome == lifecycle.Postponed || v.outcome == lifecycle.Expired) {
		// The provider did no work for the call, so its costs are given back.
		question.actual = store.NoCosts(job.Costs)
	} else if v.unpaid != "" && v.answer != "" {
		question.actual = v.unpaid
	}
	if v.hold.length > 0 {
		question.hold.reason = check.Printable(v.hold.reason, maxWords)
		g.pauses.add(job.scope(v.hold), g.clock.now(), v.hold.length)
	}
	var taken, attributes string
	if counts, names := g.limits.Counts(); counts {
		taken, attributes = job.taken(question.actual), job.attributesIn(names)
	}
	question.record = v.record(job, taken, attributes)
	question.to, question.message = v.place(job, g.clock.now())
	switch settled := g.settle(question); {
	case !settled.mine:
		if v.hold.length > 0 {
			g.pauses.reread()
		}
		late := g.endLate(job, v)
		if settled.repeated {
			return v
		}
		return late
	case settled.follow:
		return g.putAway(ctx, job)
	}
	return v
}

// scope returns the scope of a hold that the job's call caused.
func (job *Running) scope(h hold) string {
	endpoint := store.EndpointIn(job.attributes)
	switch {
	case h.sign == "" && h.who == ofAccount:
		return store.WholeQueue
	case h.sign == "":
		return job.tenant()
	case h.who == ofAccount:
		return store.AccountScope(job.kind())
	case h.who == ofEndpoint && endpoint != "":
		return store.EndpointScope(job.tenant(), endpoint)
	}
	return store.OwnAccountScope(job.kind(), job.tenant())
}

// giveUp gives a job back that was not called because the worker stops.
func (g *gate) giveUp(job *Running, has slot) verdict {
	return g.keep(job, has, ParkedByStop, 0)
}

// keep gives a job back without a call. If its slot is still ahead, the job keeps it for
// another worker. after is how long the job waits before it returns to its lane.
func (g *gate) keep(job *Running, has slot, reason ParkReason, after time.Duration) verdict {
	question := job.settled(settleKeep)
	if !g.ahead(has) {
		question.text = "passed"
	}
	question.to = "lane"
	if after > 0 {
		question.to = fmt.Sprintf("retry %d 0", after.Microseconds())
	}
	if settled := g.settle(question); !settled.mine && !settled.repeated {
		return g.endLate(job, verdict{})
	}
	return g.park(job, reason, "", 0)
}
