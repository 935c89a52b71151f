package queue

import (
	"context"
	"time"

	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
)

// While a queue has little to do, one worker leads: only the leader dispatches, and the
// other workers stand by, so that an idle queue costs the same with any number of workers.
// Workers that handle the same set of kinds have one leader. Workers with another set of
// kinds have their own, because they look for other jobs.
//
// The lead is a key that expires. dispatch.lua reads and writes it at the end of each
// round, so there is no election: a worker that dispatches and finds no leader becomes the
// leader. The lead only saves rounds; any worker may make a round at any time. A worker
// that stands by makes no rounds for jobs. It looks again when the lead expires, which
// covers a leader that died. If a call of its own lets a lane go on, it announces that to
// the leader.
//
// A leader that is full, or holds more than maxAlone jobs, lets all workers dispatch. Work
// is then spread as if there were no leader.
const (
	leadLasts = 2500 * time.Millisecond

	// maxAlone is the maximum number of jobs that a leader holds.
	maxAlone = 16

	// dispatchedByAll is the value of the key while all workers dispatch.
	dispatchedByAll = "*"
)

func (d *dispatcher) role() string { return store.Key(d.queue, "lead:"+d.kinds) }

// look makes a round unless another worker leads, and returns the time until the next look.
func (d *dispatcher) look(ctx context.Context) (time.Duration, error) {
	// A worker that holds jobs makes rounds even so: it has to see pauses, and makes a
	// last round to report to the observer that it holds none.
	if d.stands.Load() && !d.had {
		if left := d.roles.left(d.role()); left > 0 {
			return left, nil
		}
	}
	if d.rests(ctx) {
		return d.poll, nil
	}
	return d.dispatch(ctx)
}

// rests reports whether the partition still has nothing to dispatch, if this worker leads and the latest round found that.
// An error is left to the next round.
func (d *dispatcher) rests(ctx context.Context) bool {
	if d.restsSince == 0 || boottime.Now()-d.restsSince > longestRest {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	reply, err := store.DispatchIdleScript.Run(ctx, d.redis, store.KeysOf(d.queue, d.role()), d.queue, d.worker, leadLasts.Milliseconds())
	return err == nil && reply == int64(1)
}

// dispatch makes a round. It stops standing by first, so that announcements during the
// round are heard.
func (d *dispatcher) dispatch(ctx context.Context) (time.Duration, error) {
	d.stands.Store(false)
	return d.round(ctx, d.room())
}

// standBy leaves the queue to the leader, whose lead lasts for left, and returns the time
// until the next look. changed reports whether the round released or moved jobs.
func (d *dispatcher) standBy(ctx context.Context, left time.Duration, changed bool) time.Duration {
	d.stands.Store(true)
	d.roles.taken(d.role(), left)
	if changed { // the leader does not know when the next job is due
		store.Announce(ctx, d.redis, d.queue)
	}
	if d.had {
		return min(left, d.poll)
	}
	return left
}

// resign gives up the lead of a worker that stops.
func (d *dispatcher) resign() {
	if d.stands.Load() {
		return
	}
	// After leadLasts the lead has expired anyway.
	ctx, cancel := context.WithTimeout(context.Background(), leadLasts)
	defer cancel()
	_, _ = store.ResignScript.Run(ctx, d.redis, []string{d.role()}, d.worker, store.WakeChannel(d.queue), store.ToAll)
}
