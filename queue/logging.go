package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate/queue/internal/logkey"
)

// Logging returns middleware that logs every call when it has ended, at the given level:
// the job's id, queue, kind, tenant and attempt, the duration and the outcome. It does not
// log payloads, headers, or error texts, which may quote them. The worker logs the errors of
// failed calls to [Config].Logger.
func Logging(logger *slog.Logger, level slog.Level) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			began := time.Now()
			err := errPanicked // unless next returns
			defer func() {
				job, _ := Current(ctx)
				logger.LogAttrs(ctx, level, "call", slog.String(logkey.Job, job.ID), slog.String(logkey.Queue, job.Queue),
					slog.String(logkey.Kind, job.Kind), slog.String(logkey.Tenant, job.Tenant), slog.Int(logkey.Attempt, job.Attempt),
					slog.Duration(logkey.Took, time.Since(began)), slog.String(logkey.Outcome, string(OutcomeOf(ctx, err))))
			}()
			err = next(ctx, payload)
			return err
		}
	}
}

var errPanicked = errors.New("panicked")
