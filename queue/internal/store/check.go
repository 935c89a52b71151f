package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// CheckTenant refuses a name that is none, and a queue that is not there.
func CheckTenant(ctx context.Context, client redis.UniversalClient, queue, tenant string) error {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return validation.Field("tenant", reason)
	}
	return CheckQueue(ctx, client, queue)
}

// MaxContained bounds the part of a reason that is looked for.
const MaxContained = 512

// DefaultMaxAttempts is the number of attempts of a job that says none.
const DefaultMaxAttempts = 10
