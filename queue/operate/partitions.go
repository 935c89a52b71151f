package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

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

// The partitions of a queue are fixed while it is in Redis: tenants would move, and their jobs and what
// was used of their limits would not.
const fixed = "keep it, or stop the queue's workers, let it run empty and take it out of Redis first (enqueue unregister)"

// mayHave returns an error if a queue that is in Redis cannot have these partitions.
func mayHave(ctx context.Context, client redis.UniversalClient, layout partition.Layout) error {
	listed, err := store.AllPartitions(ctx, client)
	if err != nil {
		return err
	}
	if layout.N == 1 && len(withListed([]string{layout.Queue}, listed)) == 1 {
		return nil // putInForce compares it with the one that is there
	}
	for _, home := range withListed(layout.Names(), listed) { // the limits of some may have been lost
		fields, err := client.HMGet(ctx, store.Key(home, "limits"), "*", store.PinsField).Result()
		if store.Unreachable(err) && layout.N > 1 {
			continue // another one says the same
		}
		if err != nil {
			return err
		}
		if text := store.Texts(fields); text[0] != "" {
			return keeps(layout, text[0], text[1])
		}
	}
	counted, err := client.HGet(ctx, store.TenantsKey(layout.Queue), store.WholeQueue).Result()
	if err == nil && layout.N > 1 && store.ReadCounts(counted).Jobs > 0 {
		return validation.Field("queues."+layout.Queue+".partitions", fmt.Sprintf("%d: the queue has jobs, and no limits that spread its tenants: %s", layout.N, fixed))
	}
	return nil
}

// keepsLayout returns an error if new limits of a queue change its partitions.
func keepsLayout(queue string, before, after map[string]string) error {
	if before["*"] == "" {
		return nil
	}
	layout, err := store.LayoutOf(queue, after["*"], after[store.PinsField])
	if err != nil {
		return err
	}
	return keeps(layout, before["*"], before[store.PinsField])
}

// keeps returns an error if a queue with these stored limits has other partitions.
func keeps(layout partition.Layout, limits, pins string) error {
	was, err := store.LayoutOf(layout.Queue, limits, pins)
	switch {
	case err != nil, was.Equal(layout):
		return nil // what is damaged is replaced
	case was.N != layout.N:
		return validation.Field("queues."+layout.Queue+".partitions", fmt.Sprintf("%d: the queue is in Redis with %d: %s", layout.N, was.N, fixed))
	}
	before, after := differences(texts(was.Pins), texts(layout.Pins))
	maps.Copy(before, after)
	tenant := slices.Min(slices.Collect(maps.Keys(before)))
	return validation.Field("tenants."+tenant+".partition", fmt.Sprintf("it differs from that of queue %s in Redis: %s", layout.Queue, fixed))
}

func texts(pins map[string]int) map[string]string {
	all := map[string]string{}
	for tenant, i := range pins {
		all[tenant] = strconv.Itoa(i)
	}
	return all
}

// homes returns the partitions in which a filter can select jobs.
func (f Filter) homes(ctx context.Context, client redis.UniversalClient, queue string) ([]string, error) {
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil || l.N == 1 {
		return []string{queue}, err
	}
	if f.ID != "" {
		home, _, err := store.FindJob(ctx, client, l, f.ID)
		return []string{cmp.Or(home, queue)}, err
	}
	return homesOf(l, f.Tenant), nil
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

// homesOf returns the partition of a tenant; of "" all.
func homesOf(l partition.Layout, tenant string) []string {
	if tenant != "" {
		return []string{l.Home(tenant)}
	}
	return l.Names()
}

// ofEach asks all partitions at once, and returns their answers and errors in order.
func ofEach[T any](homes []string, ask func(home string) (T, error)) ([]T, []error) {
	answers, errs := make([]T, len(homes)), make([]error, len(homes))
	var asking sync.WaitGroup
	for i, home := range homes {
		asking.Go(func() { answers[i], errs[i] = ask(home) })
	}
	asking.Wait()
	return answers, errs
}
