package queue

import (
	"testing"
	"time"
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

// TestEndedJobsOfOthersArePutAway: jobs of a kind that no worker handles pass their
// deadlines, more of them than the worker can hold. It puts them away, and goes on.
func TestEndedJobsOfOthersArePutAway(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), func(config *Config) { config.Concurrency = 4 })
	deadline := time.Now().Add(time.Second)
	r.other(t, 10, func(job *Job) { job.Deadline = deadline })
	d := r.dispatcher()
	d.kinds = ",call,"
	until(t, "they are past their deadlines", func() bool {
		if _, err := d.round(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		return r.states(t)["pending"] == 10
	})
	r.enqueue(t, "a", 5)
	r.run(t)
	r.seen.wait(t, string(Done), 5)
	r.seen.wait(t, string(Expired), 10)
}

// TestReleasedJobsOfOthersGoBack: jobs were released for a worker that died before it
// took them, more than the one that is left can hold, which has no handler for them.
func TestReleasedJobsOfOthersGoBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), func(config *Config) { config.Concurrency = 4 })
	r.other(t, 10, nil)
	if ids := r.release(t, r.dispatcher(), 100); len(ids) != 10 {
		t.Fatalf("%d went", len(ids))
	}
	r.enqueue(t, "a", 5)
	r.run(t)
	r.seen.wait(t, string(Done), 5)
	until(t, "the others wait in their lane", func() bool { return r.states(t)["aggregating"] == 10 })
}
