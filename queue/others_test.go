package queue

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
)

// other adds jobs of a kind that the worker of the rig has no handler for.
func (r *rig) other(t *testing.T, n int, edit func(*Job)) (ids []string) {
	t.Helper()
	for range n {
		ids = append(ids, r.add(t, func(job *Job) {
			job.Kind, job.Tenant = "other", "b"
			if edit != nil {
				edit(job)
			}
		}))
	}
	return ids
}

// TestEndedJobsOfOthersArePutAway: jobs of a kind that no worker handles expire, more of them
// than the worker can hold. The worker puts them away and goes on.
func TestEndedJobsOfOthersArePutAway(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), func(config *Config) { config.Concurrency = 4 })
	deadline := time.Now().Add(time.Second)
	r.other(t, 10, func(job *Job) { job.Deadline = deadline })
	until(t, "they are past their deadlines", func() bool {
		return time.Now().After(deadline)
	})
	r.enqueue(t, "a", 5)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5)
	r.seen.wait(t, string(lifecycle.Expired), 10)
}

// TestPendingJobsOfOthersWait: asynq's tools run jobs for which the worker has no handler,
// more than it can hold. They wait, and the worker goes on.
func TestPendingJobsOfOthersWait(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), func(config *Config) { config.Concurrency = 4 })
	r.other(t, 10, nil)
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	for _, lane := range r.server.Client().SMembers(t.Context(), asynqwire.Key(r.queue, "groups")).Val() {
		if _, err := inspector.RunAllAggregatingTasks(r.queue, lane); err != nil {
			t.Fatal(err)
		}
	}
	r.enqueue(t, "a", 5)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5)
	until(t, "the others wait in their lane", func() bool { return r.states(t)["aggregating"] == 10 })
}
