package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// heedEvery is how often a dispatcher looks because of what is announced, or a storm of
// changes would keep every worker of a fleet at work.
const heedEvery = fastestDispatch

// listen lets the dispatchers look when something is announced, until ctx is done. Those
// that stand by only look because of what is for all. All look when they begin to listen,
// also again: what was announced before was not heard.
func listen(ctx context.Context, client redis.UniversalClient, dispatchers []*dispatcher) {
	of, names := map[string]*dispatcher{}, []string{}
	for _, d := range dispatchers {
		name := store.WakeChannel(d.queue)
		of[name], names = d, append(names, name)
	}
	type sort struct {
		channel string
		all     bool
	}
	heeded := map[sort]time.Time{} // or, in the future, when it will be
	channel := client.Subscribe(ctx, names...)
	defer channel.Close()
	messages := channel.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case message, open := <-messages:
			if !open {
				return
			}
			var s sort
			switch message := message.(type) {
			case *redis.Subscription:
				s = sort{message.Channel, true}
			case *redis.Message:
				s = sort{message.Channel, message.Payload == store.ToAll}
			}
			d, now := of[s.channel], time.Now()
			if heeded[s].After(now) || !s.all && d.stands.Load() {
				continue // the look that is due sees it, too, or the leader does
			}
			wait := max(heeded[s].Add(heedEvery).Sub(now), 0)
			heeded[s] = now.Add(wait)
			wake := d.wake
			if s.all {
				wake = d.call
			}
			time.AfterFunc(wait, wake)
		}
	}
}
