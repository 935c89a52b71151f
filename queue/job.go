package queue

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/queue/encryption"
)

// Job is one outbound call to make.
type Job struct {
	// Kind names the handler that makes the call: letters, digits, '.', '_',
	// '-' and ':', at most 64. Required.
	Kind string

	// Tenant is the customer or account on whose behalf the call is made: 1 to 128
	// bytes of UTF-8 without control characters. Required.
	Tenant string

	// Key makes the job unique in its tenant and queue. Enqueueing the same job again
	// returns the existing one. The key is taken while the job exists, and for Retention
	// after it completed; an archived job exists until it is deleted. KeyUntil and
	// KeyWindow change that. At most 256 bytes. "" means that the job is not unique.
	Key string

	// Queue is where the job waits. "" means the queue whose limits list Kind, or, if no
	// limits were published, the queue named like Kind. A queue whose limits list other kinds
	// is refused.
	Queue string

	// KeyUntil says when Key is free for another job. "" means [Forgotten].
	KeyUntil KeyUntil

	// KeyWindow keeps Key taken for a fixed time from enqueueing, whatever happens to
	// the job: 1 s to 30 days. Once that is deleted, a job with another kind or payload
	// under the key is no [ErrConflict]: it is not enqueued, as the same one is not. 0 means
	// that KeyUntil applies. Only one of the two can be set.
	KeyWindow time.Duration

	// Priority puts the job before jobs of lower priority of the same tenant, never
	// before another tenant's jobs. "" means Normal. At least one in ten released jobs
	// is the longest waiting one of a lower priority.
	Priority Priority

	// At is the earliest time of the call, to the second, at most 10 years ahead. Zero
	// or a past time means now. In is the same relative to now. Only one of the two can
	// be set.
	At time.Time
	In time.Duration

	// Deadline is the time after which the call is no longer wanted. A job whose call
	// has not started by then is archived as expired. Zero means no deadline.
	Deadline time.Time

	// MaxAttempts is the maximum number of failed calls before the job is archived, 1
	// to 1,000. 0 means 10. Waiting for a limit is not an attempt.
	MaxAttempts int

	// Cost is the number of permits the call takes from each limit without a unit. 0
	// means 1.
	Cost int64

	// Costs is what the call takes from limits with a unit, by unit, such as "tokens":
	// at most 8 units, 0 to 2^40 each. It may be an estimate: [SetActual] corrects it
	// after the call. Limits with a unit that is not in Costs do not apply to the job. A
	// [Coster] as the payload can only raise it.
	Costs map[string]int64

	// Attributes are names and values that limits can use in per, besides the tenant:
	// at most 16, names of a-z, 0-9 and '_', values of at most 128 bytes.
	Attributes map[string]string

	// Headers are passed to the handler ([Running]) with the payload, such as a trace:
	// at most 16 and 1 KiB in all, names of a-z, 0-9 and '-', values without control
	// characters. Names that begin with "headgate-" are reserved. Headers are not
	// compared when a job with the same Key is enqueued again.
	Headers map[string]string

	// Account says with whose account of the provider the call may be made. Handlers of
	// clients with accounts keep to it. Follow-ups have their own.
	Account Account

	// Payload is passed to the handler: []byte and json.RawMessage unchanged, any other
	// value encoded as JSON. At most 1 MiB.
	Payload any

	// Retention is how long a completed job is kept, and its Key with it. 0 means 24 h
	// for a job with a Key, OnSuccess, OnFailure or Callback; other jobs are deleted
	// when they complete.
	Retention time.Duration

	// OnSuccess is enqueued when the call has succeeded, OnFailure when the job has
	// ended without success: archived, expired or cancelled. Both can have follow-ups
	// of their own, at most 8 deep and 256 KiB in all, and are checked when this job
	// is enqueued. Tenant defaults to this job's tenant. Without a Key, each is enqueued
	// exactly once for each end of this job. In counts from that end. The follow-up's
	// handler finds this job's id and result in [Running].
	//
	// A follow-up that cannot be enqueued is not dropped. While its backlog is full,
	// this job, whose call was made, waits in asynq's retry set. If the follow-up is
	// rejected for good, because its Deadline has passed or its Key belongs to another
	// job, this job is archived with the reason.
	OnSuccess, OnFailure *Job

	// Callback is an http or https URL that receives a POST when the job has ended in
	// any way. The POST is a job of kind "webhook" of the same tenant, with the body
	// {"id","queue","kind","tenant","state","outcome","attempt","result" or "error"}.
	Callback string

	parent *parentOf        // the job that this one follows; nil: none
	keys   *encryption.Keys // that encrypt its payload; nil: none
}

// Account says with whose account of a provider a call may be made.
type Account string

// The accounts of a [Job].
const (
	// AnyAccount is the tenant's own account if it has one, else the worker's.
	AnyAccount Account = ""

	// SharedAccount is the same, but with the worker's account the call acts only on what
	// calls of the same tenant made there, such as refunds of its payments.
	SharedAccount Account = "shared"

	// OwnAccount is the tenant's own account, and no other.
	OwnAccount Account = "own"
)

// Priority orders the jobs of one tenant.
type Priority string

// The priorities of a [Job].
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

func (p Priority) band() int {
	switch p {
	case High:
		return 0
	case Low:
		return 2
	}
	return 1
}

// KeyUntil says when a job's Key is free for another job.
type KeyUntil string

const (
	// Forgotten keeps the key taken while the job exists and for Retention after it
	// completed. It is the default.
	Forgotten KeyUntil = ""

	// Ended frees the key when the job has ended in any way.
	Ended KeyUntil = "ended"
)

const (
	maxAttempts  = 1000
	maxPayload   = 1 << 20
	maxKeyWindow = 30 * 24 * time.Hour
	keyRetention = 24 * time.Hour
)

// Validate reports the invalid fields of the job: a [validation.Error] for each, joined.
// [Client.Enqueue] checks the same and more: limits, what is in Redis, and the job's
// follow-ups, which Validate leaves out.
func (job Job) Validate() error {
	_, err := job.check(cmp.Or(job.Queue, "any"), time.Now())
	return err
}
