package queue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/workers"
)

func TestRecovererCompares(t *testing.T) {
	r := &recoverer{}
	at := func(seconds float64, leases map[string]string, dead ...string) {
		t.Helper()
		got := r.compare(leases, time.Duration(seconds*float64(time.Second)))
		slices.Sort(got)
		if fmt.Sprint(got) != fmt.Sprint(dead) {
			t.Errorf("at %v s: dead = %v; want %v", seconds, got, dead)
		}
	}
	// b is renewed, a is not, and c is active without a lease.
	for s := 0.0; s <= 11; s++ {
		at(100+s, map[string]string{"a": "7", "b": strconv.Itoa(int(s) / 5), "c": ""})
	}
	at(111.5, map[string]string{"a": "7", "b": "2", "c": ""}, "a", "c")
	// After a gap without a look, counting starts again.
	at(130, map[string]string{"a": "7", "b": "2"})
	for s := 131.0; s <= 141; s++ {
		at(s, map[string]string{"a": "7", "b": "9"})
	}
	at(141.5, map[string]string{"a": "7", "b": "9"}, "a")
}

// TestRecovery drives recover.lua through the life of a job whose workers die.
func TestRecovery(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(100)), nil)
	ctx, client := t.Context(), r.server.Client()
	id := r.add(t, nil)
	task := asynqwire.Key(r.queue, "t:"+id)
	// take dequeues the job like asynq, and marks it like a worker's gate.
	take := func(lease int, owner string) {
		t.Helper()
		client.ZRem(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id)
		client.HSet(ctx, task, "state", "active", "hg_slot", "1 2 77")
		client.LPush(ctx, asynqwire.Key(r.queue, "active"), id)
		client.ZAdd(ctx, asynqwire.Key(r.queue, "lease"), redis.Z{Score: float64(lease), Member: id})
		if owner != "" {
			client.HSet(ctx, task, "hg_owner", owner)
		}
	}
	recover := func(seen string) int64 {
		t.Helper()
		return r.recover(t, id, seen, true)
	}
	field := func(name string) string { return client.HGet(ctx, task, name).Val() }

	take(10, "w1")
	if n := recover("9"); n != 0 || field("state") != "active" {
		t.Fatalf("a job whose lease moved was taken: %d, %s", n, field("state"))
	}
	if n := recover("10"); n != 1 || field("state") != "aggregating" || field("hg_crashes") != "1" {
		t.Fatalf("recovered %d, state %s, crashes %s; want it in its lane with 1", n, field("state"), field("hg_crashes"))
	}
	if score := client.ZScore(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id).Val(); score != 77 {
		t.Errorf("it stands at %v in its lane; want its old place, 77", score)
	}
	if n := recover("10"); n != 0 {
		t.Errorf("two recoverers both took it")
	}

	client.HDel(ctx, task, "hg_owner")
	take(20, "")
	recover("20")
	if field("hg_crashes") != "1" {
		t.Errorf("crashes = %s after a worker died that had not touched it", field("hg_crashes"))
	}
	take(25, "w2")
	recover("25")
	if field("hg_crashes") != "1" {
		t.Errorf("crashes = %s: a job that was not called was suspected", field("hg_crashes"))
	}
	take(30, "w2")
	client.HSet(ctx, task, "hg_called", "beside")
	recover("30")
	take(40, "w3")
	recover("40")
	if field("hg_crashes") != "2" || field("state") != "aggregating" {
		t.Errorf("crashes = %s: a suspect that did not run alone was blamed", field("hg_crashes"))
	}
	take(50, "w4")
	client.HSet(ctx, task, "hg_called", "alone")
	recover("50")
	if field("hg_crashes") != "3" || field("state") != "pending" {
		t.Errorf("crashes = %s, state %s; want it handed to a worker to archive", field("hg_crashes"), field("state"))
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Crashed), 1)
	r.stop()
	if reason := r.archived(t)[id]; reason == "" || r.jobs[id] != 0 {
		t.Errorf("archived with %q after %d calls", reason, r.jobs[id])
	}
}

// TestDoneIsNeverCalledAgain: a job whose success is marked, but that is handed over again,
// ends without another call.
func TestDoneIsNeverCalledAgain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	task := asynqwire.Key(r.queue, "t:"+id)
	ctx, client := t.Context(), r.server.Client()
	client.ZRem(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id)
	client.HSet(ctx, task, "state", "active", "hg_done", "1", "hg_owner", "w")
	client.LPush(ctx, asynqwire.Key(r.queue, "active"), id)
	r.recover(t, id, "", true)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if r.jobs[id] != 0 {
		t.Error("a job that was done was called again")
	}
	if client.Exists(ctx, task).Val() != 0 {
		t.Error("it is still there")
	}
}

// TestSettleIsFenced: a worker that has lost a job to another one writes nothing.
func TestSettleIsFenced(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	id := r.add(t, nil)
	ctx, client := t.Context(), r.server.Client()
	task := asynqwire.Key(r.queue, "t:"+id)
	client.HSet(ctx, task, "state", "active", "hg_owner", "theirs")
	settle := func(owner string) bool {
		t.Helper()
		return r.settles(t, settleQuestion{id: id, owner: owner, outcome: "done"}).mine
	}
	if settle("ours") || client.HExists(ctx, task, "hg_done").Val() {
		t.Error("a job of another worker was settled")
	}
	for range 2 { // a repeat after a lost reply
		if !settle("theirs") {
			t.Error("the owner could not settle")
		}
	}
	if done := countsOf(t, client, r.queue, "a").Done; done != 1 {
		t.Errorf("counted %d times", done)
	}
}

// hold makes a job active in a run, like a worker's gate.
func (r *rig) hold(t *testing.T, id, owner string) {
	t.Helper()
	ctx, client := t.Context(), r.server.Client()
	n := client.ZRem(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id).Val()
	countWaiting(t, client, r.queue, "a", -n)
	client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", "active", "hg_slot", "1 2 77", "hg_owner", owner)
	client.LPush(ctx, asynqwire.Key(r.queue, "active"), id)
	client.ZAdd(ctx, asynqwire.Key(r.queue, "lease"), redis.Z{Score: 10, Member: id})
}

// TestRecoverOnFullRedis: jobs of dead workers are also recovered in a full Redis.
func TestRecoverOnFullRedis(t *testing.T) {
	t.Parallel()
	r := limitedRig(t, "0")
	for _, done := range []bool{false, true} { // back to its lane; to be put away
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		want := "aggregating"
		if done {
			r.server.Client().HSet(t.Context(), asynqwire.Key("q", "t:"+id), "hg_done", "1")
			want = "pending"
		}
		r.server.Server().FillMemory()
		if n := r.recover(t, id, "10", true); n != 1 {
			t.Errorf("recover took %d jobs", n)
		}
		if state := r.field(t, id, "state"); state != want {
			t.Errorf("it is %s; want %s", state, want)
		}
		if err := r.server.Client().ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLateEnd: a worker that was taken for dead comes back and ends its run.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (r *rig, g *gate, job *Running) {
		r = startRig(t, 1, limitsOf(), nil)
		job = &Running{ID: r.add(t, nil), Queue: r.queue, Kind: "call", Tenant: "a", Attempt: 1}
		return r, &gate{queue: r.queue, redis: r.server.Client(), logger: r.worker.logger, live: newLiveRuns()}, job
	}
	success := verdict{outcome: lifecycle.Done, answer: lifecycle.AnswerOK, result: []byte("[1]")}

	t.Run("with a success, of a job that waits again", func(t *testing.T) {
		r, g, job := start(t)
		r.hold(t, job.ID, "w:1")
		r.recover(t, job.ID, "10", true)
		if n := r.field(t, job.ID, "hg_crashes"); n != "1" {
			t.Fatalf("%q crashes", n)
		}
		job.owner = "w:1"
		g.endLate(job, success)
		if n := r.field(t, job.ID, "hg_crashes"); n != "0" || r.field(t, job.ID, "result") != "[1]" {
			t.Errorf("%s crashes, result %q; want none, as its worker lives, and the result", n, r.field(t, job.ID, "result"))
		}
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 1)
		r.stop()
		if r.jobs[job.ID] != 0 || r.server.Client().Exists(t.Context(), asynqwire.Key(r.queue, "t:"+job.ID)).Val() != 0 {
			t.Errorf("%d calls of a job that was done; or it is still there", r.jobs[job.ID])
		}
		if n := countsOf(t, r.server.Client(), r.queue, "a"); n.Done != 1 || n.Waiting != 0 || n.Jobs != 0 {
			t.Errorf("the counts are %+v", n)
		}
	})

	t.Run("with a success, of a job that another one calls", func(t *testing.T) {
		r, g, job := start(t)
		r.hold(t, job.ID, "w:1")
		r.recover(t, job.ID, "10", true)
		r.hold(t, job.ID, "x:1")
		job.owner = "w:1"
		g.endLate(job, success)
		r.recover(t, job.ID, "10", true) // the other one dies
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 1)
		r.stop()
		if r.jobs[job.ID] != 0 {
			t.Error("a job that was done was called again")
		}
	})

	t.Run("with a failure", func(t *testing.T) {
		r, g, job := start(t)
		r.hold(t, job.ID, "w:1")
		r.recover(t, job.ID, "10", true)
		job.owner = "w:1"
		g.endLate(job, verdict{outcome: lifecycle.Retried})
		if n := r.field(t, job.ID, "hg_crashes"); n != "0" {
			t.Errorf("%q crashes; want none, as its worker lives", n)
		}
		r.run(t)
		r.wait(t)
	})

	t.Run("of a job that was enqueued again", func(t *testing.T) {
		r, g, job := start(t)
		job.owner = "w:1"
		g.endLate(job, success)
		if r.field(t, job.ID, "hg_done") != "" {
			t.Error("a new job was done by the end of an old one")
		}
	})
}

// TestCrashNeedsAnEnd: a job is archived as crashed only if its workers have ended.
func TestCrashNeedsAnEnd(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.recover(t, id, "10", false)
	if n := r.field(t, id, "hg_crashes"); n != "" {
		t.Errorf("%s crashes of a worker that lives", n)
	}
	if r.field(t, id, "hg_unsure") != "1" {
		t.Error("nobody knows what came of its call, and it does not say so")
	}
	for i := range 3 {
		owner := fmt.Sprintf("%s-%d:1", r.queue, i)
		r.hold(t, id, owner)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "hg_called", "alone")
		r.recover(t, id, "10", true)
	}
	if n := r.field(t, id, "hg_crashes"); n != "3" {
		t.Fatalf("%s crashes", n)
	}
	// One of the three was only suspended, and has a heartbeat again.
	client.Set(ctx, workers.Key(r.queue+"-1"), "{}", workers.BeatLasts)
	r.run(t)
	r.wait(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	if n := r.seen.outcomes(lifecycle.Crashed); n != 0 {
		t.Error("it was archived as crashed")
	}
}

// TestOneWatcher: one worker at a time watches the leases of a queue. When it ends, another
// one takes over and starts counting again.
func TestOneWatcher(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	watcher := func(worker string) *recoverer {
		return &recoverer{queue: r.queue, worker: worker, redis: client, live: newLiveRuns(), logger: r.worker.logger, chores: r.chores(), roles: newRoles(client, worker)}
	}
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	first, second := watcher("first"), watcher("second")
	look := func(r *recoverer) {
		t.Helper()
		if _, err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look(first)
	look(second)
	if len(first.seen) != 1 || second.seen != nil {
		t.Errorf("the first one saw %d leases, the second one %d; want only the first to look", len(first.seen), len(second.seen))
	}
	if left := client.PTTL(t.Context(), store.Key(r.queue, "watcher")).Val(); left <= 0 || left > watchLasts {
		t.Errorf("the watch lasts for %v", left)
	}
	until(t, "taken over", func() bool { // the first one no longer looks
		look(second)
		return len(second.seen) == 1
	})
	look(first)
	if first.seen != nil {
		t.Error("the first one remembers what it saw while another one watched")
	}

	// A process never recovers jobs that it runs itself.
	leave, _ := second.live.enter(second.queue, asynqwire.Run{ID: id}, 0, nil, nil)
	old := func() {
		second.seen = map[string]sighting{id: {"10", boottime.Now() - silence - time.Second}}
		look(second)
	}
	if old(); r.field(t, id, "state") != "active" {
		t.Error("it took a job of its own")
	}
	leave()
	if old(); r.field(t, id, "state") != "aggregating" {
		t.Errorf("a silent job is %s; want it back in its lane", r.field(t, id, "state"))
	}
}

// TestRecoveryBesideADamagedTask: a damaged task does not keep other jobs from being
// recovered.
func TestRecoveryBesideADamagedTask(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	ids := []string{r.add(t, nil), r.add(t, nil)}
	for _, id := range ids {
		r.hold(t, id, "w:1")
	}
	task := asynqwire.Key(r.queue, "t:"+ids[0])
	client.Del(t.Context(), task)
	client.Set(t.Context(), task, "damaged", 0)
	watcher := &recoverer{queue: r.queue, worker: "w", redis: client, live: newLiveRuns(), logger: r.worker.logger, chores: r.chores(), roles: newRoles(client, "w")}
	watcher.lastLook = boottime.Now()
	watcher.seen = map[string]sighting{}
	for _, id := range ids {
		watcher.seen[id] = sighting{"10", boottime.Now() - silence - time.Second}
	}
	if _, err := watcher.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := r.field(t, ids[1], "state"); state != "aggregating" {
		t.Errorf("the job beside a damaged one is %s; want it back in its lane", state)
	}
}
