package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// handed is a job that dispatch.lua handed to this worker.
type handed struct {
	id, owner string
	message   []byte        // in asynq's encoding
	asked     time.Duration // when the worker asked for jobs, on the boot clock
	grant
}

// readHanded reads the jobs of a reply of dispatch.lua. run is the run number of the first
// job, and asked is when the request was sent, on the boot clock.
func (d *dispatcher) readHanded(reply *store.Reply, run int64, asked time.Duration) ([]handed, error) {
	now := boottime.Now()
	jobs := make([]handed, 0, reply.Len())
	for reply.More() {
		one := reply.List()
		job := handed{id: one.Text(), owner: ownerOf(d.worker, run+int64(len(jobs))), message: []byte(one.Text()), asked: asked}
		job.grant = grant{answer: answer(one.Text()), slot: d.clock.slot(one.Int(), one.Int()), crashes: one.Int(), forgiven: one.Int(), first: one.Int()}
		job.flags(one.Int())
		job.accepted = d.clock.boot(one.Int())
		if err := one.End(); err != nil {
			return nil, err
		}
		if job.answer == answerGo && job.earliest > now+2*store.Horizon {
			job.answer = answerSlot // the slot is from before Redis's clock was set back
		}
		jobs = append(jobs, job)
	}
	return jobs, reply.End()
}

// ownerOf returns the owner mark of a worker's run, as hand.lua writes it to the job.
func ownerOf(worker string, run int64) string { return worker + ":" + strconv.FormatInt(run, 10) }

// take runs jobs that were handed over, each in its own goroutine.
func (g *gate) take(jobs []handed) {
	for _, job := range jobs {
		g.capacity.enter()
		g.running.Go(func() {
			defer g.capacity.leave()
			g.serve(job)
		})
	}
}

// serve runs a job after its earlier run in this process has ended, if there is one.
func (g *gate) serve(h handed) {
	ctx, cancel := context.WithCancel(g.base)
	defer cancel()
	message, err := asynqwire.Decode(h.message)
	stored := message.Payload
	locked := unlock(g.keys, g.queue, h.id, &message)
	job := newRunning(g.of.Queue, h.id, message)
	job.owner, job.raw, job.locked = h.owner, h.message, locked
	leave, after := g.live.enter(g.queue, asynqwire.Run{ID: h.id, Kind: job.Kind, Payload: stored, Began: time.Now()}, h.asked, cancel, g.stopping)
	if leave == nil {
		g.giveUp(job, h.slot)
		return
	}
	defer leave()
	if after && (h.answer == answerGo || h.answer == answerSlot) {
		h.grant.answer, h.slot = answerSlot, slot{} // the earlier run may have ended the job
	}
	var v verdict
	if err != nil {
		v = g.finish(ctx, job, archive(lifecycle.Archived, fmt.Errorf("the task cannot be read: %w", err)))
	} else {
		v = g.process(ctx, job, h.grant, h.asked)
	}
	g.observer.Finished(g.of.Queue, g.known(job.Kind), v.outcome)
}

// place returns where the job goes after its run, in the form of settle.lua, and its new
// asynq message; nil leaves the message unchanged.
func (v verdict) place(job *Running, now time.Time) (to string, message []byte) {
	if v.outcome == lifecycle.Done {
		if job.task.Retention <= 0 {
			return "gone", nil
		}
		return "kept " + strconv.FormatInt(int64(job.task.Retention.Seconds()), 10), asynqwire.Amend(job.raw, job.task.Retried, job.task.Failure, job.task.Failed, now)
	}
	if v.outcome.Failed() {
		return "archived", asynqwire.Amend(job.raw, job.task.Retried, check.BoundReason(v.err.Error()), now, time.Time{})
	}
	again, ok := v.err.(*retryError)
	if !ok {
		return "lane", nil
	}
	retried, failed := job.task.Retried, 0
	if again.failed {
		retried, failed = retried+1, 1
	}
	message = asynqwire.Amend(job.raw, retried, again.Error(), now, time.Time{})
	if again.after <= 0 {
		if v.answer == "" {
			message = nil // nothing was learned
		}
		return "lane", message
	}
	return fmt.Sprintf("retry %d %d", again.after.Microseconds(), failed), message
}
