// Package queue is a background job queue for outbound calls. It sends each call as soon
// as all limits that apply to it allow.
//
// A [Client] enqueues jobs. A [Worker] makes their calls through handlers registered with
// [Handle]. Published limits say how fast the calls may go. A job waits in a lane of its
// tenant until it is released with a slot, the moment at which every limit admits it. The
// worker holds the call until that moment.
//
// # States
//
//	scheduled ───┐
//	             ▼
//	enqueue ► waiting ──► active ──┬─► completed   the call succeeded
//	             ▲                 ├─► archived    permanent, unknown, expired, attempts used up
//	             ├──── retry ◄─────┤               the call failed, or PostponeUntil named a time
//	             └─────────────────┘               throttled, missed its slot, worker died
//
// Operators can cancel a job that is not yet active, which archives it, and retry or
// delete archived jobs. [lifecycle.State] and [lifecycle.Outcome] list all states of a job
// and all outcomes of a run.
//
// # Guarantees
//
//   - No limit is exceeded: when they are sent, any two calls i..j of one token or leaky
//     bucket satisfy count ≤ burst + rate × (t_j − t_i + 5 ms); windows keep to their counts.
//   - An accepted job ends as completed, or archived with a reason (such as expired, or
//     cancelled by an operator). Waiting spends no attempt.
//   - Calls are made at least once, every time with the same idempotency key.
//   - A shared limit is divided between tenants in proportion to their weights.
//
// # Enqueueing
//
// [Client.Enqueue] and [Client.EnqueueMany] enqueue jobs. A [Job] can have a key that
// makes it unique (Key, KeyUntil, KeyWindow), an earliest time and a deadline, a
// [Priority] among the jobs of its tenant, and follow-up jobs (OnSuccess, OnFailure,
// Callback). [Client.SetPeriodic] enqueues a job on a schedule. [Client.Result] returns a job's
// state and result.
//
// # Handling
//
// [Handle] and [HandleResult] register handlers. In a handler, [Current] returns the job,
// [SetResult] stores a result, [SetActual] corrects the job's costs and [Progress] reports
// how far the call has come. The handler's error decides what happens next, see [Handle]. [Worker.Use] and [Client.Use] add
// middleware.
//
// # Related packages
//
//   - [github.com/headgate/headgate/queue/limits]: limits, weights, backlog caps
//   - [github.com/headgate/headgate/queue/sendwindow]: hours in which calls may go
//   - [github.com/headgate/headgate/queue/limitsfile]: reads limits from a YAML file
//   - [github.com/headgate/headgate/queue/operate]: publish limits, override them, pause,
//     cancel, run, retry and delete jobs, read the audit
//   - [github.com/headgate/headgate/queue/inspect]: why a job waits and when it goes,
//     backlogs, archived jobs
//   - [github.com/headgate/headgate/queue/lifecycle]: states, answers and outcomes of jobs
//   - [github.com/headgate/headgate/queue/validation]: the error of an invalid field
//   - [github.com/headgate/headgate/queue/workers]: the workers that are alive
//   - [github.com/headgate/headgate/queue/tracing]: OpenTelemetry
//   - [github.com/headgate/headgate/queue/queuetest]: tests of producers and handlers
//
// Jobs are asynq tasks and lanes are asynq groups, so asynq's Inspector and command line
// can list and manage them. Do not run an asynq server on the same queues: it would exceed
// the limits. Redis 7.0 or later is required.
//
// The manual is docs/queue.md in the repository:
// https://github.com/headgate/headgate/blob/main/docs/queue.md.
package queue
