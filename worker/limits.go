package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// published reports whether all queues of a limits file have limits in Redis.
func published(ctx context.Context, client redis.UniversalClient, set limits.Set) bool {
	all, err := operate.Compare(ctx, client, set)
	return err == nil && !slices.ContainsFunc(all, func(c operate.Comparison) bool { return c.New })
}

// fileLimits puts the limits of the limits file in effect.
type fileLimits struct {
	publish func(ctx context.Context, set limits.Set, lost bool) error // lost: they are gone from Redis
	adjust  func(limits.Set) (limits.Set, error)                       // nil: the limits stay as they are

	mu       sync.Mutex
	set      limits.Set // put in effect last, before adjust
	adjusted limits.Set // the same, after it
	puts     int        // how often limits were put in effect
}

// put puts the limits of a file in effect.
func (f *fileLimits) put(ctx context.Context, set limits.Set) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putAs(ctx, set, false)
}

// putAs does it for a caller that holds the mutex.
func (f *fileLimits) putAs(ctx context.Context, set limits.Set, lost bool) error {
	adjusted := set
	if f.adjust != nil {
		var err error
		if adjusted, err = f.adjust(set); err != nil {
			return err
		}
	}
	if err := f.publish(ctx, adjusted, lost); err != nil {
		return err
	}
	f.set, f.adjusted = set, adjusted
	f.puts++
	return nil
}

// inEffect returns the limits that were put in effect last, and how often limits were put in
// effect so far.
func (f *fileLimits) inEffect() (set limits.Set, puts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adjusted, f.puts
}

// again puts the same limits in effect again, because adjust returns others now.
func (f *fileLimits) again(ctx context.Context) error { return f.repeat(ctx, false) }

// restore does so because they are gone from Redis.
func (f *fileLimits) restore(ctx context.Context) error { return f.repeat(ctx, true) }

func (f *fileLimits) repeat(ctx context.Context, lost bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putAs(ctx, f.set, lost)
}
