package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Announce has the workers that dispatch a queue look at it at once: a lane may go on,
// because limits were changed, a pause was ended or permits came back. It only spares them
// the time until they look by themselves, so it is not tried twice. What enqueues announces
// the first job of a lane by itself (plan.lua).
func Announce(ctx context.Context, client redis.UniversalClient, queue string) {
	_ = client.Publish(ctx, WakeChannel(queue), "").Err()
}

// AnnounceToAll has all workers of a queue look at it, also those that stand by: calls in
// their hands may not go any more, because another worker's call began a pause or a hold.
func AnnounceToAll(ctx context.Context, client redis.UniversalClient, queue string) {
	_ = client.Publish(ctx, WakeChannel(queue), ToAll).Err()
}

// ToAll is what an announcement says that is for all workers; others say nothing.
const ToAll = "all"

// WakeChannel is the channel of a queue on which its workers listen.
func WakeChannel(queue string) string { return Key(queue, "wake") }
