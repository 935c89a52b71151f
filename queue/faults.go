package queue

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// faultLog logs each fault of a queue once.
type faultLog struct{ known map[store.Fault]bool }

func (l *faultLog) look(ctx context.Context, client redis.UniversalClient, queue string, logger *slog.Logger) error {
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
			logger.Error("a script found what it cannot understand and left it as it is", logQueue, queue, logWhat, fault.What, logReason, fault.Reason)
		}
	}
	l.known = known
	return nil
}
