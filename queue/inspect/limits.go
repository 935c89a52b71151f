package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// LimitsInForce returns the effective limits of a queue for a tenant, or with "" for
// tenants without differences.
func LimitsInForce(ctx context.Context, client redis.UniversalClient, queue, tenant string) ([]limits.Effective, error) {
	if reason := check.Text(tenant, check.MaxTenant); tenant != "" && reason != "" {
		return nil, validation.Field("tenant", reason)
	}
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return nil, err
	}
	field := rediskey.Escape(tenant)
	l, err := store.ReadLayout(ctx, client, queue)
	var e effective.Limits
	if err == nil {
		var home string
		if home, _, err = store.HomeOf(ctx, client, l, tenant); err == nil {
			e, _, err = effective.ReadTenants(ctx, client, home, field)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("limits of queue %q: %w", queue, err)
	}
	all := make([]limits.Effective, 0, len(e.Queue.Limits))
	for i := range e.Queue.Limits {
		of := e.Of(i, field)
		if ofGroup := slices.Contains(of.Per, limits.GroupAttribute); !ofGroup || tenant == "" || e.Tenants[field].Group != "" {
			all = append(all, of)
		}
	}
	return all, nil
}
