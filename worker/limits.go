package worker

import (
	"context"
	"sync"

	"github.com/headgate/headgate/queue/limits"
)

// fileLimits puts the limits of the limits file in effect.
type fileLimits struct {
	publish func(context.Context, limits.Set) error
	adjust  func(limits.Set) (limits.Set, error) // nil: the limits stay as they are

	mu       sync.Mutex
	set      limits.Set // put in effect last, before adjust
	adjusted limits.Set // the same, after it
}

// put puts the limits of a file in effect.
func (f *fileLimits) put(ctx context.Context, set limits.Set) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	adjusted := set
	if f.adjust != nil {
		var err error
		if adjusted, err = f.adjust(set); err != nil {
			return err
		}
	}
	if err := f.publish(ctx, adjusted); err != nil {
		return err
	}
	f.set, f.adjusted = set, adjusted
	return nil
}

// inEffect returns the limits that were put in effect last.
func (f *fileLimits) inEffect() limits.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adjusted
}

// again puts the same limits in effect again, because adjust returns others now.
func (f *fileLimits) again(ctx context.Context) error {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	return f.put(ctx, set)
}
