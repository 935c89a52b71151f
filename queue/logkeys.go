package queue

// Attribute keys of log lines.
const (
	logQueue   = "queue"
	logJob     = "job"
	logTenant  = "tenant"
	logKind    = "kind"
	logError   = "error"
	logMessage = "message"
	logAttempt = "attempt"
	logOutcome = "outcome"
	logTook    = "took"
	logWhat    = "what"
	logReason  = "reason"
)
