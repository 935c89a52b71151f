package chores

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// FaultLog logs each fault of a queue once.
type FaultLog struct{ known map[store.Fault]bool }

func (l *FaultLog) Look(ctx context.Context, client redis.UniversalClient, queue string, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	faults, err := store.ReadFaults(ctx, client, queue)
	if err != nil {
		return err
	}
	known := make(map[store.Fault]bool, len(faults))
	for _, fault := range faults {
		known[fault] = true
		if !l.known[fault] {
			logger.Error("a script found damaged data in Redis and left it unchanged", logkey.Queue, queue, logkey.What, fault.What, logkey.Reason, fault.Reason)
		}
	}
	l.known = known
	return nil
}
