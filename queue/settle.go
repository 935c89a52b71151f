package queue

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// settlement says how a run stands that is settled.
type settlement string

const (
	settleDone    settlement = "done"    // the call succeeded
	settleFailed  settlement = "failed"  // the job ended for good without success
	settleFree    settlement = "free"    // it failed, and goes on later
	settleRefused settlement = "refused" // the provider did nothing, or there was no call
	settleUnsure  settlement = "unsure"  // the provider may have acted on the call
	settleKeep    settlement = "keep"    // it goes back with its slot, without a call
	settleAway    settlement = "away"    // what follows it is in Redis: it is put away

	// Before the call of a job whose worker died.
	settleAlone  settlement = "alone"  // no other suspect is called meanwhile
	settleBeside settlement = "beside" // others may be
)

type settleQuestion struct {
	id, owner, tenant, kind string

	outcome settlement
	text    string // the result of settleDone, why of settleFailed, "passed" of settleKeep where the slot is over
	hold    hold
	probe   string // of a probe: "up" when it was answered, else "none"
	frees   bool   // permits of concurrency limits
	actual  string // costs that the call had, "unit=n;…"
	record  string // see [verdict.record]

	to      string // where the job goes; "": it stays with the worker
	message []byte // of the task from then on; nil: as it is
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

func (job *Running) settled(outcome settlement) settleQuestion {
	q := settleQuestion{id: job.ID, owner: job.owner, tenant: job.tenant(), kind: job.kind(), outcome: outcome, frees: job.permits}
	if job.Probe && outcome != settleAlone && outcome != settleBeside && outcome != settleAway {
		q.probe = "none"
	}
	return q
}

// settled is whether the job was still this worker's, and whether it ended and
// others are to follow it. repeated: an earlier try may have arrived, after which the
// job is nobody's.
type settled struct{ mine, follow, repeated bool }

// What of a queue is to be asked anew, because a hold ended, is added to a settlement's
// answer.
const askTenant, askAll = 4, 8

const (
	// settleGap is the gap of round trips for settlements: at thousands a second it
	// saves Redis and the worker a third of their time.
	settleGap = 2 * time.Millisecond
	// endLinger is how much longer the gap may be for settlements that nobody waits for.
	// Meanwhile a call that was made is not known to Redis: a worker that is killed makes it
	// again, as it does with the calls under way. So it is short beside what a call takes.
	endLinger = 8 * time.Millisecond
	// fullBatch wait no longer: from 12,500/s on they come within settleGap.
	fullBatch = 25
)

// mayWait reports whether nobody waits for a settlement: the job is done, which concerns no
// other job, and the process has room for others.
func (g *gate) mayWait(q settleQuestion) bool {
	return q.outcome == settleDone && !q.needsLimits() && !q.frees && g.capacity.taken.Load() <= g.capacity.all/2
}

// settle keeps on until Redis has it: a call that was made must never be
// forgotten, and no new work is taken meanwhile, as the job keeps its place in
// the worker.
func (g *gate) settle(q settleQuestion) settled {
	repeated := false
	batch := &g.settles
	if g.mayWait(q) {
		batch = &g.ends
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		answer, err := batch.do(q)
		if err == nil {
			answer.repeated = repeated
			return answer
		}
		repeated = repeated || !certain(err)
		g.logger.Warn("redis does not take a settlement", logkey.Queue, g.queue, logkey.Job, q.id, "outcome", q.outcome, logkey.Error, err)
		select {
		case <-g.ended:
			return settled{mine: true} // nobody is left to tell; the next worker recovers the job
		case <-time.After(wait):
		}
	}
}

func (g *gate) sendSettle(questions []settleQuestion) ([]settled, error) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	const words, others = 12, 5
	today := time.Now().UTC()
	args := make([]any, 0, others+words*len(questions))
	args = append(args, g.queue, "none", pickup.Microseconds(), today.Format(time.DateOnly), today.Add(asynqwire.StatsKept).Unix())
	for _, q := range questions {
		args = append(args, q.id, q.owner, q.tenant, q.kind, string(q.outcome), q.hold.length.Microseconds(), q.why(), q.actual, q.text, q.record,
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
	if wakes {
		g.onWake()
	}
	if slices.ContainsFunc(questions, func(q settleQuestion) bool { return q.hold.length > 0 }) {
		store.AnnounceToAll(ctx, g.redis, g.queue)
	}
	return answers, nil
}
