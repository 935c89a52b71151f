package queue

import (
	"context"
	"time"

	"github.com/headgate/headgate/queue/internal/store"
)

// While there is little to do in a queue, one worker leads: it alone dispatches, and the
// others stand by, so that an idle queue costs the same however many workers serve it. All
// workers that handle the same kinds have one leader; a worker of other kinds has jobs of
// its own to look for.
//
// The lead is a key that expires. dispatch.lua writes and reads it at the end of each
// round, so nobody has to be elected: who dispatches and finds no leader leads from then
// on. The lead only spares rounds, and any worker may make one at any time. Who stands by
// makes none because of jobs, and looks again when the lead would have ended, as that of a
// worker that died does. What it learns itself, that a call of its own let a lane go on, it
// announces to the leader.
//
// A leader that is full, or has more than a few jobs in its hands, lets all dispatch: work
// is spread then as if there were no leader.
const (
	leadLasts = 2500 * time.Millisecond

	// maxAlone is with how many jobs in its hands a worker leads.
	maxAlone = 16

	// dispatchedByAll stands in place of the leader while there is none.
	dispatchedByAll = "*"
)

func (d *dispatcher) role() string { return store.Key(d.queue, "lead:"+d.kinds) }

// look makes a round, unless another worker leads, and says when to look again.
func (d *dispatcher) look(ctx context.Context) (time.Duration, error) {
	// With jobs in its hands it makes rounds all the same, for pauses, and a last one to
	// tell the observer that it has none.
	if d.stands.Load() && !d.had {
		if left := d.roles.left(d.role()); left > 0 {
			return left, nil
		}
	}
	return d.dispatch(ctx)
}

// dispatch makes a round. It stands by no more, so that what is announced is heard from
// before the round on.
func (d *dispatcher) dispatch(ctx context.Context) (time.Duration, error) {
	d.stands.Store(false)
	return d.round(ctx, d.room())
}

// standBy leaves the queue to another worker, which leads it for so long yet, and says when
// to look again. changed is whether the round did anything.
func (d *dispatcher) standBy(ctx context.Context, left time.Duration, changed bool) time.Duration {
	d.stands.Store(true)
	d.roles.taken(d.role(), left)
	if changed { // the leader does not know what is due after that
		store.Announce(ctx, d.redis, d.queue)
	}
	if d.had {
		return min(left, d.poll)
	}
	return left
}

// resign gives up the lead of a worker that ends.
func (d *dispatcher) resign() {
	if d.stands.Load() {
		return
	}
	// Later it would have ended by itself.
	ctx, cancel := context.WithTimeout(context.Background(), leadLasts)
	defer cancel()
	_, _ = store.ResignScript.Run(ctx, d.redis, []string{d.role()}, d.worker, store.WakeChannel(d.queue), store.ToAll)
}
