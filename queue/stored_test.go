package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	"github.com/headgate/headgate/queue/validation"
)

// countsOf returns what a queue counts of a tenant; "*": of all.
func countsOf(t *testing.T, client redis.UniversalClient, queue, tenant string) store.Counts {
	t.Helper()
	text, err := client.HGet(t.Context(), store.TenantsKey(queue), tenant).Result()
	if err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	return store.ReadCounts(text)
}

// countWaiting adds to a tenant's count of waiting jobs, for tests that move jobs by hand.
func countWaiting(t *testing.T, client redis.UniversalClient, queue, tenant string, n int64) {
	t.Helper()
	script := store.NewScript("backlog_add(ARGV[2], tonumber(ARGV[3]))\nreturn 1")
	if _, err := script.Run(t.Context(), client, store.ScriptKeys(queue), queue, tenant, n); err != nil {
		t.Fatal(err)
	}
}

// rightlyCounted compares the counts of all tenants with the jobs that there are.
func (r *rig) rightlyCounted(t *testing.T) {
	t.Helper()
	client, want := r.server.Client(), map[string]store.Counts{}
	for _, key := range redistest.Keys(t, client, asynqwire.Key(r.queue, "t:*")) {
		fields := client.HMGet(t.Context(), key, "group", "state", "hg_body").Val()
		body, counted := fields[2].(string)
		if !counted {
			continue // enqueued by asynq's own client
		}
		_, size, _ := strings.Cut(body, " ")
		units, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{strings.SplitN(fields[0].(string), ";", 2)[0], "*"} {
			n := want[tenant]
			n.Jobs++
			n.Bytes += 64 * units
			if fields[1] == "aggregating" {
				n.Waiting++
			}
			want[tenant] = n
		}
	}
	waiting := int64(0)
	for tenant, text := range client.HGetAll(t.Context(), store.TenantsKey(r.queue)).Val() {
		got := store.ReadCounts(text)
		if got.Jobs != want[tenant].Jobs || got.Bytes != want[tenant].Bytes || got.Waiting != want[tenant].Waiting {
			t.Errorf("%s is counted as %+v; there is %+v", tenant, got, want[tenant])
		}
		if tenant != "*" && got.Waiting > 0 {
			waiting++
		}
		delete(want, tenant)
	}
	for tenant, n := range want {
		t.Errorf("%s has %+v, and is not counted", tenant, n)
	}
	if n := countsOf(t, client, r.queue, "*").Tenants; n != waiting {
		t.Errorf("%d tenants wait by the count; want %d", n, waiting)
	}
}

// TestCapsCountAllStates: what a tenant keeps in Redis counts, in whatever state it is.
func TestCapsCountAllStates(t *testing.T) {
	t.Parallel()
	set := limitsOf()
	set.Queues[""] = limits.Queue{MaxBacklog: 1}
	for state, into := range map[string]func(r *rig, t *testing.T) string{
		"waiting":   func(r *rig, t *testing.T) string { return r.add(t, nil) },
		"scheduled": func(r *rig, t *testing.T) string { return r.add(t, func(job *Job) { job.In = time.Hour }) },
		"retry": func(r *rig, t *testing.T) string {
			return r.end(t, func(*Job) {}, func(context.Context, Running) error { return errors.New("later") }, "retried")
		},
		"archived": func(r *rig, t *testing.T) string {
			return r.end(t, func(*Job) {}, func(context.Context, Running) error { return permanent{} }, string(lifecycle.Archived))
		},
		"completed": func(r *rig, t *testing.T) string {
			return r.end(t, func(job *Job) { job.Retention = time.Hour }, nil, string(lifecycle.Done))
		},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, set, nil)
			id := into(r, t)
			job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: 1}
			if _, err := r.client.Enqueue(t.Context(), job); !errors.Is(err, ErrBacklogFull) || !strings.Contains(err.Error(), "has 1 of at most 1 jobs of the tenant, in all states") {
				t.Errorf("a second job beside one that is %s: %v", state, err)
			}
			job.Tenant = "b"
			if _, err := r.client.Enqueue(t.Context(), job); err != nil {
				t.Errorf("another tenant: %v", err)
			}
			r.rightlyCounted(t)
			// What asynq's tools delete holds nobody back, though it is not counted.
			if err := asynq.NewInspectorFromRedisClient(r.server.Client()).DeleteTask(r.queue, id); err != nil {
				t.Fatal(err)
			}
			r.round(t, r.dispatcher()) // finds that the job in the lane is gone
			r.sweep(t, 1)
			job.Tenant = "a"
			if _, err := r.client.Enqueue(t.Context(), job); err != nil {
				t.Errorf("after the job was deleted: %v", err)
			}
		})
	}
}

// end adds a job, and returns its id when a call ended as told.
func (r *rig) end(t *testing.T, edit func(*Job), answer func(context.Context, Running) error, outcome string) string {
	t.Helper()
	r.answer = answer
	r.run(t)
	id := r.add(t, edit)
	r.seen.wait(t, outcome, 1)
	r.stop()
	return id
}

// TestCapsOfBytes: sizes are counted exactly, of a tenant and of a queue, with follow-ups and results.
func TestCapsOfBytes(t *testing.T) {
	t.Parallel()
	for _, of := range []limits.Queue{{MaxBacklogBytes: 10_000}, {MaxQueueBytes: 10_000}} {
		set := limitsOf()
		set.Queues[""] = of
		r := startRig(t, -1, set, nil)
		accepted := 0
		for i := range 10 {
			_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: strings.Repeat("x", 1500)})
			if err == nil {
				accepted++
			} else if !errors.Is(err, ErrBacklogFull) || !strings.Contains(err.Error(), "of at most 10000 bytes of jobs") {
				t.Errorf("job %d: %v", i, err)
			}
		}
		r.rightlyCounted(t)
		n := countsOf(t, r.server.Client(), r.queue, "a")
		if n.Bytes > 10_000 || n.Bytes < 10_000-2200 || n.Jobs != int64(accepted) || accepted != 4 {
			t.Errorf("%+v after %d were accepted", n, accepted)
		}
		_, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "b", Payload: strings.Repeat("x", 1500)})
		if alone := of.MaxQueueBytes == 0; alone != (err == nil) {
			t.Errorf("another tenant under %+v: %v", of, err)
		}
	}
	r := startRig(t, -1, limitsOf(), nil)
	id := r.end(t, func(job *Job) { job.Retention, job.Tenant = time.Hour, "a" }, func(ctx context.Context, _ Running) error {
		return SetResult(ctx, strings.Repeat("r", 6_398)) // with its quotes 100 units
	}, string(lifecycle.Done))
	plain := r.add(t, func(job *Job) { job.Retention, job.Tenant = time.Hour, "b" })
	if with, without := countsOf(t, r.server.Client(), r.queue, "a"), countsOf(t, r.server.Client(), r.queue, "b"); with.Bytes != without.Bytes+6_400 {
		t.Errorf("with a result of 6,400 bytes job %s counts as %d bytes; job %s without one as %d", id, with.Bytes, plain, without.Bytes)
	}
	r.rightlyCounted(t)
	// Nothing is left in the counts when the retention is over.
	r.server.Client().ZAdd(t.Context(), asynqwire.Key(r.queue, "completed"), zOf(id, 1))
	if _, err := store.JanitorScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, 10); err != nil {
		t.Fatal(err)
	}
	if n := countsOf(t, r.server.Client(), r.queue, "a"); n.Jobs != 0 || n.Bytes != 0 || n.Done != 1 {
		t.Errorf("counts of a deleted job: %+v", n)
	}
	r = startRig(t, -1, limitsOf(), nil)
	r.end(t, func(*Job) {}, nil, string(lifecycle.Done))
	if n := countsOf(t, r.server.Client(), r.queue, "a"); n.Jobs != 0 || n.Bytes != 0 || n.Done != 1 {
		t.Errorf("counts of a job that is done and not kept: %+v", n)
	}
}

// TestMaxRetention: no job is kept for longer than its queue allows, nor are its follow-ups.
func TestMaxRetention(t *testing.T) {
	t.Parallel()
	set := limitsOf()
	set.Queues[""] = limits.Queue{MaxRetention: 48 * time.Hour}
	r := startRig(t, -1, set, nil)
	job := func(retention time.Duration) Job {
		return Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: 1, Key: fmt.Sprint(retention), Retention: retention}
	}
	for _, retention := range []time.Duration{0, time.Hour, 48 * time.Hour} {
		if _, err := r.client.Enqueue(t.Context(), job(retention)); err != nil {
			t.Errorf("%v: %v", retention, err)
		}
	}
	long, parent := job(48*time.Hour+time.Second), job(time.Minute)
	parent.OnSuccess = &long
	for field, job := range map[string]Job{"retention": long, "on_success.retention": parent} {
		_, err := r.client.Enqueue(t.Context(), job)
		if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != field || !strings.Contains(err.Error(), "48h0m1s is more than queue") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestNoCountsOfATenantWithoutJobs: a tenant whose only job was deleted leaves no counts behind.
func TestNoCountsOfATenantWithoutJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, func(job *Job) { job.Tenant = "once" })
	for _, verb := range []operate.Verb{operate.Cancel, operate.DeleteArchived} {
		if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, verb, operate.Filter{ID: id}, ann, nil); err != nil {
			t.Fatal(err)
		}
	}
	if r.server.Client().HExists(t.Context(), store.TenantsKey(r.queue), "once").Val() {
		t.Error("its counts are still there")
	}
	if n := countsOf(t, r.server.Client(), r.queue, "*"); n != (store.Counts{}) {
		t.Errorf("the sums are %+v", n)
	}
}
