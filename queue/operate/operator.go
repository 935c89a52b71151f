// Package operate has what operators do to queues: publish limits, change a limit for a tenant,
// pause and resume, cancel, run, retry and delete jobs. Every change is in the audit, with who
// made it and why.
package operate

import (
	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// Operator is who changes something, and why. Both are required, for those who
// wonder later.
type Operator struct {
	Actor  string
	Reason string
}

func (by Operator) check() error {
	if reason := check.Text(by.Actor, 256); reason != "" {
		return validation.Field("actor", reason)
	}
	if reason := check.Text(by.Reason, 1024); reason != "" {
		return validation.Field("reason", reason)
	}
	return nil
}
