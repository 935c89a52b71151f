package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// heedEvery is the minimum time between two rounds because of announcements. Without it,
// many changes at once would keep every worker of a fleet busy.
const heedEvery = fastestDispatch

// listen makes dispatchers start a round when something is announced for their queue, until
// ctx is done. Dispatchers that stand by react only to announcements to all. All of them
// start a round after each subscription, because earlier announcements were missed. heard is called
// for all of these. The lessor of a queue is told which partitions may want a lease.
func listen(ctx context.Context, client redis.UniversalClient, dispatchers []*dispatcher, heard func()) {
	of, names, lessors := map[string]*dispatcher{}, []string{}, map[string]*lessor{}
	for _, d := range dispatchers {
		name := store.WakeChannel(d.queue)
		of[name], names = d, append(names, name)
		if d.lessor != nil {
			lessors[d.queue] = d.lessor
		}
	}
	type sort struct {
		channel string
		all     bool
	}
	heeded := map[sort]time.Time{} // when the last round was started, or will be
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
				if d := of[message.Channel]; message.Payload == store.ToLessor {
					lessors[d.of.Queue].look(d.queue)
					continue
				}
				s = sort{message.Channel, message.Payload == store.ToAll}
			}
			heard()
			d, now := of[s.channel], time.Now()
			if heeded[s].After(now) || !s.all && d.stands.Load() {
				continue // the round that is due sees the change, or the leader's does
			}
			wait := max(heeded[s].Add(heedEvery).Sub(now), 0)
			heeded[s] = now.Add(wait)
			wake := d.wake
			if s.all {
				wake = func() {
					d.call()
					d.lessor.call()
					lessors[d.of.Queue].look(d.queue)
				}
			}
			time.AfterFunc(wait, wake)
		}
	}
}
