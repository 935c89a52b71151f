package chores

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	KeptByAsynq = 9000                // of the 10,000 that asynq keeps
	KeptFor     = 80 * 24 * time.Hour // of the 90 days for which asynq keeps them
	maxMoved    = 200                 // in one call
)

// MoveArchived moves archived jobs that asynq would delete into Headgate's own archive.
func (c *Chores) MoveArchived(ctx context.Context) error {
	moved, err := c.repeat(ctx, store.ArchiveScript, maxMoved, KeptByAsynq, int64(KeptFor.Seconds()))
	if moved > 0 && !c.warned {
		c.warned = true
		c.logger.Warn("the archive is long: moving its oldest jobs to Headgate's own archive, because asynq would delete them", logkey.Queue, c.queue)
	}
	if err != nil {
		return fmt.Errorf("move archived jobs: %w", err)
	}
	return nil
}
