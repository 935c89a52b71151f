package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// Comparison is how the published limits of a queue differ from others. Overrides are left
// out.
type Comparison struct {
	Queue string

	// New reports that the queue has no published limits yet, or those of an earlier build, which did
	// not note when they were first published.
	New bool

	// Before and After are the differing limits and settings as texts, by name; what differs
	// for one tenant is named "TENANT: NAME", and for one group "group GROUP: NAME".
	Before, After map[string]string

	// Tenants is the number of tenants with differing values of their own.
	Tenants int
}

// Equal reports whether publishing the limits would change nothing.
func (c Comparison) Equal() bool { return len(c.Before) == 0 && len(c.After) == 0 && !c.New }

// Compare says what [Publish] would change, for each queue in limits, sorted by name. It
// changes nothing.
func Compare(ctx context.Context, client redis.UniversalClient, limits limits.Set) ([]Comparison, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	all := []Comparison{}
	for _, name := range slices.Sorted(maps.Keys(limits.Queues)) {
		one, err := compareQueue(ctx, client, name, limits)
		if err != nil {
			return nil, fmt.Errorf("compare the limits of queue %q: %w", name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func compareQueue(ctx context.Context, client redis.UniversalClient, queue string, set limits.Set) (Comparison, error) {
	layout := layoutOf(set, queue)
	was, found, err := inRedis(ctx, client, layout)
	if err != nil {
		return Comparison{}, err
	}
	if found && was.From != nil {
		layout.From = was.From // tenants on their way are no difference
	}
	after, err := stored(set, layout)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{Queue: queue}
	var before map[string]string
	for _, name := range layout.Names() {
		if before, err = store.ScanHash(ctx, client, store.Key(name, "limits")); err != nil {
			return Comparison{}, err
		}
		c.New = c.New || before[store.EpochField] == ""
		delete(before, store.EpochField)
		if !maps.Equal(before, after) {
			break
		}
	}
	if maps.Equal(before, after) {
		return c, nil
	}
	old, will, err := readBoth(before, after, nil, time.Time{})
	if err != nil {
		return Comparison{}, err
	}
	c.Before, c.After = differences(old.Texts(), will.Texts())
	c.Tenants = len(differing(before, after))
	return c, nil
}

// differing returns the escaped tenants whose own values differ.
func differing(before, after map[string]string) map[string]bool {
	tenants := map[string]bool{}
	was, will := differences(before, after)
	for _, fields := range []map[string]string{was, will} {
		for field := range fields {
			if escaped, ok := strings.CutPrefix(field, "t:"); ok {
				tenants[escaped] = true
			}
		}
	}
	return tenants
}

// Changes returns how often the limits of queues were changed, by publishing or by overrides.
// Programs that cache or compare limits read them again if the number differs.
func Changes(ctx context.Context, client redis.UniversalClient, queues ...string) (map[string]int64, error) {
	layouts, err := store.ReadLayouts(ctx, client, queues...)
	if err != nil {
		return nil, err
	}
	pipe := client.Pipeline()
	replies := map[string][]*redis.StringCmd{}
	for _, l := range layouts {
		for _, home := range l.Names() {
			replies[l.Queue] = append(replies[l.Queue], pipe.HGet(ctx, store.Key(home, "totals"), "limits"))
		}
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	changes := map[string]int64{}
	for queue, counts := range replies {
		for _, count := range counts {
			n, _ := count.Int64() // 0: never
			changes[queue] += n
		}
	}
	return changes, nil
}

// PublishedTogether is like [Published], with all queues that share a budget with these: a limits file with a budget has
// all of them.
func PublishedTogether(ctx context.Context, client redis.UniversalClient, queues ...string) (limits.Set, error) {
	set, err := Published(ctx, client, queues...)
	for more := sharing(set, queues); err == nil && len(more) > 0; more = sharing(set, queues) {
		queues = slices.Concat(queues, more)
		set, err = Published(ctx, client, queues...)
	}
	return set, err
}

// sharing returns the queues that share a budget with those of a set, and are not among names.
func sharing(set limits.Set, names []string) (more []string) {
	for _, q := range set.Queues {
		for _, limit := range q.Limits {
			for _, other := range limit.Queues {
				if !slices.Contains(names, other) && !slices.Contains(more, other) {
					more = append(more, other)
				}
			}
		}
	}
	return more
}

// Published returns the published limits of queues, without overrides, and the groups that have tenants. A tenant whose
// weight, guarantee, group, send window or partition differs between queues, because different files were published, is
// an error: a set of limits has one for each tenant.
func Published(ctx context.Context, client redis.UniversalClient, queues ...string) (limits.Set, error) {
	set := limits.Set{Queues: map[string]limits.Queue{}, Tenants: map[string]limits.Tenant{}, Groups: map[string]limits.Group{}}
	published := map[string]effective.Limits{}
	for _, queue := range queues {
		fields, err := store.ScanHash(ctx, client, store.Key(queue, "limits"))
		if err != nil {
			return limits.Set{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
		}
		if len(fields) == 0 {
			continue
		}
		e, err := effective.Read(fields, nil, time.Time{})
		if err != nil {
			return limits.Set{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
		}
		if set.Queues[queue], err = e.Queue.Decode(); err != nil {
			return limits.Set{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
		}
		published[queue] = e
		for escaped := range e.Tenants {
			tenant := store.Unescape(escaped)
			own, err := e.Tenant(queue, escaped, set.Queues[queue].Limits)
			if err != nil {
				return limits.Set{}, fmt.Errorf("read the limits of tenant %q in queue %q: %w", tenant, queue, err)
			}
			maps.Copy(own.Limits, set.Tenants[tenant].Limits)
			own.Partition = set.Tenants[tenant].Partition
			set.Tenants[tenant] = own
			if own.Group == "" {
				continue
			}
			group, known := set.Groups[own.Group]
			if !known {
				group.Limits = map[string]map[string]limits.Change{}
				set.Groups[own.Group] = group
			}
			if changes := e.GroupChanges(escaped, set.Queues[queue].Limits); len(changes) > 0 {
				group.Limits[queue] = changes
			}
		}
		for tenant, i := range e.Pins {
			own := set.Tenants[tenant]
			own.Partition = i
			set.Tenants[tenant] = own
		}
	}
	if err := sameInAll(published, set.Tenants); err != nil {
		return limits.Set{}, err
	}
	return set, nil
}

// sameInAll checks that the weight, the guarantee, the group and the send window of each tenant are the same in all
// queues, and its partition in all that have several. A queue that does not have the tenant has
// the defaults.
func sameInAll(published map[string]effective.Limits, tenants map[string]limits.Tenant) error {
	names := slices.Sorted(maps.Keys(published))
	divided := slices.DeleteFunc(slices.Clone(names), func(queue string) bool { return published[queue].Queue.Partitions <= 1 })
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		escaped := rediskey.Escape(tenant)
		first := published[names[0]].Tenants[escaped]
		for _, queue := range names[1:] {
			own := published[queue].Tenants[escaped]
			if cmp.Or(own.Weight, 1) != cmp.Or(first.Weight, 1) || own.Part != first.Part || own.Group != first.Group || own.Window != first.Window {
				return fmt.Errorf("tenant %q has another weight, guarantee, group or send window in queue %q than in queue %q: export one queue at a time", tenant, queue, names[0])
			}
		}
		for _, queue := range divided {
			if published[queue].Pins[tenant] != published[divided[0]].Pins[tenant] {
				return fmt.Errorf("tenant %q has another partition in queue %q than in queue %q: export one queue at a time", tenant, queue, divided[0])
			}
		}
	}
	return nil
}
