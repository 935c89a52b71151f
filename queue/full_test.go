package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// limitedRig is a rig with a Redis of its own, with this maxmemory.
func limitedRig(t *testing.T, maxmemory string) *rig {
	t.Helper()
	server := redistest.Start(t, "--maxmemory", maxmemory, "--maxmemory-policy", "noeviction")
	r := &rig{receiver: newReceiver(-1), queue: "q", client: NewClient(server.Client()), server: server.Redis()}
	r.makeWorker(t, nil)
	return r
}

// TestRedisFull: clients refuse jobs before Redis is full, without asking it for each job, and
// accept jobs again by themselves.
func TestRedisFull(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := limitedRig(t, "32mb")
	client, ctx := r.server.Client(), t.Context()
	// The last job and the buffers of its command take 0.04 of the memory, in addition to 0.75.
	large := Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: strings.Repeat("x", 1<<19-100)}
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = r.client.Enqueue(ctx, large)
	}
	if !errors.Is(err, ErrRedisFull) || redis.IsOOMError(err) || errors.Is(err, ErrUnknown) ||
		!strings.Contains(err.Error(), "of maxmemory 32.0 MB, and new jobs are refused from 75%") {
		t.Fatalf("after %d jobs: %v", n, err)
	}
	if m, err := memoryOf(ctx, client); err != nil || float64(m.used) > 0.8*float64(m.max) {
		t.Errorf("%d of %d bytes are used, %v", m.used, m.max, err)
	}

	keys, asked := client.DBSize(ctx).Val(), redistest.Calls(t, client, "info")
	small := Job{Kind: "call", Queue: r.queue, Tenant: "b"}
	for range 100 {
		if _, err := r.client.Enqueue(ctx, small); !errors.Is(err, ErrRedisFull) {
			t.Fatal(err)
		}
	}
	if now := redistest.Calls(t, client, "info"); now > asked+5 {
		t.Errorf("INFO was called %d times before, and %d after 100 refused jobs", asked, now)
	}
	if now := client.DBSize(ctx).Val(); now != keys {
		t.Errorf("refused jobs left %d keys", now-keys)
	}
	if _, err := NewClient(client).FullAt(0.95).Enqueue(ctx, small); err != nil {
		t.Errorf("a client that may use more: %v", err)
	}

	if _, err := operate.Apply(ctx, client, r.queue, operate.Cancel, operate.Filter{Tenant: "a"}, operate.Operator{Actor: "ann", Reason: "test"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.Apply(ctx, client, r.queue, operate.DeleteArchived, operate.Filter{}, operate.Operator{Actor: "ann", Reason: "test"}, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "jobs are accepted again", func() bool {
		_, err := r.client.Enqueue(ctx, small)
		return err == nil
	})
}

// TestSharesOfMemory: a client sends no more than the part of the memory for which it need not ask again,
// not even one large job.
func TestSharesOfMemory(t *testing.T) {
	t.Parallel()
	f := &fitness{nodes: map[string]*nodeFitness{"": {at: time.Now(), left: 100}}}
	for _, step := range []struct {
		bytes int64
		may   bool
	}{{60, true}, {41, false}, {40, true}, {1, false}} {
		if may, err := f.known("", step.bytes); may != step.may || err != nil {
			t.Errorf("%d bytes without asking: %v, %v; want %v", step.bytes, may, err, step.may)
		}
	}
}

// TestWorkerOnFullRedis: a worker starts on a full Redis, is known as alive, and drains it, with
// the follow-ups of jobs.
func TestWorkerOnFullRedis(t *testing.T) {
	t.Parallel()
	r := limitedRig(t, "0")
	client, ctx := r.server.Client(), t.Context()
	child := Job{Kind: "call", Queue: r.queue, Tenant: "b", Key: "child", Payload: json.RawMessage(`{}`)}
	for range 20 {
		r.add(t, nil)
	}
	parent := r.add(t, func(job *Job) { job.OnSuccess = &child })
	retried := r.add(t, nil)
	failed := false
	r.answer = func(_ context.Context, job Running) error {
		if job.ID == retried && !failed {
			failed = true
			return errors.New("once")
		}
		return nil
	}
	r.server.Server().FillMemory()
	r.run(t)
	until(t, "the worker is known", func() bool {
		all, err := workers.List(ctx, client)
		return err == nil && len(all) == 1 && all[0].Queues[0] == r.queue
	})
	r.seen.wait(t, string(lifecycle.Done), 23)
	if r.jobs[parent] != 1 || len(r.jobs) != 23 || r.jobs[retried] != 2 {
		t.Errorf("called: %v; want the parent, its child, and 21 others, one of them twice", r.jobs)
	}
}

// TestVerbsOnFullRedis: operators cancel, delete, retry, pause and resume in a full Redis.
func TestVerbsOnFullRedis(t *testing.T) {
	t.Parallel()
	r := limitedRig(t, "0")
	client, ctx, by := r.server.Client(), t.Context(), operate.Operator{Actor: "ann", Reason: "test"}
	set := limits.Set{Queues: map[string]limits.Queue{"q": {Limits: []limits.Limit{perTenant(10)}, Kinds: []string{"call"}}}}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Fatal(err)
	}
	waits := r.add(t, nil)
	r.add(t, func(job *Job) { job.At = time.Now().Add(time.Hour) })
	r.server.Server().FillMemory()
	if err := client.Set(ctx, "x", "1", 0).Err(); !redis.IsOOMError(err) {
		t.Fatalf("Redis is not full: %v", err)
	}
	if err := operate.Publish(ctx, client, set); err != nil {
		t.Errorf("publish what is published: %v", err)
	}
	verb := func(verb operate.Verb, want int64) {
		t.Helper()
		tally, err := operate.Apply(ctx, client, r.queue, verb, operate.Filter{}, by, nil)
		if err != nil || tally.Jobs != want {
			t.Errorf("%s: %+v, %v; want %d jobs", verb, tally, err, want)
		}
	}
	if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, by); err != nil {
		t.Errorf("pause: %v", err)
	}
	if was, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, by); err != nil || !was {
		t.Errorf("resume: %v, %v", was, err)
	}
	verb(operate.RunNow, 2)
	verb(operate.Cancel, 2)
	verb(operate.RetryArchived, 2)
	if state := client.HGet(ctx, asynqwire.Key(r.queue, "t:"+waits), "state").Val(); state != "aggregating" {
		t.Errorf("a retried job is %q", state)
	}
	verb(operate.Cancel, 2)
	verb(operate.DeleteArchived, 2)
	if n := client.Exists(ctx, asynqwire.Key(r.queue, "t:"+waits)).Val(); n != 0 {
		t.Error("a deleted job is there")
	}
}

// TestSweepOnFullRedis: the sweep puts lanes back that stand nowhere, so that a full Redis drains.
func TestSweepOnFullRedis(t *testing.T) {
	t.Parallel()
	r := limitedRig(t, "0")
	client, ctx, waiting := r.server.Client(), t.Context(), store.Key("q", "waiting")
	r.add(t, nil)
	if n := client.ZRem(ctx, waiting, "a;kind=call").Val(); n != 1 {
		t.Fatal("the lane did not wait")
	}
	r.server.Server().FillMemory()
	if err := r.chores().Sweep(ctx); err != nil {
		t.Error(err)
	}
	if n := client.ZCard(ctx, waiting).Val(); n != 1 {
		t.Errorf("%d lanes wait after the sweep", n)
	}
}

// TestLateEndOnFullRedis: a job that was taken from a worker ends when that one comes back.
func TestLateEndOnFullRedis(t *testing.T) {
	t.Parallel()
	r := limitedRig(t, "0")
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.recover(t, id, "10", true)
	r.server.Server().FillMemory()
	done, err := store.LateScript.Run(t.Context(), r.server.Client(), store.ScriptKeys("q"), "q", id, "w:1", "a", "call", "1", "[1]", "ok", "1", "1000")
	if err != nil || done != int64(1) || r.field(t, id, "result") != "[1]" {
		t.Errorf("%v, %v; its result is %q", done, err, r.field(t, id, "result"))
	}
}

// TestPeriodicOnFullRedis: a periodic job that finds Redis full is enqueued later.
func TestPeriodicOnFullRedis(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "@every 24h", MaxLate: 24 * time.Hour, Job: Job{Kind: "call", Tenant: "a", Payload: struct{}{}}})
	tm.aged("x", 48*time.Hour)
	tm.ticks.client.fit.nodes = map[string]*nodeFitness{"": {at: time.Now().Add(time.Hour), err: ErrRedisFull}}
	tm.mustRound(tm.ticks)
	if got := tm.fired("call"); len(got) > 0 {
		t.Errorf("fired %v", got)
	}
	tm.ticks.client.fit.nodes = nil
	tm.mustRound(tm.ticks)
	wantFired(t, tm.fired("call"), "x", tm.now()/86400*86400)
}
