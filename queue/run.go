package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/lifecycle"
)

// run is one run of a job, from its handover to this worker to its settlement:
//
//	handed ─┬─ has already ended ──────────► putAway
//	        ├─ crashed its workers ────────► archived
//	        ├─ no handler, not its turn ───► back to its lane
//	        └─ slot ──► wait ──► leave ──► call ──► finish
//	            ▲                  │
//	            └───── missed ─────┘
//
// A step that returns a verdict ends the run. After nil the next step runs.
type run struct {
	*gate
	job     *Running
	handler *handler
	early   *decoded // the payload
	turn    *turn    // of a suspect; nil: the job is not one
	grant            // the latest; it has no slot if the answer is answerSlot

	began    time.Duration // when the job was handed over, on the boot clock
	asked    time.Duration // latest request to which Redis answered that this worker has the job, on the boot clock
	took     time.Duration // duration of the latest request for a slot
	held     time.Duration // total wait for slots
	runnable time.Duration // time of the first slot, on the boot clock; 0: none yet
	marked   bool          // Redis knows that the call may be in flight
	missed   int           // slots missed in a row
}

// process runs a job from its handover to its settlement. asked is when the worker asked for the job.
func (g *gate) process(ctx context.Context, job *Running, first grant, asked time.Duration) verdict {
	r := &run{gate: g, job: job, grant: first, began: boottime.Now(), asked: asked, marked: first.crashes == 0}
	defer func() {
		if r.turn != nil {
			g.suspects.pass()
		}
	}()
	if v := r.begin(ctx); v != nil {
		return *v
	}
	for {
		for _, step := range []func(context.Context) *verdict{r.getSlot, r.wait, r.leave, r.miss} {
			if v := step(ctx); v != nil {
				return *v
			}
		}
	}
}

// begin ends a run that needs no call, and lets a suspect wait for its turn.
func (r *run) begin(ctx context.Context) *verdict {
	job := r.job
	if r.answer == answerCrashed && !r.certain(ctx, job) {
		r.answer = answerSlot // try again, as a suspect
	}
	job.Attempt = max(job.Attempt-int(r.forgiven), 1)
	switch r.answer {
	case answerDone, answerFailed:
		return new(r.putAway(ctx, job))
	case answerCrashed:
		return r.end(ctx, archive(lifecycle.Crashed, errCrashed))
	}
	job.First, job.Unsure = time.UnixMicro(r.first), r.unsure
	job.Probe, job.permits = r.probe, r.permits
	if r.handler = r.handlers[job.Kind]; r.handler == nil {
		// Jobs that only have to be put away are handed to any worker.
		if v := r.ifExpired(ctx); v != nil {
			return v
		}
		return new(r.keep(job, r.slot, ParkedByKind, 0))
	}
	if job.locked != nil {
		if v := r.ifExpired(ctx); v != nil {
			return v
		}
		r.logger.Warn("a job cannot be decrypted; it waits", logkey.Queue, job.Queue, logkey.Job, job.ID, logkey.Error, job.locked)
		return r.end(ctx, verdict{outcome: lifecycle.Postponed, err: &retryError{err: job.locked, after: lockedPause}})
	}
	if r.crashes < suspicious {
		return nil
	}
	if r.turn = r.takeTurn(ctx, job); r.turn != nil {
		return nil
	}
	if !r.hold(ctx, 0) {
		return r.stop()
	}
	return new(r.keep(job, r.slot, ParkedBySuspicion, time.Second))
}

// getSlot asks for a slot if the run has none.
func (r *run) getSlot(ctx context.Context) *verdict {
	// An expired job needs no slot and is not held by pauses.
	if v := r.ifExpired(ctx); v != nil {
		return v
	}
	if r.answer == answerSlot {
		r.asked = boottime.Now()
		next, ok := r.newSlot(ctx, r.job, r.missed)
		next.accepted = r.accepted
		r.took, r.grant = boottime.Now()-r.asked, next
		if !ok {
			return r.stop()
		}
		switch r.answer {
		case answerGone:
			return new(r.endLate(r.job, verdict{}))
		case answerDone, answerFailed:
			return new(r.putAway(ctx, r.job))
		case answerPark:
			return r.end(ctx, r.park(r.job, r.reason, r.limit, r.took))
		}
	}
	if r.runnable == 0 && r.earliest > 0 {
		r.runnable = r.earliest
	}
	r.job.Probe, r.job.permits = r.job.Probe || r.probe, r.job.permits || r.permits
	return nil
}

// wait holds the job until its slot, and does before what would delay the call: it decodes the
// payload and, if a worker died with the job before, marks it.
func (r *run) wait(ctx context.Context) *verdict {
	began := boottime.Now()
	if r.early == nil {
		r.early = r.handler.early(r.job.task.Payload)
	}
	if !r.marked {
		if !r.hold(ctx, r.earliest-inHand) {
			return r.stop()
		}
		if !r.mark(r.job, r.turn) {
			return new(r.endLate(r.job, verdict{}))
		}
		r.marked = true
	}
	if !r.hold(ctx, r.earliest) {
		return r.stop()
	}
	r.held += boottime.Now() - began
	return r.ifExpired(ctx)
}

// ifExpired ends the run of a job whose deadline has passed.
func (r *run) ifExpired(ctx context.Context) *verdict {
	switch expired, ok := r.expired(ctx); {
	case !ok:
		return r.stop()
	case expired:
		return r.end(ctx, expire(r.job))
	}
	return nil
}

// expired reports whether the job's deadline has passed. It asks Redis before it says so: the
// worker may not know yet that Redis's clock was set back, and a job that expires is never called.
// ok is false if the run ends or the worker stops before Redis has answered.
func (r *run) expired(ctx context.Context) (expired, ok bool) {
	for r.job.expired(r.clock.now()) {
		err := r.clock.sample(ctx)
		if err == nil {
			return r.job.expired(r.clock.now()), true
		}
		if !r.pauseAfter(ctx, "deadline", r.job, err) {
			return false, false
		}
	}
	return false, true
}

// leave makes the call if its slot is not over, no pause holds it, and the job is certainly
// still this worker's.
func (r *run) leave(ctx context.Context) *verdict {
	left := func() {}
	if r.turn == nil {
		left = r.suspects.enter()
	}
	paused := r.paused(r.job)
	if paused || !r.clock.onTime(r.slot) || !r.renewals.cover(r.asked) {
		left()
		if paused {
			r.runnable = 0 // the wait for the pause is not lateness
		}
		return nil
	}
	r.observer.Gated(r.of.Queue, r.sent())
	r.job.Held = r.held
	v := r.call(ctx, r.handler, r.job, r.early)
	left()
	return r.end(ctx, v)
}

// miss gives up the slot and lets the run ask for another one.
func (r *run) miss(ctx context.Context) *verdict {
	r.observer.Gated(r.of.Queue, Gating{Kind: r.job.Kind, Decision: "missed", Asked: r.took})
	r.answer = answerSlot
	if r.missed++; r.missed > freeMisses && !r.hold(ctx, boottime.Now()+missPause(r.missed)) {
		return r.stop()
	}
	return nil
}

// end settles the run.
func (r *run) end(ctx context.Context, v verdict) *verdict { return new(r.finish(ctx, r.job, v)) }

// stop ends a run without a call because the worker stops.
func (r *run) stop() *verdict { return new(r.giveUp(r.job, r.slot)) }

// sent returns the report to the observer of a call that leaves now.
func (r *run) sent() Gating {
	now, runnable := boottime.Now(), cmp.Or(r.runnable, r.began) // if no limit applies, the job never had a slot
	if runnable <= r.began {
		runnable = r.starving.since(r.accepted, runnable)
	}
	g := Gating{Kind: r.job.Kind, Decision: "sent", Asked: r.took, Held: r.held, Runnable: max(now-runnable, 0)}
	// A call that was throttled was no attempt, and left its answer with the job.
	if r.job.Attempt == 1 && r.job.task.Failure == "" && r.accepted > 0 {
		g.Waited = max(now-r.accepted, 0)
		r.job.waited = g.Waited
	}
	return g
}
