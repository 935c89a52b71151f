// Package logkey defines the attribute keys of log lines.
package logkey

// Attribute keys of log lines.
const (
	Queue   = "queue"
	Job     = "job"
	Tenant  = "tenant"
	Kind    = "kind"
	Error   = "error"
	Attempt = "attempt"
	Outcome = "outcome"
	Took    = "took"
	What    = "what"
	Reason  = "reason"
)
