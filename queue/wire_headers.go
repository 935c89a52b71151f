package queue

// Headers of our tasks, beside asynq's own fields.
const (
	headerTenant      = "headgate-tenant"
	headerPriority    = "headgate-priority"
	headerMaxAttempts = "headgate-max-attempts"
	headerCost        = "headgate-cost"
	headerCosts       = "headgate-costs"
	headerAttributes  = "headgate-attributes"
	headerDeadline    = "headgate-deadline"
	headerKept        = "headgate-kept" // there when the job is remembered once it is done: asynq does not tell its handlers

	// Of a job that follows another.
	headerParent       = "headgate-parent"
	headerParentError  = "headgate-parent-error"
	headerParentResult = "headgate-parent-result" // base64: headers are text

	// Of a periodic job.
	headerPeriodic = "headgate-periodic"
	headerTick     = "headgate-tick"
)

// noTenant is who a task of asynq's own client stands for when it does not say.
const noTenant = "default"
