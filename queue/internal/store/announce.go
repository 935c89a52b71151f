package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Announce tells the workers that dispatch a queue to look at it at once, because limits
// were changed, a pause was ended or permits came back. It only saves the time until they
// look by themselves, so it is not retried. Scripts announce the first job of a lane
// themselves (plan.lua).
func Announce(ctx context.Context, client redis.UniversalClient, queue string) {
	publish(ctx, client, queue, "")
}

// AnnounceToAll tells all workers of a queue to look at it, including those that stand
// by. The calls that they hold may not go any more, because another worker's call began a
// pause or a hold.
func AnnounceToAll(ctx context.Context, client redis.UniversalClient, queue string) {
	publish(ctx, client, queue, ToAll)
}

// publish sends a message to the wake channel of a queue. By itself, a Cluster client sends it to any node, and waits
// for one that does not answer. The channel's name has the hash tag of the queue: as a key, it selects the queue's node.
func publish(ctx context.Context, client redis.UniversalClient, queue, message string) {
	cmd := redis.NewIntCmd(ctx, "publish", WakeChannel(queue), message)
	cmd.SetFirstKeyPos(1)
	_ = client.Process(ctx, cmd)
}

// ToAll is the message of an announcement to all workers. Others have the message "", or [ToLessor].
const ToAll = "all"

// ToLessor is the message of an announcement to the worker that leases limits to a partition: it may want some again.
const ToLessor = "lease"

// WakeChannel returns the channel of a queue on which its workers listen.
func WakeChannel(queue string) string { return Key(queue, "wake") }
