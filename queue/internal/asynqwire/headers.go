package asynqwire

// Headers of Headgate's tasks, beside asynq's own fields.
const (
	HeaderTenant      = "headgate-tenant"
	HeaderPriority    = "headgate-priority"
	HeaderMaxAttempts = "headgate-max-attempts"
	HeaderCost        = "headgate-cost"
	HeaderCosts       = "headgate-costs"
	HeaderAttributes  = "headgate-attributes"
	HeaderDeadline    = "headgate-deadline"
	HeaderAccount     = "headgate-account"
	HeaderKept        = "headgate-kept" // present if the job is kept once it is done: asynq does not tell its handlers

	// For a job that follows another.
	HeaderParent       = "headgate-parent"
	HeaderParentError  = "headgate-parent-error"
	HeaderParentResult = "headgate-parent-result" // base64: headers are text

	// For a periodic job.
	HeaderPeriodic = "headgate-periodic"
	HeaderTick     = "headgate-tick"
)

// NoTenant is the tenant of a task of asynq's own client that names none.
const NoTenant = "default"
