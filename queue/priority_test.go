package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestPriorityWithinATenant: a job of high priority goes before all other waiting jobs of its
// tenant, and each priority is first in, first out.
func TestPriorityWithinATenant(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	var high, normal, low []string
	for range 3 {
		low = append(low, r.add(t, func(job *Job) { job.Priority = Low }))
		normal = append(normal, r.add(t, nil))
	}
	for range 3 {
		high = append(high, r.add(t, func(job *Job) { job.Priority = High }))
	}
	if got, want := r.release(t, r.dispatcher(), 100), slices.Concat(high, normal, low); !slices.Equal(got, want) {
		t.Errorf("went %v; want %v", got, want)
	}
}

// TestLowIsNotStarved: while jobs of higher priority wait, one of ten jobs that go is the
// longest waiting one of a lower priority.
func TestLowIsNotStarved(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	bands := map[string]Priority{}
	add := func(priority Priority, n int) {
		for range n {
			bands[r.add(t, func(job *Job) { job.Priority = priority })] = priority
		}
	}
	add(Low, 2)
	add(Normal, 3)
	add(High, 50)
	d := r.dispatcher()
	var ids []string
	for range 50 { // one at a time: the count goes over rounds
		ids = r.release(t, d, 1)
	}
	var lower []string
	for at, id := range ids {
		if bands[id] != High {
			lower = append(lower, fmt.Sprint(at, " ", bands[id]))
		}
	}
	if want := []string{"9 low", "19 low", "29 normal", "39 normal", "49 normal"}; !slices.Equal(lower, want) {
		t.Errorf("lower ones went at %v; want %v", lower, want)
	}
	if ids = r.release(t, d, 100); len(ids) != 55 {
		t.Errorf("%d went in all; want 55", len(ids))
	}
	if left := r.server.Client().HGetAll(t.Context(), store.Key(r.queue, "skips")).Val(); len(left) > 0 {
		t.Errorf("%v is left of a lane that is empty", left)
	}
}

// TestPriorityIsNoShare: a tenant with only high jobs gets no larger share than a tenant with
// only low jobs.
func TestPriorityIsNoShare(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	tenants := map[string]string{}
	for i := range 40 {
		priority, tenant := High, "a"
		if i%2 == 1 {
			priority, tenant = Low, "b"
		}
		tenants[r.add(t, func(job *Job) { job.Tenant, job.Priority = tenant, priority })] = tenant
	}
	ids := r.release(t, r.dispatcher(), 20)
	n := map[string]int{}
	for _, id := range ids {
		n[tenants[id]]++
	}
	if len(ids) != 20 || n["a"] < 9 || n["b"] < 9 {
		t.Errorf("of %d jobs %v went; want half of each tenant", len(ids), n)
	}
}

// TestPriorityOfScheduledJobs: a scheduled job has its priority when its time comes.
func TestPriorityOfScheduledJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	at := time.Now().Add(time.Hour)
	normal := r.add(t, func(job *Job) { job.At = at })
	high := r.add(t, func(job *Job) { job.At, job.Priority = at, High })
	now := r.add(t, nil)
	client := r.server.Client()
	for _, id := range []string{normal, high} {
		client.ZAdd(t.Context(), asynqwire.Key(r.queue, "scheduled"), zOf(id, float64(time.Now().Unix()-1)))
	}
	// The waiting job came before the time for which the other one was scheduled.
	if got, want := r.release(t, r.dispatcher(), 100), []string{high, now, normal}; !slices.Equal(got, want) {
		t.Errorf("went %v; want %v", got, want)
	}
}
