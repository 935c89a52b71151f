// Package serving determines which queues a worker serves.
package serving

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
)

// OfKinds returns the queues of kinds as clients choose them, in order: the queue whose
// limits list the kind, or else the queue with its name. without has the kinds whose name
// cannot be that of a queue.
func OfKinds(ctx context.Context, client redis.UniversalClient, kinds []string) (queues, without []string, err error) {
	known, err := client.HGetAll(ctx, store.RoutesKey).Result()
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		if queue := cmp.Or(known[kind], kind); check.QueuePattern.MatchString(queue) {
			queues = append(queues, queue)
		} else {
			without = append(without, kind)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(queues))), without, nil
}

type key struct{}

// With returns a context in which a worker runs that serves these queues, whatever its
// configuration. It is for package queuetest.
func With(ctx context.Context, queues []string) context.Context {
	return context.WithValue(ctx, key{}, queues)
}

// Queues returns the queues of [With]; nil if there are none.
func Queues(ctx context.Context) []string {
	queues, _ := ctx.Value(key{}).([]string)
	return queues
}
