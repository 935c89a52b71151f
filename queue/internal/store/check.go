package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// CheckTenant returns an error if the name is not valid or the queue does not exist.
func CheckTenant(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return validation.Field("tenant", reason)
	}
	return CheckQueue(ctx, client, queue)
}

// MaxContained is the maximum length in bytes of the part of a reason that is searched
// for.
const MaxContained = 512

// DefaultMaxAttempts is the number of attempts of a job that does not set it.
const DefaultMaxAttempts = 10
