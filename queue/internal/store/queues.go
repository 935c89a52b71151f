package store

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/validation"
)

// CheckQueue returns an error if a queue does not exist. Otherwise a typing error would
// make an operator believe that there was nothing to do.
func CheckQueue(ctx context.Context, client redis.UniversalClient, queue string) error {
	listed, err := AllPartitions(ctx, client)
	if err != nil {
		return err
	}
	return CheckListed(queue, listed)
}

// CheckListed is [CheckQueue] for the result of [AllPartitions].
func CheckListed(queue string, listed []string) error {
	names := queuesOf(listed)
	if slices.Contains(names, queue) {
		return nil
	}
	return validation.NotFound("queue", "there is no queue "+check.Quote(queue)+check.Suggest(queue, names))
}

// Queues returns the queues of a Redis, sorted. The partitions of a queue are one queue.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names, err := AllPartitions(ctx, client)
	return queuesOf(names), err
}

func queuesOf(partitions []string) []string {
	names := make([]string, len(partitions))
	for i, name := range partitions {
		names[i] = partition.QueueOf(name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AllPartitions returns the names of the partitions of all queues of a Redis.
func AllPartitions(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names, err := client.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	return names, nil
}

const MaxEventReason = 300

// Horizon is how far ahead of now a slot may be given. Jobs that workers hold this long
// keep the rate exact while dispatch runs. It is not longer because a slot that is missed
// can be moved only if none was given after it, and at a few calls a second each slot
// counts.
const Horizon = 150 * time.Millisecond

// DirectLease is how long the permits of a call that is not in a queue outlive a process that does not renew
// them any more. Permits that move to another partition last as long as those that were just renewed.
const DirectLease = 30 * time.Second

// RoutesKey is the key of the hash that maps each kind to its queue. In a Cluster it is on the node of
// [asynqwire.Queues], so that clients need one node besides those of their tenants.
const RoutesKey = "headgate:{asynq:queues}:routes"

// PeriodicKey is the key of the hash of all periodic jobs.
const PeriodicKey = "headgate:periodic"
