package queue

import (
	"cmp"
	"time"
)

// Job is one outbound call wanted by the application.
type Job struct {
	// Kind names the handler that makes the call: letters, digits, '.', '_',
	// '-' and ':', at most 64. Required.
	Kind string

	// Tenant is on whose behalf the call is made: 1 to 128 bytes of UTF-8
	// without control characters. Required.
	Tenant string

	// Key makes the job the only one of its tenant and queue with this key, while
	// it lives and for Retention after: enqueueing the same again answers with
	// the job that is there. An archived job lives until it is deleted. At most 256
	// bytes. "" gives the job an id of its own.
	Key string

	// Queue is where the job waits. "" means the queue whose limits name Kind, or
	// where no limits were published, the queue of Kind's own name.
	Queue string

	// KeyUntil is how long Key keeps others out; "" means while the job lives or
	// is remembered.
	KeyUntil KeyUntil

	// KeyWindow makes Key keep others out for so long from enqueueing, whatever
	// becomes of the job: 1 s to 30 days. Not with KeyUntil. 0: KeyUntil says it.
	KeyWindow time.Duration

	// Priority puts the job before its tenant's others of lower priority, never
	// before another tenant's; "" means Normal. Of ten jobs that go at least one is
	// the one that has waited longest among the lower ones.
	Priority Priority

	// At is the earliest moment of the call, to the second, at most 10 years
	// ahead; zero or past: now. In does the same relative to now. Not both.
	At time.Time
	In time.Duration

	// Deadline is when the call is not wanted any more: a job that could not go
	// before is archived as expired, without a call. Zero means none.
	Deadline time.Time

	// MaxAttempts is how many calls may fail before the job is archived, 1 to
	// 1,000; 0 means 10. Waiting for a limit is not an attempt.
	MaxAttempts int

	// Cost is how many permits the call takes of each limit without a unit; 0
	// means 1.
	Cost int64

	// Costs is what the call takes of limits with a unit, such as "tokens": at
	// most 8, 0 to 2^40 each. An estimate will do: [SetActual] corrects it after
	// the call. Limits whose unit is not in it do not hold the job.
	Costs map[string]int64

	// Attributes are what limits may be per, besides the tenant: at most 16,
	// names of a-z, 0-9 and '_', values of at most 128 bytes.
	Attributes map[string]string

	// Headers are carried to the handler ([Running]) beside the payload, such as
	// a trace: at most 16 and 1 KiB in all, names of a-z, 0-9 and '-', values
	// without control characters. Names that begin with "headgate-" are taken.
	// They are no part of what makes two jobs with one Key the same.
	Headers map[string]string

	// Payload is what the handler gets: []byte and json.RawMessage as they are,
	// anything else as JSON. At most 1 MiB.
	Payload any

	// Retention is how long a completed job is remembered, so that its Key stays
	// taken. 0 means 24 h for a job with a Key, and not at all without.
	Retention time.Duration

	// OnSuccess is enqueued when the call succeeded, OnFailure when the job ended
	// without: archived, expired or cancelled. Both are checked with the job, also
	// what follows them in turn: at most 8 deep, 256 KiB in all. Without a Tenant
	// they are this job's tenant's; without a Key they come exactly once for each
	// end of this job. In counts from that end. Their handlers find this job's id
	// and result in [Running]. One that cannot be enqueued then is not dropped:
	// while its backlog is full, this job waits in asynq's retry set, its call
	// made; and when it is refused for good (its Deadline has passed, its Key is
	// another's) this job is archived with the reason. A job with any of these
	// three is remembered like one with a Key.
	OnSuccess, OnFailure *Job

	// Callback is an http or https URL that gets a POST when the job ended, in
	// whatever way: a job of kind "webhook" for the same tenant, with the body
	// {"id","kind","tenant","state","outcome","attempts","result" or "error"}.
	Callback string

	parent *parentOf // the job that this one follows
}

// Priority orders the jobs of one tenant.
type Priority string

// The priorities; a job without one is Normal.
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
	// Forgotten: while the job lives, and Retention after; enqueueing the same
	// job again answers with it.
	Forgotten KeyUntil = ""

	// Ended: until the job has ended, however.
	Ended KeyUntil = "ended"
)

const (
	maxAttempts  = 1000
	maxPayload   = 1 << 20
	maxKeyWindow = 30 * 24 * time.Hour
	keyRetention = 24 * time.Hour
)

// Validate says what [Client.Enqueue] would refuse of the job, whatever the limits and
// whatever is in Redis: an [validation.Error] for each field that is wrong, joined. What is
// to follow it is left out.
func (job Job) Validate() error {
	_, err := job.check(cmp.Or(job.Queue, "any"), time.Now())
	return err
}
