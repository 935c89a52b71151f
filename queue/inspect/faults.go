package inspect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Fault is something in Redis that the scripts of a queue cannot understand, such
// as a key of another type or a field that is no number.
type Fault struct {
	// What names it, such as "job 0198…" or "lane acme"; "script" where a script
	// could not go on at all.
	What   string
	Reason string
	At     time.Time // when it was first seen, on the clock of Redis; zero: not known
}

// Faults lists what the scripts of a queue could not understand, by time: at most
// 100, and none when nothing was reported for an hour.
func Faults(ctx context.Context, client redis.UniversalClient, queue string) ([]Fault, error) {
	reports, err := store.ReadFaults(ctx, client, queue)
	faults := make([]Fault, len(reports))
	for i, report := range reports {
		faults[i] = Fault(report)
	}
	return faults, err
}
