package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/throttle"
)

// replan asks the limits anew when each waiting lane of a tenant may go, or with ""
// each lane of the queue: what they said before a change does not hold any more. It
// goes in slices, and leaves Redis as much time for others as each slice took.
func replan(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	fail := func(err error) error { return fmt.Errorf("ask the lanes of queue %q anew: %w", queue, err) }
	cache := &limitsCache{queue: queue, redis: client}
	escaped := ""
	if tenant != "" {
		escaped = throttle.Escape(tenant)
	}
	var announced time.Time
	for cursor := "0"; ; {
		windows, err := cache.windows(ctx)
		if err != nil {
			return fail(err)
		}
		began := time.Now()
		next, err := sweepSlice(ctx, client, queue, escaped, cursor, windows, false)
		if err != nil {
			if cache.look(err); !stale(err) {
				return fail(err)
			}
			continue
		}
		if time.Since(announced) > slowestDispatch || next == "0" {
			announced = time.Now()
			store.Announce(ctx, client, queue)
		}
		if cursor = next; cursor == "0" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(time.Since(began)):
		}
	}
}

const replanAgain = time.Second

// replans are the tenants of a queue whose lanes are to be asked anew, "" for all: a
// call of this worker ended a hold.
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
	select {
	case r.added <- struct{}{}:
	default:
	}
}

// take returns what was added, and nothing beside all.
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

// replanAfterHolds asks the lanes anew that a hold kept until it ended. What fails is
// left to the sweep.
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
			if err := replan(ctx, d.redis, d.queue, tenant); err != nil && ctx.Err() == nil {
				d.logger.Warn("lanes cannot be asked anew after a hold; the sweep does so", logQueue, d.queue, logError, err)
			}
		}
	}
}

// replanAfterSteps asks all lanes anew each time that a round finds Redis's clock set
// back. The rounds go on meanwhile: many lanes take seconds. Only one round is told of a
// step, so what fails is tried again until ctx is done; what is missing then is left to
// the sweep.
func (d *dispatcher) replanAfterSteps(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.stepped:
		}
		d.logger.Warn("redis's clock was set back; lanes are asked anew when they may go", logQueue, d.queue)
		failing := false
		for {
			err := replan(ctx, d.redis, d.queue, "")
			if err == nil {
				break
			}
			if ctx.Err() == nil && !failing {
				d.logger.Warn("lanes cannot be asked anew; it goes on trying", logQueue, d.queue, logError, err)
			}
			failing = true
			select {
			case <-ctx.Done():
				return
			case <-time.After(replanAgain):
			}
		}
	}
}

// sweepSlice runs sweep.lua over one slice, and returns the cursor of the next.
func sweepSlice(ctx context.Context, client redis.UniversalClient, queue, tenant, cursor, windows string, mends bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	flag := 0
	if mends {
		flag = 1
	}
	reply, err := sweepScript.Run(ctx, client, store.ScriptKeys(queue), queue, cursor, windows, tenant, flag)
	if err != nil {
		return cursor, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != 2 {
		return cursor, fmt.Errorf("unexpected reply %v", reply)
	}
	return fmt.Sprint(values[0]), nil
}
