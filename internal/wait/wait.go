// Package wait waits for a time that a context can cut short.
package wait

import (
	"context"
	"time"
)

// For returns nil after d, or the error of ctx if it is done before. With d <= 0 it does not wait.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
