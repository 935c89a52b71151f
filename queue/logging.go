package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Logging logs every call when it ended: the job's id, queue, kind, tenant and
// attempt, how long it took and the outcome, at the given level. It never logs
// payloads or headers, nor the text of errors, which may quote them: the worker
// itself logs why calls failed, to its Config.Logger.
func Logging(logger *slog.Logger, level slog.Level) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, payload []byte) error {
			began := time.Now()
			err := errPanicked // unless next returns
			defer func() {
				job, _ := Current(ctx)
				logger.LogAttrs(ctx, level, "call", slog.String(logJob, job.ID), slog.String(logQueue, job.Queue),
					slog.String(logKind, job.Kind), slog.String(logTenant, job.Tenant), slog.Int(logAttempt, job.Attempt),
					slog.Duration(logTook, time.Since(began)), slog.String(logOutcome, string(OutcomeOf(ctx, err))))
			}()
			err = next(ctx, payload)
			return err
		}
	}
}

var errPanicked = errors.New("panicked")
