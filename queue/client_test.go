package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

func TestHostileJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Any(t)
	client, name := NewClient(server.Client()), redistest.Queue(t)
	set := limits.Set{Queues: map[string]limits.Queue{name: {Limits: []limits.Limit{{
		Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 20, Per: []string{"tenant"},
	}}}}}
	if err := operate.Publish(t.Context(), server.Client(), set); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		edit   func(*Job)
		field  string
		reason string
	}{
		"no tenant":           {func(j *Job) { j.Tenant = "" }, "tenant", "empty"},
		"tenant of 1 KB":      {func(j *Job) { j.Tenant = strings.Repeat("x", 1024) }, "tenant", "1024 bytes; the maximum is 128"},
		"tenant with newline": {func(j *Job) { j.Tenant = "a\nb" }, "tenant", "control characters"},
		"tenant with NUL":     {func(j *Job) { j.Tenant = "a\x00" }, "tenant", "control characters"},
		"tenant not UTF-8":    {func(j *Job) { j.Tenant = "\xff" }, "tenant", "not UTF-8"},
		"key of 1 KB":         {func(j *Job) { j.Key = strings.Repeat("x", 1024) }, "key", "the maximum is 256"},
		"no kind":             {func(j *Job) { j.Kind = "" }, "kind", "1 to 64"},
		"kind with braces":    {func(j *Job) { j.Kind = "{x}" }, "kind", "1 to 64"},
		"queue with braces":   {func(j *Job) { j.Queue = "a}:t:X" }, "queue", "1 to 64"},
		"priority":            {func(j *Job) { j.Priority = "urgent" }, "priority", "is not a priority: use high, normal or low"},
		"the year 1":          {func(j *Job) { j.At = time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC) }, "at", "the year 1 is before 2000"},
		"the year 9999":       {func(j *Job) { j.At = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, "at", "more than 10 years ahead"},
		"in and at":           {func(j *Job) { j.At = time.Now(); j.In = time.Second }, "in", "not both"},
		"in the past":         {func(j *Job) { j.In = -1 }, "in", "negative"},
		"deadline in year 1":  {func(j *Job) { j.Deadline = time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC) }, "deadline", "has passed"},
		"deadline in 9999":    {func(j *Job) { j.Deadline = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, "deadline", "more than 10 years"},
		"deadline before at":  {func(j *Job) { j.In = time.Hour; j.Deadline = time.Now().Add(time.Minute) }, "deadline", "after the job's earliest time"},
		"cost -1":             {func(j *Job) { j.Cost = -1 }, "cost", "at least 1"},
		"cost over capacity":  {func(j *Job) { j.Cost = 21 }, "cost", `21 is more than limit "tenant" ever admits at once (20)`},
		"cost of 10^18":       {func(j *Job) { j.Cost = 1e18 }, "cost", "more than"},
		"attempts -1":         {func(j *Job) { j.MaxAttempts = -1 }, "max_attempts", "must be 1 to"},
		"attempts 10^6":       {func(j *Job) { j.MaxAttempts = 1e6 }, "max_attempts", "must be 1 to"},
		"payload of 2 MiB":    {func(j *Job) { j.Payload = make([]byte, 2<<20) }, "payload", "bytes; the maximum is 1048576"},
		"payload not JSON":    {func(j *Job) { j.Payload = func() {} }, "payload", "unsupported type"},
		"attribute named {}":  {func(j *Job) { j.Attributes = map[string]string{"{}": "x"} }, "attributes", "the name"},
		"attribute tenant":    {func(j *Job) { j.Attributes = map[string]string{"tenant": "x"} }, "attributes", "tenant is a field of the job"},
		"empty attribute":     {func(j *Job) { j.Attributes = map[string]string{"domain": ""} }, "attributes", "domain: it is empty"},
		"retention -1":        {func(j *Job) { j.Retention = -1 }, "retention", "must be 0 to"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			job := Job{Kind: "call", Queue: name, Tenant: "a", Payload: json.RawMessage(`{}`)}
			test.edit(&job)
			_, err := client.Enqueue(t.Context(), job)
			invalid, ok := errors.AsType[*validation.Error](err)
			if !ok || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.reason) {
				t.Errorf("Enqueue = %v; want %s: …%s…", err, test.field, test.reason)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("the error has %d characters", len(err.Error()))
			}
		})
	}
	t.Run("nothing is half done", func(t *testing.T) {
		for _, pattern := range []string{"asynq:{" + name + "}:*", "asynq:{a}:*"} {
			if keys := redistest.Keys(t, server.Client(), pattern); len(keys) != 0 {
				t.Errorf("keys were written: %v", keys)
			}
		}
	})
}

// TestTenantsNeverShareKeys: whatever their names are, tenants never share jobs, lanes or
// buckets.
func TestTenantsNeverShareKeys(t *testing.T) {
	names := []string{"a", "{}", "a}:pending", "}:t:X", ":", "*", "%", "%7B%7D", "a;domain=x", "ünïcødé", "日本", "a b", "t:a", strings.Repeat("é", 64)}
	hourly := perTenant(1)
	hourly.Rate.Period = time.Hour // so that each tenant's bucket is worth one call
	r := startRig(t, len(names), limitsOf(hourly), nil)
	for _, tenant := range names {
		for range 2 {
			r.add(t, func(job *Job) { job.Tenant = tenant; job.Attributes = map[string]string{"domain": tenant} })
		}
		r.add(t, func(job *Job) { job.Tenant = tenant; job.Key = "k"; job.In = time.Hour })
	}
	if states := r.states(t); states["aggregating"] != 2*len(names) || states["scheduled"] != len(names) {
		t.Fatalf("states = %v", states)
	}
	r.run(t)
	r.receiver.wait(t)
	for _, tenant := range names {
		if len(r.calls[tenant]) != 1 {
			t.Errorf("%d calls of tenant %q; want the one that its own bucket allows", len(r.calls[tenant]), tenant)
		}
	}
	page, err := inspect.New(r.server.Client()).ListTenants(t.Context(), r.queue, inspect.TenantQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Tenants) != len(names) {
		t.Errorf("%d tenants are listed, want %d", len(page.Tenants), len(names))
	}
}

func TestKeysAreIdempotent(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: "order-1", Payload: json.RawMessage(`{"n":1}`)}
	first, err := r.client.Enqueue(t.Context(), job)
	if err != nil || first.Existing {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := r.client.Enqueue(t.Context(), job)
	if err != nil || !again.Existing || again.ID != first.ID || again.State != lifecycle.StateWaiting {
		t.Errorf("again: %+v, %v; want the job that is there", again, err)
	}
	other := job
	other.Payload = json.RawMessage(`{"n":2}`)
	if _, err := r.client.Enqueue(t.Context(), other); !errors.Is(err, ErrConflict) {
		t.Errorf("another payload: %v; want ErrConflict", err)
	}
	theirs := job
	theirs.Tenant = "b"
	theirs.In = time.Hour
	if receipt, err := r.client.Enqueue(t.Context(), theirs); err != nil || receipt.Existing {
		t.Errorf("another tenant's key: %+v, %v", receipt, err)
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	after, err := r.client.Enqueue(t.Context(), job)
	if err != nil || !after.Existing || after.State != "completed" {
		t.Errorf("after it was done: %+v, %v; want it remembered", after, err)
	}
}

func TestLaneIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	const jobs = 250
	r := startRig(t, 0, limitsOf(), nil)
	batch := make([]Job, jobs)
	for i := range batch {
		// Keys that sort against the order of arrival.
		batch[i] = Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: fmt.Sprintf("%03d", jobs-i), Payload: json.RawMessage(`{}`)}
	}
	ids := enqueueAll(t, r.client, batch...)
	client := r.server.Client()
	order, err := client.ZRange(t.Context(), asynqwire.Key(r.queue, "g:a;kind=call"), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(order) != fmt.Sprint(ids) {
		t.Errorf("the lane holds %v…; want the order of arrival %v…", order[:3], ids[:3])
	}
}

// TestLookupHoldsNoOtherJobs: a job whose partition is not known yet holds up only those of its tenant, which stay in
// their order even if it is known in time for them.
func TestLookupHoldsNoOtherJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := redis.NewUniversalClient(r.server.Options())
	t.Cleanup(func() { _ = client.Close() })
	lookup := &heldAnswers{command: "hmget", asked: make(chan struct{}, 100), answer: make(chan struct{})}
	client.AddHook(redistest.OnCommand(lookup.on))
	producer := NewClient(client)
	found := sync.OnceFunc(func() {
		close(lookup.answer)
		until(t, "the partition is known", func() bool {
			_, err := producer.routes.homeIn(t.Context(), r.queue, "a", 0)
			return err == nil
		})
	})
	producer.Use(func(_ context.Context, job *Job) error {
		if job.Key == "2" { // it comes behind the first one
			found()
		}
		return nil
	})
	var batch []Job
	for _, key := range []string{"1", "2", "3"} {
		batch = append(batch, Job{Kind: "call", Queue: r.queue, Tenant: "a", Key: key, Payload: json.RawMessage(`{}`)})
	}
	done := make(chan []Result, 1)
	go func() { done <- producer.EnqueueMany(t.Context(), batch) }()
	var ids []string
	select {
	case results := <-done:
		for _, result := range results {
			if result.Err != nil {
				t.Error(result.Err)
			}
			ids = append(ids, result.ID)
		}
	case <-time.After(hang):
		found()
		t.Fatal("the first job holds up all others")
	}
	order, err := r.server.Client().ZRange(t.Context(), asynqwire.Key(r.queue, "g:a;kind=call"), 0, -1).Result()
	if err != nil || !slices.Equal(order, ids) {
		t.Errorf("the lane holds %v, %v; want the order of arrival %v", order, err, ids)
	}
}

func TestClientWithoutRedis(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := NewClient(server.Client())
	job := Job{Kind: "call", Queue: "q", Tenant: "a", Key: "k", Payload: json.RawMessage(`{}`)}
	if _, err := client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.Enqueue(ctx, job)
	if err == nil {
		t.Fatal("no error without a Redis")
	}
	if errors.Is(err, ErrUnknown) {
		t.Errorf("%v; want an error that says it was certainly not enqueued", err)
	}
}
