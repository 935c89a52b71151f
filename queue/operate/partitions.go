package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// layoutOf returns the partitions of a queue. An undivided queue has no pins.
func layoutOf(set limits.Set, queue string) partition.Layout {
	l := partition.Layout{Queue: queue, N: max(set.Queues[queue].Partitions, 1)}
	for tenant, own := range set.Tenants {
		if own.Partition > 0 && l.N > 1 {
			if l.Pins == nil {
				l.Pins = map[string]int{}
			}
			l.Pins[tenant] = own.Partition
		}
	}
	return l
}

// arrange sets From of the layout with which a queue is published if it has other partitions in Redis: its
// tenants move then. It is kept until they have arrived. The error names what has to be changed.
func arrange(ctx context.Context, client redis.UniversalClient, layout *partition.Layout, set limits.Set) error {
	was, found, err := inRedis(ctx, client, *layout)
	if err != nil || !found {
		return err
	}
	if layout.From = was.From; was.From == nil && !was.Equal(*layout) {
		layout.From = &was
	}
	if was.From != nil {
		err = mayFollow(was, *layout)
	}
	if err != nil || layout.From == nil || layout.N > 1 {
		return err
	}
	// Until they are together, they share limits.
	q := set.Queues[layout.Queue]
	q.Partitions = layout.From.N
	set.Queues, set.Tenants = maps.Clone(set.Queues), nil
	set.Queues[layout.Queue] = q
	if err := set.Validate(); err != nil {
		return validation.Field("queues."+layout.Queue+".partitions", fmt.Sprintf(
			"1: its tenants come from %d partitions, and until all have arrived its limits must be such as partitions can have (%v): add what they cannot have after that", layout.From.N, err))
	}
	return nil
}

// inRedis returns the partitions that a queue has in Redis; false: it is not there. The first one to
// answer says it.
func inRedis(ctx context.Context, client redis.UniversalClient, layout partition.Layout) (was partition.Layout, found bool, err error) {
	listed, err := store.AllPartitions(ctx, client)
	if err != nil {
		return was, false, err
	}
	homes := withListed(layout.Names(), listed) // the limits of some may have been lost
	for _, home := range homes {
		fields, err := client.HMGet(ctx, store.Key(home, "limits"), "*", store.PinsField).Result()
		if store.Unreachable(err) && len(homes) > 1 {
			continue // another one says the same
		}
		if err != nil {
			return was, false, err
		}
		if text := store.Texts(fields); text[0] != "" {
			was, err := store.LayoutOf(layout.Queue, text[0], text[1])
			return was, err == nil, nil // what is damaged is replaced
		}
	}
	// Jobs that came before limits are in an undivided queue.
	counted, err := client.HGet(ctx, store.TenantsKey(layout.Queue), store.WholeQueue).Result()
	return partition.Layout{Queue: layout.Queue, N: 1}, err == nil && store.ReadCounts(counted).Jobs > 0, nil
}

// keepsOrder returns an error if new limits of a partition do not follow the ones that it has. Who published
// them has read others before.
func keepsOrder(queue string, before, after map[string]string) error {
	if before["*"] == "" {
		return nil
	}
	was, err := store.LayoutOf(queue, before["*"], before[store.PinsField])
	if err != nil {
		return nil // what is damaged is replaced
	}
	will, err := store.LayoutOf(queue, after["*"], after[store.PinsField])
	if err != nil {
		return err
	}
	return mayFollow(was, will)
}

// mayFollow returns an error if limits with a layout cannot be followed by those with another one: only one
// change of the partitions is under way at a time.
func mayFollow(was, will partition.Layout) error {
	switch {
	case was.Equal(will), was.From == nil && will.From != nil && was.Equal(*will.From):
		return nil
	case was.From != nil:
		return validation.Field("queues."+will.Queue+".partitions", fmt.Sprintf(
			"the tenants of the queue are on their way from %d to %d partitions: wait until they have arrived, or publish these", was.From.N, was.N))
	}
	err := validation.Field("queues."+will.Queue+".partitions", fmt.Sprintf("the queue got %d partitions meanwhile: publish again", was.N))
	return &meanwhileError{err}
}

// meanwhileError reports that a queue got other partitions while limits were published, or that its tenants have
// arrived. Publishing them again may help.
type meanwhileError struct{ error }

func (e *meanwhileError) Unwrap() error { return e.error }

// homes returns the partitions in which a filter can select jobs.
func (f Filter) homes(ctx context.Context, client redis.UniversalClient, queue string) ([]string, error) {
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil || l.Whole() {
		return []string{queue}, err
	}
	if f.ID != "" {
		home, lane, err := store.FindJob(ctx, client, l, f.ID)
		if err == nil && l.From != nil && lane != "" { // it may be on its way to another partition
			home, _, err = store.HomeOf(ctx, client, l, store.Unescape(store.ParseLane(lane).Tenant))
		}
		return []string{cmp.Or(home, queue)}, err
	}
	homes := homesOf(l, f.Tenant)
	if f.Tenant != "" && len(homes) > 1 { // none of its jobs is to be between the two when both were visited
		_, _, err = store.HomeOf(ctx, client, l, f.Tenant)
	}
	return homes, err
}

// withListed adds to partitions of a queue, of which the first is there, those in asynq's list: an interrupted
// removal, or a loss of limits, may have left them.
func withListed(homes, listed []string) []string {
	for _, name := range listed {
		if partition.QueueOf(name) == homes[0] && !slices.Contains(homes, name) {
			homes = append(homes, name)
		}
	}
	return homes
}

// homesOf returns the partition of a tenant, and two if it moves; of "" all.
func homesOf(l partition.Layout, tenant string) []string {
	if tenant != "" {
		return l.Homes(tenant)
	}
	return l.Names()
}
