// Package queue runs background jobs whose outbound calls are shaped: each
// goes exactly when every limit it stands under allows.
//
// A [Client] accepts jobs, a [Worker] makes their calls through handlers
// registered with [Handle], and [limits.Set] say how fast. A job waits in the lane
// of its tenant, is released once with a slot, is held until that slot, and is
// sent. What always holds:
//
//   - No limit is ever exceeded: at the moment of sending, any two calls i..j of
//     one bucket satisfy count ≤ burst + rate × (t_j − t_i + 5 ms).
//   - An accepted job ends as exactly one of completed, archived with a reason
//     (expired is one), or cancelled by an operator. Waiting spends no attempt.
//   - A job is called at least once, and with the same idempotency key each time.
//   - A shared limit is divided between tenants in proportion to their weights.
//
// Putting jobs in: [Client.Enqueue] and [Client.EnqueueMany], with keys
// ([Job].Key, [KeyUntil]), times and deadlines, and what follows a job
// ([Job].OnSuccess); [SetPeriodic] for those that come again and again.
//
// Making calls: [Handle] or [HandleResult], [Current] for the job, [SetResult]
// and [SetActual] for what came of it. The handler's error decides on the [lifecycle.Outcome].
// [Worker.Use] and [Client.Use] put something around all of them.
//
// When they go: [operate.Publish] puts [limits.Set] in force: rates, concurrency, units,
// weights, [sendwindow.Window] and caps. [Priority] orders the jobs of one tenant.
//
// For operators: [operate.PauseJobs], [operate.Apply] with a [operate.Verb], [operate.SetOverride], [operate.Audit],
// [Explain], [Estimate], [inspect.ListArchived].
//
// Jobs are asynq tasks and lanes are asynq groups, so asynq's Inspector and
// command line see and manage them; no other asynq server may serve our queues.
// Redis 7.0 or later is needed.
//
// The manual, with the bounds in numbers and a table for those who come from
// other queues, is docs/queue.md of the repository:
// https://github.com/headgate/headgate/blob/main/docs/queue.md.
package queue
