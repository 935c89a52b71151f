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
	KeptByAsynq = 9000                // of the 10,000 at which asynq's own tools cut
	KeptFor     = 80 * 24 * time.Hour // of their 90 days
	maxMoved    = 200                 // in one call of Redis
)

// Archiver moves what asynq's tools would cut off into an archive of ours.
type Archiver struct{ warned bool }

func (a *Archiver) Sweep(ctx context.Context, client redis.UniversalClient, queue string, logger *slog.Logger) error {
	for range 50 { // what is left is moved the next time
		callCtx, cancel := context.WithTimeout(ctx, store.Timeout)
		reply, err := store.ArchiveScript.Run(callCtx, client, store.ScriptKeys(queue), queue, KeptByAsynq, int64(KeptFor.Seconds()), maxMoved)
		cancel()
		if err != nil {
			return fmt.Errorf("move archived jobs: %w", err)
		}
		moved, _ := reply.(int64)
		if moved > 0 && !a.warned {
			a.warned = true
			logger.Warn("the archive is long: its oldest jobs are kept beside asynq's, whose tools would lose them", logkey.Queue, queue)
		}
		if moved < maxMoved {
			break
		}
	}
	return nil
}
