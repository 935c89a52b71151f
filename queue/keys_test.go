package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
)

// TestKeyUntilEnded: a key is taken while its job lives and free when the job has ended,
// even if no worker reported the end.
func TestKeyUntilEnded(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "k", KeyUntil: Ended, Payload: map[string]int{"n": 1}}
	enqueue := func(job Job) Receipt {
		t.Helper()
		receipt, err := r.client.Enqueue(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		return receipt
	}
	first := enqueue(job)
	if again := enqueue(job); !again.Existing || again.ID != first.ID || again.State != lifecycle.StateWaiting {
		t.Errorf("again: %+v; want the job %s", again, first.ID)
	}
	other := job
	other.Payload = map[string]int{"n": 2}
	if _, err := r.client.Enqueue(ctx, other); !errors.Is(err, ErrConflict) {
		t.Errorf("another job with the key: %v; want %v", err, ErrConflict)
	}
	other.Tenant = "b"
	if receipt := enqueue(other); receipt.Existing {
		t.Errorf("another tenant's key: %+v", receipt)
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
	if n := client.Exists(ctx, store.Key(r.queue, "unique:a:k")).Val(); n != 0 {
		t.Error("the key is left behind")
	}
	if receipt := enqueue(job); receipt.Existing || receipt.ID == first.ID {
		t.Errorf("after its end: %+v", receipt)
	}
	r.seen.wait(t, string(lifecycle.Done), 3)
}

// TestKeyOfAnArchivedJobIsFree: with KeyUntil Ended, a key is free once its job is archived, or done and not put away
// yet, or gone.
func TestKeyOfAnArchivedJobIsFree(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "k", KeyUntil: Ended}
	first, err := r.client.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	client := r.server.Client()
	for end, to := range map[string]func(task string) error{
		"archived": func(task string) error { return client.HSet(t.Context(), task, "state", "archived").Err() },
		"done":     func(task string) error { return client.HSet(t.Context(), task, "hg_done", "1").Err() },
		"gone":     func(task string) error { return client.Del(t.Context(), task).Err() },
	} {
		if err := to(asynqwire.Key(r.queue, "t:"+first.ID)); err != nil {
			t.Fatal(err)
		}
		next, err := r.client.Enqueue(t.Context(), job)
		if err != nil || next.Existing || next.ID == first.ID {
			t.Errorf("%s: %+v, %v; want a new job", end, next, err)
		}
		first = next
	}
}

// TestKeyWindow: within the window enqueueing returns the same job, even if it has ended.
// After the window it makes another job, even if the first still waits.
func TestKeyWindow(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "k", KeyWindow: time.Hour}
	first, err := r.client.Enqueue(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	name := store.Key(r.queue, "unique:a:k")
	if left := client.PTTL(ctx, name).Val(); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the key is held for %v", left)
	}
	client.Del(ctx, asynqwire.Key(r.queue, "t:"+first.ID)) // ended, and not remembered
	again, err := r.client.Enqueue(ctx, job)
	if err != nil || !again.Existing || again.ID != first.ID || again.State != lifecycle.StateEnded {
		t.Errorf("within the window: %+v, %v; want %s", again, err, first.ID)
	}
	client.Del(ctx, name) // as the end of the window does
	if next, err := r.client.Enqueue(ctx, job); err != nil || next.Existing {
		t.Errorf("after the window: %+v, %v; want a new job", next, err)
	}
}

// TestCaps: backlog caps bound the jobs of a tenant and of a queue. The results of a
// batch say which jobs were accepted.
func TestCaps(t *testing.T) {
	t.Parallel()
	set := limitsOf()
	set.Queues[""] = limits.Queue{MaxBacklog: 3, MaxQueue: 5}
	r := startRig(t, 1, set, nil)
	var jobs []Job
	for _, tenant := range []string{"a", "a", "a", "a", "b", "b", "b"} {
		jobs = append(jobs, Job{Kind: "call", Queue: r.queue, Tenant: tenant})
	}
	want := []string{"", "", "", `backlog is full: queue "` + r.queue + `" has 3 of at most 3 jobs of the tenant, in all states`, "", "",
		`backlog is full: queue "` + r.queue + `" has 5 of at most 5 jobs, in all states`}
	for i, result := range r.client.EnqueueMany(t.Context(), jobs) {
		got := ""
		if result.Err != nil {
			got = result.Err.Error()
			if !errors.Is(result.Err, ErrBacklogFull) {
				t.Errorf("job %d: %v is no ErrBacklogFull", i, result.Err)
			}
		}
		if got != want[i] {
			t.Errorf("job %d: %q; want %q", i, got, want[i])
		}
	}
	if states := r.states(t); states["aggregating"] != 5 {
		t.Errorf("states %v; want 5 waiting jobs", states)
	}
}
