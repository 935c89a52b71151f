// Package operate has the actions of operators: publish limits, change a limit for a
// tenant, pause and resume, and cancel, run, retry and delete jobs. Each change is
// recorded in the audit, with who made it and why.
package operate

import (
	"context"
	"errors"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// Operator is who makes a change, and why, as recorded in the audit. Actor and Reason are
// required.
type Operator struct {
	Actor  string
	Reason string

	// Log is called with the entry of each change that was made, or may have been made: see [AuditEntry.Unsure]. nil: the
	// entries are only in Redis.
	Log func(AuditEntry)
}

func (by Operator) log(e AuditEntry) {
	if by.Log != nil {
		by.Log(e)
	}
}

// unsure logs a change that was sent if the error means that Redis gave no answer: it may be in force.
func (by Operator) unsure(err error, e AuditEntry) {
	if noAnswer(err) {
		e.Unsure = true
		by.log(e)
	}
}

func noAnswer(err error) bool {
	return store.Unreachable(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Check returns the errors for the fields that cannot be accepted, joined.
func (by Operator) Check() error {
	var errs []error
	if reason := check.Text(by.Actor, 256); reason != "" {
		errs = append(errs, validation.Field("actor", reason))
	}
	if reason := check.Text(by.Reason, 1024); reason != "" {
		errs = append(errs, validation.Field("reason", reason))
	}
	return errors.Join(errs...)
}
