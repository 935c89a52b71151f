package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// tries is a hook on a producer's Redis client that sees every try of a batch.
type tries struct {
	mu sync.Mutex
	n  int
	// send sends the try or drops it. Its argument is the number of the try, from 1 on.
	send func(try int, send func() error) error
	last redis.Cmder
}

func (h *tries) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if args[0] != "evalsha" || args[1] != store.EnqueueScript.Hash() {
		return next(ctx, cmd)
	}
	h.mu.Lock()
	h.n++
	n := h.n
	h.last = cmd
	h.mu.Unlock()
	return h.send(n, func() error { return next(ctx, cmd) })
}

// producer returns a client with its own Redis client, whose batches go through send.
func producer(t *testing.T, server *redistest.Redis, send func(try int, send func() error) error) (*Client, *tries) {
	t.Helper()
	options := server.Options()
	options.DialerRetries = 1
	own := redis.NewUniversalClient(options)
	t.Cleanup(func() { own.Close() })
	h := &tries{send: send}
	own.AddHook(redistest.OnCommand(h.on))
	client := NewClient(own)
	return client, h
}

// loaded loads the script into the shared Redis, so that each try is one EVALSHA.
func loaded(t *testing.T, r *rig) {
	t.Helper()
	r.add(t, func(job *Job) { job.Tenant, job.In = "warm up", time.Hour })
}

// gone waits until the jobs are deleted.
func (r *rig) gone(t *testing.T, n int) {
	t.Helper()
	r.seen.wait(t, string(lifecycle.Done), n)
	until(t, "the jobs' hashes are gone", func() bool {
		left := redistest.Keys(t, r.server.Client(), asynqwire.Key(r.queue, "t:*"))
		return len(left) == 1 // the one of loaded
	})
}

// TestLostReplyOfEnqueue: after a lost reply, a job that was done before its producer's
// retry is not accepted a second time.
func TestLostReplyOfEnqueue(t *testing.T) {
	t.Parallel()
	edits := map[string]func(*Job){
		"without a key":       func(*Job) {},
		"with KeyUntil Ended": func(job *Job) { job.Key, job.KeyUntil = "k", Ended },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			const jobs = 3
			r := startRig(t, jobs, limitsOf(), nil)
			loaded(t, r)
			r.run(t)
			client, h := producer(t, r.server, func(try int, send func() error) error {
				if try == 1 {
					if err := send(); err != nil {
						return err
					}
					r.gone(t, jobs)
					return io.EOF
				}
				return send()
			})
			batch := make([]Job, jobs)
			for i := range batch {
				batch[i] = Job{Kind: "call", Queue: r.queue, Tenant: fmt.Sprint("t", i), Payload: json.RawMessage(`{}`)}
				edit(&batch[i])
			}
			for _, result := range client.EnqueueMany(t.Context(), batch) {
				if result.Err != nil || result.Existing {
					t.Errorf("%+v; want the receipt whose reply was lost", result)
				}
			}
			if states := r.states(t); h.n != 2 || states["aggregating"]+states["pending"]+states["active"] != 0 {
				t.Errorf("after %d tries there are %v; want none of the jobs again", h.n, states)
			}
			r.stop()
			if len(r.jobs) != jobs || r.total != jobs {
				t.Errorf("%d calls of %d jobs; want %d", r.total, len(r.jobs), jobs)
			}
		})
	}
}

// TestRepeatedEnqueueOnEmbeddedRedis: the embedded Redis keeps the answers too.
func TestRepeatedEnqueueOnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	embedded := redistest.Embedded(t)
	embedded.AddHook(redistest.OnCommand((&tries{send: func(try int, send func() error) error {
		err := send()
		if try == 2 { // the first one loads the script
			return io.EOF
		}
		return err
	}}).on))
	client := NewClient(embedded)
	job := Job{Kind: "call", Queue: "q", Tenant: "a", Key: "k"}
	if _, err := client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	other := job
	other.Payload = "other"
	results := client.EnqueueMany(t.Context(), []Job{job, other, {Kind: "call", Queue: "q", Tenant: "a"}})
	if !results[0].Existing || results[0].ID != "a:k" || results[0].State != lifecycle.StateWaiting ||
		!errors.Is(results[1].Err, ErrConflict) || results[2].Err != nil || results[2].Existing {
		t.Errorf("%+v", results)
	}
	if n := embedded.ZCard(t.Context(), asynqwire.Key("q", "g:a;kind=call")).Val(); n != 2 {
		t.Errorf("%d jobs wait; want 2", n)
	}
}

// TestLateTryOfEnqueue: the first try arrives after its retry was answered and the job is
// gone.
func TestLateTryOfEnqueue(t *testing.T) {
	t.Parallel()
	late := func(t *testing.T, client redis.UniversalClient, cmd redis.Cmder) any {
		t.Helper()
		reply, err := client.Do(t.Context(), cmd.Args()...).Result()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	t.Run("accepted", func(t *testing.T) {
		r := startRig(t, 1, limitsOf(), nil)
		loaded(t, r)
		r.run(t)
		var first redis.Cmder
		var h *tries
		client, h := producer(t, r.server, func(try int, send func() error) error {
			if try == 1 {
				first = h.last
				return io.EOF
			}
			return send()
		})
		if _, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		r.gone(t, 1)
		late(t, r.server.Client(), first)
		if states := r.states(t); states["aggregating"]+states["pending"]+states["active"] != 0 {
			t.Errorf("the late try was accepted again: %v", states)
		}
	})
	t.Run("refused", func(t *testing.T) {
		shape := limitsOf()
		shape.Queues[""] = limits.Queue{MaxBacklog: 1}
		r := startRig(t, 1, shape, nil)
		blocking := r.add(t, nil)
		var first redis.Cmder
		var h *tries
		client, h := producer(t, r.server, func(try int, send func() error) error {
			if try == 1 {
				first = h.last
				return io.EOF
			}
			return send()
		})
		if _, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}); !errors.Is(err, ErrBacklogFull) {
			t.Fatalf("Enqueue: %v; want ErrBacklogFull", err)
		}
		for _, verb := range []operate.Verb{operate.Cancel, operate.DeleteArchived} { // archived jobs count, too
			if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, verb, operate.Filter{ID: blocking}, ann, nil); err != nil {
				t.Fatal(err)
			}
		}
		late(t, r.server.Client(), first)
		if states := r.states(t); states["aggregating"] != 0 {
			t.Errorf("the late try was accepted after its producer was told that the job is refused: %v", states)
		}
	})
}

// TestOneBatchSeesItself: a job that is twice in one batch is treated as if it came in two
// batches.
func TestOneBatchSeesItself(t *testing.T) {
	t.Parallel()
	shape := limitsOf()
	shape.Queues[""] = limits.Queue{MaxBacklog: 5, MaxQueue: 7}
	r := startRig(t, 1, shape, nil)
	job := func(tenant, payload string, edit func(*Job)) Job {
		job := Job{Kind: "call", Queue: r.queue, Tenant: tenant, Payload: json.RawMessage(payload)}
		if edit != nil {
			edit(&job)
		}
		return job
	}
	keyed := func(job *Job) { job.Key = "k" }
	ended := func(job *Job) { job.Key, job.KeyUntil = "e", Ended }
	window := func(job *Job) { job.Key, job.KeyWindow = "w", time.Hour }
	results := r.client.EnqueueMany(t.Context(), []Job{
		job("a", "1", keyed), job("a", "1", keyed), job("a", "2", keyed),
		job("a", "1", ended), job("a", "1", ended), job("a", "2", ended),
		job("a", "1", window), job("a", "1", window), job("a", "2", window),
		job("a", "1", nil), job("a", "1", nil), job("a", "1", nil), // the third is one too many for the tenant
		job("b", "1", nil), job("b", "1", nil), job("b", "1", nil), // and here for the queue
	})
	want := []string{"ok", "existing 0", "conflict", "ok", "existing 3", "conflict", "ok", "existing 6", "conflict",
		"ok", "ok", "full", "ok", "ok", "full"}
	for i, result := range results {
		got := "ok"
		switch {
		case errors.Is(result.Err, ErrConflict):
			got = "conflict"
		case errors.Is(result.Err, ErrBacklogFull):
			got = "full"
		case result.Err != nil:
			got = result.Err.Error()
		case result.Existing:
			got = "existing"
			for n, other := range results[:i] {
				if other.ID == result.ID && !other.Existing {
					got = fmt.Sprint("existing ", n)
				}
			}
		}
		if got != want[i] {
			t.Errorf("job %d: %s; want %s", i, got, want[i])
		}
	}
	if states := r.states(t); states["aggregating"] != 7 {
		t.Errorf("%v; want 7 that wait", states)
	}
	client := r.server.Client()
	for tenant, want := range map[string]int64{"a": 5, "b": 2, "*": 7} {
		if n := countsOf(t, client, r.queue, tenant); n.Waiting != want || n.Jobs != want {
			t.Errorf("counts of %s: %+v; want %d", tenant, n, want)
		}
	}
	if n := client.HGet(t.Context(), store.Key(r.queue, "totals"), "enqueued").Val(); n != "7" {
		t.Errorf("%s are counted as enqueued", n)
	}
	if lanes := client.ZCard(t.Context(), store.Key(r.queue, "waiting")).Val(); lanes != 2 {
		t.Errorf("the dispatcher knows %d lanes", lanes)
	}
}

// TestDamagedJobIsRefusedAlone: a key of another type rejects the job that needs it. Nothing
// of the job is written, and the other jobs of the batch are accepted.
func TestDamagedJobIsRefusedAlone(t *testing.T) {
	t.Parallel()
	shape := limitsOf()
	tests := map[string]struct {
		damage func(t *testing.T, r *rig)
		edit   func(*Job)
	}{
		"its task is a string": {
			func(t *testing.T, r *rig) {
				r.server.Client().Set(t.Context(), asynqwire.Key(r.queue, "t:a:bad"), "x", 0)
			},
			func(job *Job) { job.Key = "bad" },
		},
		"its unique key is a hash": {
			func(t *testing.T, r *rig) {
				r.server.Client().HSet(t.Context(), store.Key(r.queue, "unique:a:bad"), "x", "y")
			},
			func(job *Job) { job.Key, job.KeyUntil = "bad", Ended },
		},
		"its lane is a string": {
			func(t *testing.T, r *rig) {
				r.server.Client().Set(t.Context(), asynqwire.Key(r.queue, "g:bad;kind=call"), "x", 0)
			},
			func(job *Job) { job.Tenant = "bad" },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, 1, shape, nil)
			test.damage(t, r)
			jobs := make([]Job, 3)
			for i := range jobs {
				jobs[i] = Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}
			}
			test.edit(&jobs[1])
			results := r.client.EnqueueMany(t.Context(), jobs)
			for i, result := range results {
				if i == 1 && (result.Err == nil || errors.Is(result.Err, ErrUnknown) || !strings.Contains(result.Err.Error(), "WRONGTYPE")) {
					t.Errorf("the damaged job: %+v; want an error that says what is wrong", result)
				}
				if i != 1 && result.Err != nil {
					t.Errorf("job %d: %v; want it accepted", i, result.Err)
				}
			}
			if waits := r.server.Client().ZCard(t.Context(), asynqwire.Key(r.queue, "g:a;kind=call")).Val(); waits != 2 {
				t.Errorf("%d jobs wait; want 2", waits)
			}
			if n := countsOf(t, r.server.Client(), r.queue, "*").Waiting; n != 2 {
				t.Errorf("%d wait by the count; want 2", n)
			}
		})
	}
}

// TestKeyOfADeletedJob: when asynq's tools, which know nothing of keys, delete a job, its
// key is free at once and does not stay in Redis forever.
func TestKeyOfADeletedJob(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "k", KeyUntil: Ended}
	name := store.Key(r.queue, "unique:a:k")
	first, err := r.client.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if err := asynq.NewInspectorFromRedisClient(client).DeleteTask(r.queue, first.ID); err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), name).Val(); left <= 0 {
		t.Errorf("the key of a deleted job stays for %v; want it to expire", left)
	}
	second, err := r.client.Enqueue(t.Context(), job)
	if err != nil || second.Existing || second.ID == first.ID {
		t.Fatalf("after it was deleted: %+v, %v; want a new job", second, err)
	}

	// While the job lives, each use of the key prolongs it.
	if err := client.PExpire(t.Context(), name, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if again, err := r.client.Enqueue(t.Context(), job); err != nil || again.ID != second.ID || !again.Existing {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if left := client.PTTL(t.Context(), name).Val(); left < 29*24*time.Hour {
		t.Errorf("the key of a job that waits expires in %v", left)
	}
	// A job scheduled for next year keeps its key at least until then.
	job.Key, job.In = "later", 365*24*time.Hour
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), store.Key(r.queue, "unique:a:later")).Val(); left < 394*24*time.Hour {
		t.Errorf("the key of a job of next year expires in %v", left)
	}
	// A key with a KeyWindow keeps its time.
	job = Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "w", KeyWindow: time.Minute}
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	job.KeyWindow, job.KeyUntil = 0, Ended
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), store.Key(r.queue, "unique:a:w")).Val(); left > time.Minute {
		t.Errorf("a key with a window of a minute expires in %v", left)
	}
}

// TestTickIsFencedWithItsJob: a tick counts as fired if and only if its job was enqueued,
// even next to a damaged job and twice in one batch.
func TestTickIsFencedWithItsJob(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	if err := client.Set(t.Context(), asynqwire.Key(r.queue, "g:bad;kind=call"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ticks, jobs := []any{}, []any{}
	for _, entry := range []string{"a", "bad", "b", "a"} {
		a, err := Job{Kind: "call", Queue: r.queue, Tenant: entry}.accept(r.queue, now)
		if err != nil {
			t.Fatal(err)
		}
		ticks, jobs = append(ticks, entry, now.Unix(), "queue"), a.append(jobs)
	}
	args := slices.Concat([]any{r.queue, 4, ""}, ticks, []any{""}, jobs)
	for range 2 { // the second time as after a lost reply
		reply, err := store.PeriodicFireScript.Run(t.Context(), client, store.ScriptKeys(r.queue), args...)
		if err != nil {
			t.Fatal(err)
		}
		if answers := fmt.Sprint(reply); !strings.Contains(answers, "[-5 WRONGTYPE") {
			t.Errorf("answers %s; want the damaged job refused alone", answers)
		}
		for lane, want := range map[string]int64{"a": 1, "b": 1} {
			if n := client.ZCard(t.Context(), asynqwire.Key(r.queue, "g:"+lane+";kind=call")).Val(); n != want {
				t.Errorf("%d jobs of %s wait; want %d", n, lane, want)
			}
		}
		if fenced := client.ZRange(t.Context(), store.Key(r.queue, "periodic"), 0, -1).Val(); fmt.Sprint(fenced) != "[a b]" {
			t.Errorf("fired ticks: %v; want those whose jobs were enqueued", fenced)
		}
	}
}
