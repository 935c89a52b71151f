package queue

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestLateEndsOfSeveralRuns: three runs of a job were recovered from their workers. Each run
// that ends later takes back the crash that was counted for it, and nothing else: its call failed.
func TestLateEndsOfSeveralRuns(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	job := &Running{ID: r.add(t, nil), Queue: r.queue, Kind: "call", Tenant: "a", Attempt: 1}
	g := &gate{queue: r.queue, redis: client, logger: r.worker.logger, live: newLiveRuns()}
	for _, owner := range []string{"w:1", "x:1", "y:1"} {
		r.hold(t, job.ID, owner)
		client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+job.ID), "hg_called", "beside")
		r.recover(t, job.ID, "10", true)
	}
	state := func() string {
		return r.field(t, job.ID, "hg_crashes") + ", " + r.field(t, job.ID, "hg_beside") + ": " + r.field(t, job.ID, "hg_lost")
	}
	if got, want := state(), "2, 1: w:1=1 x:1=1 y:1=2"; got != want {
		t.Fatalf("the job says %s; want %s", got, want)
	}
	for _, step := range [][2]string{{"y:1", "2, 0: w:1=1 x:1=1"}, {"w:1", "1, 0: x:1=1"}, {"z:1", "1, 0: x:1=1"}} {
		job.owner = step[0]
		g.endLate(job, verdict{outcome: lifecycle.Retried})
		if got := state(); got != step[1] {
			t.Errorf("after the end of %s: %s; want %s", step[0], got, step[1])
		}
		if done := r.field(t, job.ID, "hg_done"); done != "" {
			t.Errorf("after the end of %s, whose call failed, the job is done: %q", step[0], done)
		}
	}
}

// TestLateEndElsewhere: a run ends late while its job is on its way back to its lane. The job
// is then done and its key is free. A job that is not where its state says stays.
func TestLateEndElsewhere(t *testing.T) {
	r := startRig(t, 1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	g := &gate{queue: r.queue, redis: client, logger: r.worker.logger, live: newLiveRuns()}
	for name, there := range map[string]bool{"it is there": true, "it is not": false} {
		job := &Running{ID: r.add(t, func(job *Job) { job.Key, job.KeyUntil = name, Ended }), Queue: r.queue, Kind: "call", Tenant: "a", Attempt: 1}
		r.hold(t, job.ID, "w:1")
		r.recover(t, job.ID, "10", true)
		client.ZRem(ctx, asynqwire.Key(r.queue, "g:"+r.lane("a")), job.ID)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+job.ID), "state", "retry")
		if there {
			client.ZAdd(ctx, asynqwire.Key(r.queue, "retry"), zOf(job.ID, 9e9))
		}
		job.owner = "w:1"
		g.endLate(job, verdict{outcome: lifecycle.Done, answer: lifecycle.AnswerOK})
		state, done := r.field(t, job.ID, "state"), r.field(t, job.ID, "hg_done")
		keys := len(redistest.Keys(t, client, store.Key(r.queue, "unique:")+"*"))
		if there && (state != "pending" || done != "1" || keys != 0 || client.ZCard(ctx, asynqwire.Key(r.queue, "retry")).Val() != 0) {
			t.Errorf("%s: it is %s, done %q, %d keys, and among those to be tried again", name, state, done, keys)
		}
		if !there && (state != "retry" || done != "" || !strings.Contains(r.fault(t, "job "+job.ID), "not where its state says")) {
			t.Errorf("%s: it is %s, done %q; the fault is %q", name, state, done, r.fault(t, "job "+job.ID))
		}
		for _, left := range redistest.Keys(t, client, store.Key(r.queue, "unique:")+"*") {
			client.Del(ctx, left)
		}
	}
}

// TestLateEndOfAJobThatMoved: the late end of a successful call reaches its job where that is now: also if the job had
// gone to another partition with its tenant, or is on its way.
func TestLateEndOfAJobThatMoved(t *testing.T) {
	t.Parallel()
	for _, underway := range []bool{false, true} {
		t.Run(fmt.Sprintf("on its way %v", underway), func(t *testing.T) {
			r := startRig(t, -1, limitsOf(), nil)
			client, ctx := r.server.Client(), t.Context()
			job := &Running{ID: r.add(t, nil), Queue: r.queue, Kind: "call", Tenant: "a", Attempt: 1, owner: "w:1"}
			own, seen := redis.NewUniversalClient(r.server.Options()), newCounter()
			defer own.Close()
			own.AddHook(roundTrips{seen})
			g := &gate{queue: r.queue, redis: own, logger: r.worker.logger, live: newLiveRuns()}
			r.hold(t, job.ID, "w:1")
			r.recover(t, job.ID, "10", true)
			err := operate.Publish(ctx, client, limits.Set{
				Queues:  map[string]limits.Queue{r.queue: {Partitions: 2}},
				Tenants: map[string]limits.Tenant{"a": {Partition: 2}},
			})
			if err != nil {
				t.Fatal(err)
			}
			l, err := store.ReadLayout(ctx, client, r.queue)
			if err != nil || l.From == nil {
				t.Fatalf("%+v, %v", l, err)
			}
			move := func() {
				(&mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: client, Logger: discardLogger()}).Run(ctx)
			}
			var ended sync.WaitGroup
			end := func() { g.endLate(job, verdict{outcome: lifecycle.Done, answer: lifecycle.AnswerOK}) }
			if underway {
				client.HSet(ctx, store.MovesKey(r.queue), "a", store.MoveLeft+"x")
				if n, err := store.MoveOutScript.Run(ctx, client, store.ScriptKeys(r.queue), r.queue, "", job.ID); err != nil || n != int64(1) {
					t.Fatal(n, err)
				}
				ended.Go(end)
				seen.wait(t, "to redis: script:late", 2) // it has found the job on its way, even if Redis did not know the script at first
				move()
			} else {
				move()
				end()
			}
			ended.Wait()
			task := client.HGetAll(ctx, asynqwire.Key(l.Name(2), "t:"+job.ID)).Val()
			if task["hg_done"] != "1" || task["state"] != "pending" || task["hg_crashes"] != "0" {
				t.Errorf("in the partition of its tenant it is %q, done %q, with %q crashes", task["state"], task["hg_done"], task["hg_crashes"])
			}
		})
	}
}
