package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// announce has the workers of a queue look at it at once: a lane may go on, because
// limits were changed, a pause was ended or permits came back, or calls in their hands
// may not go any more, because another worker's call began a pause or a hold. It only
// spares them the time until they look by themselves, so it is not tried twice. What
// enqueues announces the first job of a lane by itself (plan.lua).
func announce(ctx context.Context, client redis.UniversalClient, queue string) {
	_ = client.Publish(ctx, wakeChannel(queue), "").Err()
}

func wakeChannel(queue string) string { return key(queue, "wake") }

// heedEvery is how often a dispatcher looks because of what is announced, or a storm of
// changes would keep every worker of a fleet at work.
const heedEvery = fastestDispatch

// listen lets the dispatchers look when something is announced, until ctx is done.
func listen(ctx context.Context, client redis.UniversalClient, dispatchers []*dispatcher) {
	of, names := map[string]*dispatcher{}, []string{}
	for _, d := range dispatchers {
		name := wakeChannel(d.queue)
		of[name], names = d, append(names, name)
	}
	heeded := map[string]time.Time{} // or, in the future, when it will be
	channel := client.Subscribe(ctx, names...)
	defer channel.Close()
	messages := channel.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case message, open := <-messages:
			if !open {
				return
			}
			name, now := message.Channel, time.Now()
			if heeded[name].After(now) {
				continue // the look that is due sees it, too
			}
			wait := max(heeded[name].Add(heedEvery).Sub(now), 0)
			heeded[name] = now.Add(wait)
			time.AfterFunc(wait, of[name].wake)
		}
	}
}
