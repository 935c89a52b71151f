package queue

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// settlement is what a settlement reports about a run, as settle.lua names it.
type settlement string

const (
	settleDone    settlement = "done"    // the call succeeded
	settleFailed  settlement = "failed"  // the job ended for good without success
	settleFree    settlement = "free"    // the call failed, and the job goes on later
	settleRefused settlement = "refused" // the provider did nothing, or no call was made
	settleUnsure  settlement = "unsure"  // the provider may have acted on the call
	settleKeep    settlement = "keep"    // the job goes back with its slot, without a call
	settleAway    settlement = "away"    // the follow-ups are enqueued, and the job goes

	// Marks before the call of a job whose worker died, see suspects.
	settleAlone  settlement = "alone"  // no other call is in flight in this process
	settleBeside settlement = "beside" // other calls may be in flight
)

// settleQuestion has the arguments of settle.lua for one job.
type settleQuestion struct {
	id, owner, tenant, kind string

	outcome settlement
	text    string // settleDone: the result; settleFailed: the reason; settleKeep: "passed" if the slot is over, whose permits go back
	hold    hold
	probe   string // of a probe: "up" if it got an answer, otherwise "none"
	frees   bool   // the job holds permits of concurrency limits
	actual  string // actual costs of the call, "unit=n;…"
	told    string // what the provider said of its limits, see call.told
	record  string // see verdict.record

	to      string // where the job goes, see verdict.place; "": it stays with the worker
	message []byte // the new asynq message; nil: unchanged
}

// needsLimits reports whether the settlement changes buckets.
func (q settleQuestion) needsLimits() bool {
	return q.hold.length > 0 || q.actual != "" || q.told != "" || q.probe != "" || q.outcome == settleKeep && q.text != ""
}

// retries reports whether the job is tried again later. It may be due before its dispatcher looks again by
// itself.
func (q settleQuestion) retries() bool { return strings.HasPrefix(q.to, "retry ") }

// why encodes the hold for settle.lua.
func (q settleQuestion) why() string {
	text := q.hold.who + q.hold.sign + " " + q.hold.reason
	if q.probe != "" {
		text = "?" + q.probe + " " + text
	}
	return text
}

func (job *Running) settled(outcome settlement) settleQuestion {
	q := settleQuestion{id: job.ID, owner: job.owner, tenant: job.tenant(), kind: job.kind(), outcome: outcome, frees: job.permits}
	if job.Probe && outcome != settleAlone && outcome != settleBeside && outcome != settleAway {
		q.probe = "none"
	}
	return q
}

// settled is the answer to a settlement.
type settled struct {
	mine     bool // the job was still this worker's
	follow   bool // the job has ended, and its follow-ups must be enqueued
	repeated bool // an earlier try may have arrived and settled the job
}

// Flags in a settlement's answer: lanes of the tenant, or all lanes, must be planned again
// because a hold ended.
const askTenant, askAll = 4, 8

const (
	// settleGap is the gap between round trips for settlements. At thousands a second it
	// saves Redis and the worker a third of their time.
	settleGap = 2 * time.Millisecond
	// endLinger extends the gap for settlements that nobody waits for. Until then Redis
	// does not know that the call was made. If the worker is killed, the call is repeated,
	// like the calls in flight. So endLinger is short compared to a call.
	endLinger = 8 * time.Millisecond
	// fullBatch is how many settlements end the linger early. From 12,500/s on, that many
	// come within settleGap.
	fullBatch = 25
)

// mayWait reports whether nobody waits for a settlement: the job is done, no other job
// depends on it, and the process has room for more jobs.
func (g *gate) mayWait(q settleQuestion) bool {
	return q.outcome == settleDone && !q.needsLimits() && !q.frees && g.capacity.taken.Load() <= g.capacity.all/2
}

// settle repeats a settlement until Redis has it, so that a call that was made is never
// forgotten. The job keeps its place in the worker until then, so the worker takes no new
// job instead.
func (g *gate) settle(q settleQuestion) settled {
	repeated := false
	batch := &g.settles
	if g.mayWait(q) {
		batch = &g.ends
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		answer, err := batch.Do(q)
		if err == nil {
			answer.repeated = repeated
			return answer
		}
		repeated = repeated || !certain(err)
		g.logger.Warn("settlement failed; retrying", logkey.Queue, g.queue, logkey.Job, q.id, "outcome", q.outcome, logkey.Error, err)
		select {
		case <-g.ended:
			return settled{mine: true} // the worker has stopped; another one recovers the job
		case <-time.After(wait):
		}
	}
}

func (g *gate) sendSettle(questions []settleQuestion) ([]settled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	const words, others = 13, 5
	today := time.Now().UTC()
	args := make([]any, 0, others+words*len(questions))
	args = append(args, g.queue, "none", pickup.Microseconds(), today.Format(time.DateOnly), today.Add(asynqwire.StatsKept).Unix())
	for _, q := range questions {
		args = append(args, q.id, q.owner, q.tenant, q.kind, string(q.outcome), q.hold.length.Microseconds(), q.why(), q.actual, q.told, q.text, q.record,
			q.to, q.message)
	}
	var reply any
	send := func(calendars string) (err error) {
		args[1] = calendars
		reply, err = store.SettleScript.Run(ctx, g.redis, store.ScriptKeys(g.queue), args...)
		return err
	}
	var err error
	if slices.ContainsFunc(questions, settleQuestion.needsLimits) {
		err = g.limits.Run(ctx, send)
	} else {
		err = send("none")
	}
	if err != nil {
		return nil, err
	}
	read := store.Read(reply)
	answers := make([]settled, len(questions))
	for i := range answers {
		flags := read.Int()
		answers[i] = settled{mine: flags > 0, follow: flags&2 > 0}
		switch {
		case flags&askAll > 0:
			g.replans.add("")
		case flags&askTenant > 0:
			g.replans.add(store.Unescape(questions[i].tenant))
		}
	}
	wakes := read.Int() > 0
	if err := read.End(); err != nil {
		return nil, err
	}
	if wakes || g.of.N >= manyPartitions && slices.ContainsFunc(questions, settleQuestion.retries) {
		g.onWake()
	}
	if slices.ContainsFunc(questions, func(q settleQuestion) bool { return q.hold.length > 0 }) {
		store.AnnounceToAll(ctx, g.redis, g.queue)
	}
	for i, q := range questions {
		if answers[i].mine && q.hold.length > 0 && q.hold.who == ofAccount && q.hold.sign == "" {
			g.spread(q.hold)
		}
	}
	return answers, nil
}

// partitions returns the partitions that the queue has now. A call may have begun before it got others.
func (g *gate) partitions() []string {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	if now, err := store.ReadLayout(ctx, g.redis, g.of.Queue); err == nil && !now.Whole() {
		return now.Names()
	}
	return g.of.Names()
}

// spread pauses the other partitions of the queue, because their calls go to the same account. One that
// does not answer is paused by the provider's answer to its next call.
func (g *gate) spread(h hold) {
	began := boottime.Now()
	for _, home := range g.partitions() {
		if home == g.queue {
			continue
		}
		g.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
			defer cancel()
			// All partitions have the same limits.
			err := g.limits.Run(ctx, func(calendars string) error {
				until := cmp.Or(g.clocks[home], g.clock).now().Add(h.length - (boottime.Now() - began))
				_, err := store.PauseScript.Run(ctx, g.redis, store.ScriptKeys(home), home, store.WholeQueue, until.UnixMicro(), h.reason, "", calendars, "")
				return err
			})
			if err != nil {
				g.logger.Warn("a pause of the account did not reach another partition of the queue", logkey.Queue, home, logkey.Error, err)
				return
			}
			store.AnnounceToAll(ctx, g.redis, home)
		})
	}
}
