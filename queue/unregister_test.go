package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// TestUnregister: an empty queue is removed and leaves only its audit. One with jobs, in whatever
// state, or with a worker stays as it is.
func TestUnregister(t *testing.T) {
	set := limitsOf(perTenant(1000))
	r := startRig(t, -1, set, nil)
	client, ctx := r.server.Client(), t.Context()
	remove := func() error { return operate.Unregister(ctx, client, r.queue, ann) }
	refused := func(what, want string) {
		t.Helper()
		if err := remove(); !errors.Is(err, operate.ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v; want %q", what, err, want)
		}
		if client.Exists(ctx, store.Key(r.queue, "limits")).Val() != 1 {
			t.Fatalf("with %s: the limits are gone", what)
		}
	}
	clear := func(verbs ...operate.Verb) {
		t.Helper()
		for _, verb := range verbs {
			if _, err := operate.Apply(ctx, client, r.queue, verb, operate.Filter{}, ann, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.add(t, nil)
	refused("a waiting job", "has jobs, 1 of them")
	clear(operate.Cancel)
	refused("an archived job", "has jobs, 1 of them")
	clear(operate.DeleteArchived)
	r.add(t, func(job *Job) { job.In = time.Hour })
	refused("a scheduled job", "has jobs, 1 of them")
	clear(operate.Cancel, operate.DeleteArchived)
	kept := r.end(t, func(job *Job) { job.Retention = time.Hour }, nil, string(lifecycle.Done))
	client.Del(ctx, workers.ListKey) // the worker that ran it has stopped
	refused("a job that is kept", "has jobs, 1 of them")
	client.ZAdd(ctx, asynqwire.Key(r.queue, "completed"), zOf(kept, 1))
	if _, err := store.JanitorScript.Run(ctx, client, store.ScriptKeys(r.queue), r.queue, 10); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	served := func() bool { // on a Cluster its keys arrive one by one
		alive, err := workers.List(ctx, client)
		return err == nil && slices.ContainsFunc(alive, func(w workers.Info) bool { return slices.Contains(w.Queues, r.queue) })
	}
	until(t, "the worker reports", served)
	refused("a worker", "is served by worker")
	r.stop()
	until(t, "the worker is gone", func() bool { return !served() })
	client.HSet(ctx, store.RoutesKey, "made-up-kind", r.queue)
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if names, err := inspect.Queues(ctx, client); err != nil || slices.Contains(names, r.queue) || client.HExists(ctx, store.RoutesKey, "made-up-kind").Val() {
		t.Errorf("it is still in %v, %v, or has kinds", names, err)
	}
	for _, key := range redistest.Keys(t, client, "*{"+r.queue+"}*") {
		if !strings.Contains(key, "}:audit") && client.TTL(ctx, key).Val() < 0 {
			t.Errorf("%s is left for ever", key)
		}
	}
	if all, err := operate.Audit(ctx, client, "", 10); err != nil || !slices.ContainsFunc(all, func(e operate.AuditEntry) bool {
		return e.Action == "unregister" && e.Before["queue"] == r.queue && e.Actor == ann.Actor
	}) {
		t.Errorf("the audit has %+v, %v", all, err)
	}
	if err := remove(); err == nil || !strings.Contains(err.Error(), "there is no queue") {
		t.Errorf("again: %v", err)
	}
	// It can be published anew.
	if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{r.queue: {}}}); err != nil {
		t.Fatal(err)
	}
	r.add(t, nil)
}

// TestOthersPartitionStays: a partition is not removed by one who knows another layout of the queue.
func TestOthersPartitionStays(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{Queues: map[string]limits.Queue{"": {Partitions: 2}}}, nil)
	client := r.server.Client()
	unregister := func(layout string) any {
		t.Helper()
		reply, err := store.UnregisterScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, 1, layout)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := unregister("another"); got != int64(-1) {
		t.Errorf("removed for another layout: %v", got)
	}
	l, err := store.ReadLayout(t.Context(), client, r.queue)
	if err != nil || l.N != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	if got := unregister(l.Sum()); got != int64(0) || client.HExists(t.Context(), store.Key(r.queue, "limits"), "*").Val() {
		t.Errorf("not removed for its own: %v", got)
	}
}
