package chores

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	KeptByAsynq = 9000                // of the 10,000 that asynq keeps
	KeptFor     = 80 * 24 * time.Hour // of the 90 days for which asynq keeps them
	maxMoved    = 200                 // in one call
)

// Archiver moves archived jobs that asynq would delete into Headgate's own archive.
type Archiver struct{ warned bool }

func (a *Archiver) Sweep(ctx context.Context, client redis.UniversalClient, queue string, logger *slog.Logger) error {
	for range 50 { // the rest is moved the next time
		callCtx, cancel := context.WithTimeout(ctx, store.Timeout)
		reply, err := store.ArchiveScript.Run(callCtx, client, store.ScriptKeys(queue), queue, KeptByAsynq, int64(KeptFor.Seconds()), maxMoved)
		cancel()
		if err != nil {
			return fmt.Errorf("move archived jobs: %w", err)
		}
		moved, _ := reply.(int64)
		if moved > 0 && !a.warned {
			a.warned = true
			logger.Warn("the archive is long: moving its oldest jobs to Headgate's own archive, because asynq would delete them", logkey.Queue, queue)
		}
		if moved < maxMoved {
			break
		}
	}
	return nil
}
