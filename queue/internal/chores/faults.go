package chores

import (
	"context"

	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// LogFaults logs each fault of the queue once.
func (c *Chores) LogFaults(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	faults, err := store.ReadFaults(ctx, c.redis, c.queue)
	if err != nil {
		return err
	}
	known := make(map[store.Fault]bool, len(faults))
	for _, fault := range faults {
		known[fault] = true
		if !c.faults[fault] {
			c.logger.Error("a script found damaged data in Redis and left it unchanged", logkey.Queue, c.queue, logkey.What, fault.What, logkey.Reason, fault.Reason)
		}
	}
	c.faults = known
	return nil
}
