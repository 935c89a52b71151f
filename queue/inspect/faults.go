package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Fault is damaged data in Redis that the scripts of a queue found, such as a key of
// another type or a field that is not a number.
type Fault struct {
	// What names it, such as "job 0198…" or "lane acme"; "script" if a script could not
	// run at all.
	What   string
	Reason string
	At     time.Time // when it was first seen, by the clock of Redis; zero: not known
}

// Faults returns the faults of a queue, by time: at most 100, and none if no fault was
// reported for an hour.
func Faults(ctx context.Context, client redis.UniversalClient, queue string) ([]Fault, error) {
	all, err := ofAll(ctx, client, queue, func(name string) ([]Fault, error) { return faultsIn(ctx, client, name) })
	return mergeFaults(slices.Concat(all...)), err
}

func faultsIn(ctx context.Context, client redis.UniversalClient, queue string) ([]Fault, error) {
	reports, err := store.ReadFaults(ctx, client, queue)
	faults := make([]Fault, len(reports))
	for i, report := range reports {
		faults[i] = Fault(report)
	}
	return faults, err
}
