package queue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// announce has the workers that dispatch a queue look at it at once: a lane may go on,
// because limits were changed, a pause was ended or permits came back. It only spares them
// the time until they look by themselves, so it is not tried twice. What enqueues announces
// the first job of a lane by itself (plan.lua).
func announce(ctx context.Context, client redis.UniversalClient, queue string) {
	_ = client.Publish(ctx, wakeChannel(queue), "").Err()
}

// announceToAll has all workers of a queue look at it, also those that stand by: calls in
// their hands may not go any more, because another worker's call began a pause or a hold.
func announceToAll(ctx context.Context, client redis.UniversalClient, queue string) {
	_ = client.Publish(ctx, wakeChannel(queue), toAll).Err()
}

// toAll is what an announcement says that is for all workers; others say nothing.
const toAll = "all"

func wakeChannel(queue string) string { return key(queue, "wake") }
