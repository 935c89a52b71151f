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

// replans collects the tenants whose lanes must be planned again. "" means all tenants of
// the queue.
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

// replan plans lanes again when a hold on them has ended, or when a round finds that Redis's
// clock was set back. Rounds go on meanwhile, because many lanes take seconds. What fails is
// tried again until ctx is done. The sweep (a chore) does what is left then.
func (d *dispatcher) replan(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-d.replans.added:
		}
		var failed error
		for _, tenant := range d.replans.take() {
			if err := effective.Replan(ctx, d.redis, d.queue, tenant); err != nil {
				failed = err
				d.replans.add(tenant)
			}
		}
		if failed != nil && !failing && ctx.Err() == nil {
			d.logger.Warn("planning lanes again failed; retrying", logkey.Queue, d.queue, logkey.Error, failed)
		}
		if failing = failed != nil; failing {
			_ = wait.For(ctx, replanAgain)
		}
	}
}
