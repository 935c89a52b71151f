package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// TestJanitor: completed jobs whose retention is over are deleted, with the unique locks of
// asynq's own client, and nothing else is.
func TestJanitor(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	lock := func(id string) string { return asynqwire.Key(r.queue, "unique:"+id) }
	kept := func(state string, until int64) string {
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		r.settles(t, settleQuestion{id: id, outcome: "done", to: "kept 3600"})
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", state, "unique_key", lock(id))
		client.Set(ctx, lock(id), id, time.Minute)
		client.ZAdd(ctx, asynqwire.Key(r.queue, "completed"), zOf(id, float64(until)))
		return id
	}
	due, damaged, deleted := kept("completed", 10), kept("odd", 10), kept("completed", 10)
	stays := kept("completed", time.Now().Add(time.Hour).Unix())
	client.Del(ctx, asynqwire.Key(r.queue, "t:"+deleted))
	if err := r.chores().Forget(ctx); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{due: false, damaged: true, deleted: false, stays: true} {
		listed := client.ZScore(ctx, asynqwire.Key(r.queue, "completed"), id).Err() == nil
		if there := client.Exists(ctx, asynqwire.Key(r.queue, "t:"+id)).Val() == 1; there != want || listed != want {
			t.Errorf("%s: there %v, listed %v; want %v", id, there, listed, want)
		}
	}
	if client.Exists(ctx, lock(due)).Val() != 0 || client.Exists(ctx, lock(stays)).Val() != 1 {
		t.Error("the lock of what was forgotten stays, or that of another is gone")
	}
	if at := client.ZScore(ctx, asynqwire.Key(r.queue, "completed"), damaged).Val(); at < float64(time.Now().Unix()) || !strings.Contains(r.fault(t, "job "+damaged), `"odd"`) {
		t.Errorf("the damaged one is looked at again at %.0f, and the fault is %q", at, r.fault(t, "job "+damaged))
	}
}
