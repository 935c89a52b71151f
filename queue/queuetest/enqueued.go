package queuetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// Job is a job that was enqueued and is not done.
type Job[T any] struct {
	ID, Queue, Tenant string

	Payload T
	Headers map[string]string

	Due     time.Time // when it may go; zero: now
	Attempt int       // of its next call
	Err     string    // why the last call failed; "" if none did
}

// Enqueued returns the jobs of a kind that are not done: first those that may go now, in
// the order in which they were enqueued, then those for later by their time. kind is a
// [queue.Kind] or a name: Enqueued[SMS](q, "sms"). After this, the test may end without
// running these jobs.
func Enqueued[T any](q *Queue, kind queue.Kind[T]) []Job[T] {
	q.t.Helper()
	var jobs []Job[T]
	for _, task := range q.tasks(string(kind)) {
		payload, err := kind.Decode(task.Payload)
		if err != nil {
			q.t.Fatalf("queuetest: Enqueued: job %s: %v", task.ID, err)
		}
		job := Job[T]{
			ID: task.ID, Queue: task.Queue, Tenant: tenantOf(task), Payload: payload,
			Headers: asynqwire.ReadHeaders(task.Headers), Attempt: task.Retried + 1, Err: task.LastErr,
		}
		if task.State == asynq.TaskStateScheduled || task.State == asynq.TaskStateRetry {
			job.Due = task.NextProcessAt
		}
		q.seen[task.ID] = true
		jobs = append(jobs, job)
	}
	return jobs
}

// RequireEnqueued fails the test unless the jobs of a kind that are not done have exactly
// these payloads, in the order of [Enqueued]. Without payloads there must be no such job.
// It returns the jobs.
func RequireEnqueued[T any](q *Queue, kind queue.Kind[T], want ...T) []Job[T] {
	q.t.Helper()
	jobs := Enqueued(q, kind)
	if !slices.EqualFunc(jobs, want, func(job Job[T], payload T) bool { return reflect.DeepEqual(job.Payload, payload) }) {
		got := make([]T, len(jobs))
		for i, job := range jobs {
			got[i] = job.Payload
		}
		q.t.Fatalf("queuetest: jobs of kind %s:\n\tgot  %s\n\twant %s", string(kind), payloads(got), payloads(want))
	}
	return jobs
}

// payloads returns a list for messages, as JSON, which shows what pointers point to.
func payloads[T any](list []T) string {
	if len(list) == 0 {
		return "none"
	}
	texts := make([]string, len(list))
	for i, payload := range list {
		text, err := json.Marshal(payload)
		if texts[i] = string(text); err != nil {
			texts[i] = fmt.Sprintf("%+v", payload)
		}
	}
	return strings.Join(texts, "\n\t     ")
}

func tenantOf(task *asynq.TaskInfo) string {
	return cmp.Or(task.Headers[asynqwire.HeaderTenant], asynqwire.NoTenant)
}
