package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
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

// accepted is a job that was checked, in the form of enqueue.lua.
type accepted struct {
	id, queue, tenant, attributes, kind, digest string
	fresh                                       bool // the id is new, so no other job has it

	cost          int64
	costs         string // "unit=n;…"
	band          int
	deadline, due int64  // µs and whole seconds since the epoch; 0: none, now
	unique        string // the key that it holds, where that is not its id
	window        int64  // µs for which it holds it; 0: until it ends
	message       []byte
	next          []byte // what follows it; see followUps
}

const acceptedWords = 6

// append adds the words of enqueue.lua for the job.
func (a accepted) append(args []any) []any {
	return append(args, a.id, a.message, a.tenant, "kind="+a.kind+";"+a.attributes, a.digest, a.more())
}

// more is what few jobs have, "" for the others: each word costs Redis 0.3 µs.
func (a accepted) more() string {
	if a.fresh && a.cost == 1 && a.costs == "" && a.band == 1 && a.deadline == 0 && a.due == 0 && a.unique == "" && len(a.next) == 0 {
		return ""
	}
	fresh := 0
	if a.fresh {
		fresh = 1
	}
	return fmt.Sprintf("%d %d %s %d %d %d %s %d %s", fresh, a.cost, a.costs, a.band, a.deadline, a.due, a.unique, a.window, a.next)
}

func (a accepted) size() int { return len(a.message) + len(a.next) }

// Validate says what [Client.Enqueue] would refuse of the job, whatever the limits and
// whatever is in Redis: an [validation.Error] for each field that is wrong, joined. What is
// to follow it is left out.
func (job Job) Validate() error {
	_, err := job.accept(cmp.Or(job.Queue, "any"), time.Now())
	return err
}

// accept checks a job and encodes it; the error names every field that is wrong.
func (job Job) accept(queue string, now time.Time) (accepted, error) {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if !check.KindPattern.MatchString(job.Kind) {
		wrong("kind", "%s is not 1 to 64 letters, digits, '.', '_', '-' or ':'", check.Quote(job.Kind))
	}
	if !check.QueuePattern.MatchString(queue) {
		wrong("queue", "%s is not 1 to 64 letters, digits, '.', '_' or '-'", check.Quote(queue))
	}
	if reason := check.Text(job.Tenant, check.MaxTenant); reason != "" {
		wrong("tenant", "%s", reason)
	}
	if reason := check.Text(job.Key, check.MaxKey); job.Key != "" && reason != "" {
		wrong("key", "%s", reason)
	}
	switch job.Priority {
	case "", High, Normal, Low:
	default:
		wrong("priority", "%s is none of high, normal, low", check.Quote(string(job.Priority)))
	}
	due := job.dueSecond(now, wrong)
	if !job.Deadline.IsZero() {
		switch {
		case !job.Deadline.After(now):
			wrong("deadline", "%s has passed", job.Deadline.UTC().Format(time.RFC3339))
		case job.Deadline.Sub(now) > check.MaxAhead:
			wrong("deadline", "%s is more than 10 years ahead", job.Deadline.UTC().Format(time.RFC3339))
		case due > 0 && job.Deadline.Unix() <= due:
			wrong("deadline", "it comes before the job may go")
		}
	}
	if job.MaxAttempts < 0 || job.MaxAttempts > maxAttempts {
		wrong("max_attempts", "%d is not within 1 to %d", job.MaxAttempts, maxAttempts)
	}
	if job.Cost < 0 {
		wrong("cost", "%d: a call costs at least 1", job.Cost)
	}
	if job.Cost > store.MaxCost {
		wrong("cost", "%d is more than %d", job.Cost, int64(store.MaxCost))
	}
	costs, reason := store.EncodeCosts(job.Costs)
	if reason != "" {
		wrong("costs", "%s", reason)
	}
	switch {
	case job.KeyUntil != Forgotten && job.KeyUntil != Ended:
		wrong("key_until", "%s is neither empty nor ended", check.Quote(string(job.KeyUntil)))
	case job.KeyUntil != Forgotten && job.KeyWindow != 0:
		wrong("key_window", "set key_until or key_window, not both")
	case job.KeyWindow != 0 && (job.KeyWindow < time.Second || job.KeyWindow > maxKeyWindow):
		wrong("key_window", "%v is not within 1s to 720h", job.KeyWindow)
	case job.Key == "" && (job.KeyUntil != Forgotten || job.KeyWindow != 0):
		wrong("key", "it is empty, and key_until and key_window speak of it")
	}
	if job.Retention < 0 || job.Retention > check.MaxAhead {
		wrong("retention", "%v is not within 0 to 10 years", job.Retention)
	}
	if reason := headersProblem(job.Headers); reason != "" {
		wrong("headers", "%s", reason)
	}
	attributes, reason := store.EncodeAttributes(job.Attributes)
	if reason != "" {
		wrong("attributes", "%s", reason)
	}
	payload, err := encodePayload(job.Payload)
	if err != nil {
		wrong("payload", "%v", err)
	} else if len(payload) > maxPayload {
		wrong("payload", "%d bytes are more than %d; store large data elsewhere and enqueue a reference", len(payload), maxPayload)
	}
	if len(errs) > 0 {
		return accepted{}, errors.Join(errs...)
	}
	attributes = store.WithEndpoint(attributes, job.Kind, payload)

	a := accepted{
		queue: queue, tenant: rediskey.Escape(job.Tenant), attributes: attributes, kind: rediskey.Escape(job.Kind),
		cost: max(job.Cost, 1), costs: costs, band: job.Priority.band(), due: due,
	}
	retention := job.Retention
	freed := job.KeyUntil == Ended || job.KeyWindow > 0
	if freed {
		a.unique = a.tenant + ":" + rediskey.Escape(job.Key)
		a.window = job.KeyWindow.Microseconds()
	}
	if job.Key == "" || freed {
		id, err := uuid.NewV7()
		if err != nil {
			return accepted{}, fmt.Errorf("make a job id: %w", err)
		}
		a.id, a.fresh = id.String(), true
		if job.parent != nil {
			a.id, a.fresh = job.parent.child, false // the same whenever it is enqueued again
		}
	} else {
		// Escaped parts hold no ':', so no two pairs share an id.
		a.id = a.tenant + ":" + rediskey.Escape(job.Key)
		if retention == 0 {
			retention = keyRetention
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", job.Kind, job.Tenant, payload))
	a.digest = base64.RawURLEncoding.EncodeToString(sum[:12])

	headers := map[string]string{asynqwire.HeaderTenant: job.Tenant}
	maps.Copy(headers, job.Headers)
	job.parent.write(headers)
	if job.Priority != "" && job.Priority != Normal {
		headers[asynqwire.HeaderPriority] = string(job.Priority)
	}
	if job.MaxAttempts > 0 {
		headers[asynqwire.HeaderMaxAttempts] = strconv.Itoa(job.MaxAttempts)
	}
	if a.cost > 1 {
		headers[asynqwire.HeaderCost] = strconv.FormatInt(a.cost, 10)
	}
	if costs != "" {
		headers[asynqwire.HeaderCosts] = costs
	}
	if attributes != "" {
		headers[asynqwire.HeaderAttributes] = attributes
	}
	if !job.Deadline.IsZero() {
		a.deadline = job.Deadline.UnixMicro()
		headers[asynqwire.HeaderDeadline] = strconv.FormatInt(a.deadline, 10)
	}
	if retention > 0 {
		headers[asynqwire.HeaderKept] = "1"
	}
	a.message = asynqwire.Encode(queue, a.id, job.Kind, payload, headers, retention)
	return a, nil
}

// dueSecond is the job's time in whole Unix seconds, rounded up so that it never
// goes early; 0 for now.
func (job Job) dueSecond(now time.Time, wrong func(field, format string, args ...any)) int64 {
	at, field := job.At, "at"
	switch {
	case job.In != 0 && !at.IsZero():
		wrong("in", "set at or in, not both")
		return 0
	case job.In < 0:
		wrong("in", "%v is negative", job.In)
		return 0
	case job.In > 0:
		field = "in"
		if job.In > check.MaxAhead {
			wrong("in", "%v is more than 10 years", job.In)
			return 0
		}
		at = now.Add(job.In)
	case at.IsZero():
		return 0
	}
	if at.Year() < 2000 {
		wrong(field, "the year %d is a mistake", at.Year())
		return 0
	}
	if at.Sub(now) > check.MaxAhead {
		wrong(field, "%s is more than 10 years ahead", at.UTC().Format(time.RFC3339))
		return 0
	}
	if !at.After(now) {
		return 0
	}
	return at.Add(time.Second - time.Nanosecond).Unix()
}

func encodePayload(payload any) ([]byte, error) {
	switch p := payload.(type) {
	case nil:
		return nil, nil
	case []byte:
		return p, nil
	case json.RawMessage:
		return p, nil
	}
	return json.Marshal(payload)
}

// idempotencyKey is handed to providers, whose keys may have 255 characters.
func idempotencyKey(id string) string {
	if len(id) <= 255 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
