package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
)

// Moving reports whether Redis refused a command because its slot moves to another node of a Cluster,
// or has moved. The command was not done.
func Moving(err error) bool {
	for _, word := range []string{"TRYAGAIN ", "MOVED ", "ASK "} {
		if redis.HasErrorPrefix(err, word) {
			return true
		}
	}
	return false
}

const (
	minMovingPause = 10 * time.Millisecond
	maxMovingPause = 200 * time.Millisecond
)

// Patient does one step, and does it again while its slot moves, until ctx is done; or for up to
// [Timeout] if ctx has no deadline.
func Patient(ctx context.Context, step func() error) error {
	end, bounded := ctx.Deadline()
	if !bounded {
		end = time.Now().Add(Timeout)
	}
	for pause := minMovingPause; ; pause = min(2*pause, maxMovingPause) {
		err := step()
		if !Moving(err) || time.Until(end) < pause {
			return err
		}
		if wait.For(ctx, pause) != nil {
			return err
		}
	}
}
