package queue

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

// keyLine returns a new payload key with this id.
func keyLine(id string) string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return id + ":" + base64.StdEncoding.EncodeToString(key)
}

func payloadKeys(t *testing.T, lines ...string) *encryption.Keys {
	t.Helper()
	keys, err := encryption.Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// everything returns all names and values in a Redis.
func everything(t *testing.T, client redis.UniversalClient) string {
	t.Helper()
	ctx, all := t.Context(), &strings.Builder{}
	for _, key := range redistest.Keys(t, client, "*") {
		var value any
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			value = client.Get(ctx, key).Val()
		case "hash":
			value = client.HGetAll(ctx, key).Val()
		case "list":
			value = client.LRange(ctx, key, 0, -1).Val()
		case "set":
			value = client.SMembers(ctx, key).Val()
		case "zset":
			value = client.ZRange(ctx, key, 0, -1).Val()
		case "stream":
			value = client.XRange(ctx, key, "-", "+").Val()
		case "none": // it has expired
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		fmt.Fprintln(all, key, value)
	}
	return all.String()
}

// inTheClear reports whether a text says CANARY, also in base64 from wherever it may begin.
func inTheClear(text string) bool {
	const canary = "CANARY"
	if strings.Contains(text, canary) {
		return true
	}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary))
		// The characters at its ends also depend on the bytes beside it.
		if strings.Contains(text, encoded[(8*shift+5)/6:8*(shift+len(canary))/6]) {
			return true
		}
	}
	return false
}

// encryptedRig is a rig with a Redis of its own whose client has keys.
func encryptedRig(t *testing.T, keys *encryption.Keys) *rig {
	t.Helper()
	server := redistest.Start(t)
	return &rig{receiver: newReceiver(-1), queue: "q", client: NewClient(server.Client()).Encrypt(keys), server: server.Redis()}
}

// rarely returns the spec of a periodic job whose next tick is half a year away.
func rarely() string { return fmt.Sprintf("0 0 1 %d *", time.Now().AddDate(0, 6, 0).Month()) }

// TestNothingIsInTheClear: what payloads, results, follow-ups and periodic jobs say is nowhere in
// Redis, while handlers, clients and the Inspector see it.
func TestNothingIsInTheClear(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	keys := payloadKeys(t, keyLine("k1"))
	r := encryptedRig(t, keys)
	r.makeWorker(t, func(c *Config) { c.PayloadKeys = keys })
	client, ctx := r.server.Client(), t.Context()
	hidden := func(when string) {
		t.Helper()
		if all := everything(t, client); inTheClear(all) {
			t.Errorf("%s, Redis has it in the clear: %.2000s", when, all)
		}
	}
	listed, followed, childListed := make(chan struct{}), make(chan string, 1), make(chan struct{})
	HandleResult(r.worker, "parent", func(_ context.Context, payload string) (string, error) {
		<-listed
		return "CANARY of " + payload, nil
	})
	HandleResult(r.worker, "child", func(ctx context.Context, payload string) (string, error) {
		job, _ := Current(ctx)
		followed <- payload + string(job.ParentResult)
		<-childListed
		return "", nil
	})
	parent := Job{
		Kind: "parent", Queue: "q", Tenant: "a", Key: "k", Payload: "CANARY payload", Retention: time.Hour,
		OnSuccess: &Job{Kind: "child", Queue: "q", Payload: "CANARY child"},
		OnFailure: &Job{Kind: "child", Queue: "q", Payload: "CANARY failure", OnSuccess: &Job{Kind: "child", Queue: "q", Payload: "CANARY grandchild"}},
	}
	receipt, err := r.client.Enqueue(ctx, parent)
	if err != nil {
		t.Fatal(err)
	}
	periodic := Periodic{ID: "p", Spec: rarely(), Zone: "UTC", Job: Job{Kind: "child", Queue: "q", Tenant: "a", Payload: "CANARY tick", OnSuccess: parent.OnSuccess}}
	for range 2 {
		if err := r.client.SetPeriodic(ctx, periodic); err != nil {
			t.Fatal(err)
		}
	}
	if changes := client.HGet(ctx, periodicKey, "").Val(); changes != "1" {
		t.Errorf("the same periodic job set twice made %s changes", changes)
	}
	hidden("before the call")
	if task, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo("q", receipt.ID); err != nil || !encryption.Encrypted(task.Payload) {
		t.Errorf("asynq's tools show the payload %q, %v", task.Payload, err)
	}
	if again, err := r.client.Enqueue(ctx, parent); err != nil || !again.Existing {
		t.Errorf("the same job again: %+v, %v", again, err)
	}
	other := parent
	other.Payload = "CANARY of another"
	if _, err := r.client.Enqueue(ctx, other); !errors.Is(err, ErrConflict) {
		t.Errorf("another payload with the same key: %v", err)
	}

	r.run(t)
	until(t, "asynq's tools see the call", func() bool {
		for _, key := range redistest.Keys(t, client, "asynq:workers:*") {
			if client.HLen(ctx, key).Val() == 1 {
				return true
			}
		}
		return false
	})
	hidden("during the call")
	close(listed)
	if got := <-followed; got != `CANARY child"CANARY of CANARY payload"` {
		t.Errorf("the follow-up got %s", got)
	}
	hidden("during the follow-up") // which carries the result of its parent
	close(childListed)
	r.seen.wait(t, string(lifecycle.Done), 2)
	hidden("after the call")
	if result, err := r.client.Result(ctx, "q", receipt.ID); err != nil || string(result.Result) != `"CANARY of CANARY payload"` {
		t.Errorf("the result is %s, %v", result.Result, err)
	}
	if d, err := inspect.New(client).Decrypt(keys).Job(ctx, "q", receipt.ID); err != nil || string(d.Payload) != `"CANARY payload"` || string(d.Result) != `"CANARY of CANARY payload"` || d.Locked != "" {
		t.Errorf("the Inspector shows %s, %s, %q, %v", d.Payload, d.Result, d.Locked, err)
	}
	if list, err := r.client.ListPeriodic(ctx); err != nil || fmt.Sprintf("%s", list[0].Job.Payload) != `"CANARY tick"` || list[0].Job.OnSuccess == nil {
		t.Errorf("the periodic job is %+v, %v", list, err)
	}

	// Without the key.
	if d, err := inspect.New(client).Job(ctx, "q", receipt.ID); err != nil || d.Payload != nil || d.Result != nil || !strings.Contains(d.Locked, `key "k1"`) {
		t.Errorf("the Inspector shows %q, %q, %q, %v", d.Payload, d.Result, d.Locked, err)
	}
	if _, err := NewClient(client).Result(ctx, "q", receipt.ID); err == nil || !strings.Contains(err.Error(), `key "k1"`) {
		t.Errorf("the result without the key: %v", err)
	}
	if list, err := NewClient(client).ListPeriodic(ctx); err != nil || list[0].Err == nil || !strings.Contains(list[0].Err.Error(), `key "k1"`) {
		t.Errorf("the periodic job without the key: %+v, %v", list, err)
	}
}

// TestKeyIsReplaced: jobs of the old key are called, and found again by their own keys, while
// new ones are encrypted with the new key.
func TestKeyIsReplaced(t *testing.T) {
	old, next := keyLine("2025"), keyLine("2026")
	r := encryptedRig(t, payloadKeys(t, old))
	job := Job{Kind: "call", Queue: "q", Tenant: "a", Key: "k", Payload: "x"}
	first, err := r.client.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	periodic := Periodic{ID: "p", Spec: rarely(), Zone: "UTC", Job: Job{Kind: "call", Queue: "q", Tenant: "a", Payload: 1}}
	if err := r.client.SetPeriodic(t.Context(), periodic); err != nil {
		t.Fatal(err)
	}
	both := payloadKeys(t, next, old)
	r.client = NewClient(r.server.Client()).Encrypt(both)
	if again, err := r.client.Enqueue(t.Context(), job); err != nil || !again.Existing || again.ID != first.ID {
		t.Errorf("the same job again: %+v, %v", again, err)
	}
	second := r.add(t, func(j *Job) { j.Payload = "y" })
	if msg := r.field(t, second, "msg"); !strings.Contains(msg, "2026") || strings.Contains(msg, "2025") {
		t.Errorf("%q", msg)
	}
	if err := r.client.SetPeriodic(t.Context(), periodic); err != nil {
		t.Fatal(err)
	}
	alone := NewClient(r.server.Client()).Encrypt(payloadKeys(t, next))
	if list, err := alone.ListPeriodic(t.Context()); err != nil || list[0].Err != nil {
		t.Errorf("the periodic job was set with the new key, which alone cannot read it: %+v, %v", list, err)
	}
	r.makeWorker(t, func(c *Config) { c.PayloadKeys = both })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
}

// TestKeyIsGone: jobs whose key a worker does not have wait, say why, and are called once the key is
// there; so are the follow-ups of jobs that have ended.
func TestKeyIsGone(t *testing.T) {
	defer func(was, follow time.Duration) { lockedPause, followPause = was, follow }(lockedPause, followPause)
	lockedPause, followPause = time.Second, time.Second
	keys := payloadKeys(t, keyLine("k1"))
	r := encryptedRig(t, keys)
	client, ctx := r.server.Client(), t.Context()
	waits := r.add(t, func(job *Job) { job.MaxAttempts = 1 })
	ended := r.add(t, func(job *Job) {
		job.Tenant = "b"
		job.OnFailure = &Job{Kind: "call", Queue: "q", Payload: "sorry"}
	})
	if _, err := operate.Apply(ctx, client, "q", operate.Cancel, operate.Filter{Tenant: "b"}, operate.Operator{Actor: "ann", Reason: "test"}, nil); err != nil {
		t.Fatal(err)
	}
	plain := NewClient(client)
	if _, err := plain.Enqueue(ctx, Job{Kind: "call", Queue: "q", Tenant: "c", Payload: "plain"}); err != nil {
		t.Fatal(err)
	}
	without := r.beside(t, nil)
	without.run(t)
	without.seen.wait(t, string(lifecycle.Done), 1) // the job that is not encrypted
	without.seen.wait(t, string(lifecycle.Postponed), 2)
	without.seen.wait(t, string(lifecycle.Parked), 2)
	for _, id := range []string{waits, ended} {
		if e, err := inspect.New(client).Explain(ctx, "q", id); err != nil || !strings.Contains(e.Error, `encrypted with key "k1", which this program does not have: add it to HEADGATE_PAYLOAD_KEYS`) {
			t.Errorf("%s: %q, %v", id, e.Error, err)
		}
	}
	without.stop()
	if len(r.jobs) != 1 {
		t.Fatalf("a worker without the key called %v", r.jobs)
	}

	r.makeWorker(t, func(c *Config) { c.PayloadKeys = keys })
	r.run(t)
	until(t, "all are called", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.jobs) == 3
	})
	if r.jobs[waits] != 1 || r.jobs[ended] != 0 {
		t.Errorf("called: %v", r.jobs)
	}
	until(t, "the job that ended is archived", func() bool { return client.HGet(ctx, asynqwire.Key("q", "t:"+ended), "state").Val() == "archived" })
}

// TestMarkedPayloads: nobody can enqueue what looks encrypted, which workers would let wait.
func TestMarkedPayloads(t *testing.T) {
	marked := payloadKeys(t, keyLine("k1")).Encrypt([]byte("x"), encryption.PlaceOf("q", "id", encryption.Payload))
	for _, job := range []Job{{Payload: marked}, {Payload: 1, OnSuccess: &Job{Kind: "call", Queue: "q", Payload: marked}}} {
		job.Kind, job.Queue, job.Tenant = "call", "q", "a"
		if _, err := NewClient(redistest.Any(t).Client()).Enqueue(t.Context(), job); err == nil || !strings.Contains(err.Error(), "payload: must not begin like an encrypted text") {
			t.Errorf("Enqueue = %v", err)
		}
	}
	worker := newWorker(t, Config{Redis: redistest.Any(t).Options(), Queues: []string{"q"}})
	Handle(worker, "call", func(ctx context.Context, _ any) error { return SetResult(ctx, marked) })
	if _, err := worker.Call(t.Context(), Job{Kind: "call", Tenant: "a", Payload: 1}); !errors.Is(err, encryption.ErrMarked) {
		t.Errorf("SetResult = %v", err)
	}
}
