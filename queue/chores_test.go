package queue

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// sweeps counts the sweeps of a worker.
func (r *rig) sweeps() int { return r.seen.outcomes("to redis: script:sweep") }

// TestOneWorkerDoesTheChores: one worker does the chores of a queue, and another one takes
// over when it has ended.
func TestOneWorkerDoesTheChores(t *testing.T) {
	t.Parallel()
	first := startRig(t, -1, limitsOf(), nil)
	second := first.beside(t, nil)
	first.run(t)
	first.seen.wait(t, "to redis: script:sweep", 1)
	second.run(t)
	first.seen.wait(t, "to redis: script:sweep", 3)
	if n := second.sweeps(); n > 0 {
		t.Errorf("the second worker swept %d times beside the first one", n)
	}
	first.stop()
	second.seen.wait(t, "to redis: script:sweep", 1)
}

// TestWatchThatDoesNotEnd: a watch key without a valid expiry, written by hand or after
// Redis's clock was set back, does not keep workers from watching.
func TestWatchThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{0, time.Hour} {
		r := startRig(t, -1, limitsOf(), nil)
		client := r.server.Client()
		client.Set(t.Context(), store.Key(r.queue, "watcher"), "another", lasts)
		watcher := &recoverer{queue: r.queue, worker: "w", redis: client, live: newLiveRuns(), logger: discardLogger(), chores: r.chores(), roles: newRoles(client, "w")}
		if _, err := watcher.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if by := client.Get(t.Context(), store.Key(r.queue, "watcher")).Val(); by != "w" {
			t.Errorf("one that lasts for %v: %q watches", lasts, by)
		}
	}
}

// TestChoresOfAFullRedis: chores free memory in a full Redis.
func TestChoresOfAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	r := &rig{receiver: newReceiver(-1), queue: redistest.Queue(t), client: NewClient(client), server: server.Redis()}
	r.makeWorker(t, nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.settles(t, settleQuestion{id: id, outcome: "done", to: "kept 3600"})
	r.run(t)
	r.seen.wait(t, "to redis: script:janitor", 2) // the script was loaded and has run, so the first chores are done
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "completed"), zOf(id, 10))
	server.FillMemory()
	until(t, "what was kept is forgotten", func() bool { return client.Exists(t.Context(), asynqwire.Key(r.queue, "t:"+id)).Val() == 0 })
}
