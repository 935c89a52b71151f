package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
)

const replanAgain = time.Second

// replans collects the tenants whose lanes must be planned again because a call of this
// worker ended a hold. "" means all tenants of the queue.
type replans struct {
	mu      sync.Mutex
	tenants map[string]bool
	added   chan struct{} // has a value when tenants were added
}

func newReplans() *replans {
	return &replans{tenants: map[string]bool{}, added: make(chan struct{}, 1)}
}

func (r *replans) add(tenant string) {
	r.mu.Lock()
	r.tenants[tenant] = true
	r.mu.Unlock()
	signal(r.added)
}

// take removes and returns the tenants, or only "" if it is among them.
func (r *replans) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	tenants := slices.Collect(maps.Keys(r.tenants))
	if r.tenants[""] {
		tenants = []string{""}
	}
	clear(r.tenants)
	return tenants
}

// replanAfterHolds plans lanes again when a hold on them has ended. If that fails, the
// sweep (a chore) does it later.
func (d *dispatcher) replanAfterHolds(ctx context.Context) {
	if d.replans == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.replans.added:
		}
		for _, tenant := range d.replans.take() {
			if err := effective.Replan(ctx, d.redis, d.queue, tenant); err != nil && ctx.Err() == nil {
				d.logger.Warn("planning lanes again after a hold failed; the sweep will do it", logkey.Queue, d.queue, logkey.Error, err)
			}
		}
	}
}

// replanAfterSteps plans all lanes again when a round finds that Redis's clock was set back.
// Rounds go on meanwhile, because many lanes take seconds. Only one round reports a step, so
// after an error it tries again until ctx is done. The sweep (a chore) does what is left
// then.
func (d *dispatcher) replanAfterSteps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.stepped:
		}
		d.logger.Warn("redis's clock was set back; planning all lanes again", logkey.Queue, d.queue)
		failing := false
		for {
			err := effective.Replan(ctx, d.redis, d.queue, "")
			if err == nil {
				break
			}
			if ctx.Err() == nil && !failing {
				d.logger.Warn("planning lanes again failed; retrying", logkey.Queue, d.queue, logkey.Error, err)
			}
			failing = true
			if wait.For(ctx, replanAgain) != nil {
				return
			}
		}
	}
}
