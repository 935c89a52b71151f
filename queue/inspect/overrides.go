package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// Published returns the limits that were published for a queue, without the differences
// of tenants. It is zero for a queue without limits.
func Published(ctx context.Context, client redis.UniversalClient, queue string) (limits.Queue, error) {
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return limits.Queue{}, err
	}
	return effective.Published(ctx, client, queue)
}

// Overridden is a limit that an operator changed for a tenant. If the change does not fit
// the limits published since, NotInEffect says so, and the limit is in force without the
// change; if the queue no longer has the limit, only its name is set. Until, Actor and
// Reason are always those of the override.
type Overridden struct {
	Tenant string
	limits.Effective
	File limits.Effective // the limit without the change
}

const maxOverridden = 1000

// Overrides returns the limits of a queue that operators changed, by tenant: for these
// tenants, or for all if none is given; 1,000 at most. Overrides that have ended are left
// out.
func Overrides(ctx context.Context, client redis.UniversalClient, queue string, tenants ...string) ([]Overridden, error) {
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return nil, err
	}
	all, err := ofAll(ctx, client, queue, func(name string) ([]Overridden, error) { return overridesIn(ctx, client, name, tenants) })
	if err != nil {
		return nil, fmt.Errorf("overrides of queue %q: %w", queue, err)
	}
	merged := slices.Concat(all...)
	slices.SortStableFunc(merged, func(a, b Overridden) int { return strings.Compare(a.Tenant, b.Tenant) })
	return merged[:min(len(merged), maxOverridden)], nil
}

// overridesIn returns the overrides in a partition.
func overridesIn(ctx context.Context, client redis.UniversalClient, queue string, tenants []string) ([]Overridden, error) {
	var names []string // escaped
	for _, tenant := range tenants {
		names = append(names, rediskey.Escape(tenant))
	}
	if len(tenants) == 0 {
		changed, err := store.ScanHash(ctx, client, store.Key(queue, "overrides"))
		if err != nil {
			return nil, err
		}
		names = slices.Collect(maps.Keys(changed))
	}
	slices.Sort(names)
	var all []Overridden
	for some := range slices.Chunk(slices.Compact(names), store.MaxKeys) {
		with, _, err := effective.ReadTenants(ctx, client, queue, some...)
		if err != nil {
			return nil, err
		}
		without := with
		without.Overrides = nil
		for _, tenant := range some {
			for _, limit := range slices.Sorted(maps.Keys(with.Overrides[tenant])) {
				o := with.Overrides[tenant][limit]
				if !o.Holds(with.Now) {
					continue
				}
				file := limits.Effective{Name: limit, From: "queue"}
				f := file
				if i := slices.IndexFunc(with.Queue.Limits, func(l effective.Limit) bool { return l.Name == limit }); i >= 0 {
					f, file = with.Of(i, tenant), without.Of(i, tenant)
				}
				effective.By(&f, o)
				f.NotInEffect = with.Problem(limit, tenant)
				all = append(all, Overridden{store.Unescape(tenant), f, file})
			}
		}
	}
	return all, nil
}
