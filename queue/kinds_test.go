package queue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// TestKindOfAnotherQueue: a job whose kind the limits of its queue do not list is refused, and
// if it is there already, its handler is not called under limits that are not its own.
func TestKindOfAnotherQueue(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(1000)), nil)
	client, mine, others := r.server.Client(), redistest.Queue(t), redistest.Queue(t)+"-kind"
	publish := func(kinds ...string) {
		t.Helper()
		if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{
			r.queue: {Kinds: kinds, Limits: []limits.Limit{perTenant(1000)}}, mine: {Kinds: []string{mine}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	job := func(kind, queue string) Job {
		return Job{Kind: kind, Queue: queue, Tenant: "acme", Payload: json.RawMessage(`{}`)}
	}
	// While the limits list no kinds, the queue takes all.
	waiting, err := r.client.Enqueue(t.Context(), job("call", r.queue))
	if err != nil {
		t.Fatal(err)
	}
	publish(others)
	fresh := NewClient(client)
	for _, j := range []Job{job("call", r.queue), job(mine, r.queue), job(others, mine)} {
		_, err := fresh.Enqueue(t.Context(), j)
		if _, ok := errors.AsType[*validation.Error](err); !ok {
			t.Errorf("kind %s in queue %s: %v", j.Kind, j.Queue, err)
		}
	}
	if _, err := fresh.Enqueue(t.Context(), job(others, r.queue)); err != nil {
		t.Errorf("the kind that is listed: %v", err)
	}

	// The worker handles the kind of the job that waits, and yet leaves it.
	r.run(t)
	until(t, "its lane is put aside", func() bool {
		return client.SIsMember(t.Context(), store.Key(r.queue, "unserved"), "call").Val()
	})
	e, err := inspect.New(client).Explain(t.Context(), r.queue, waiting.ID)
	if want := "queue " + r.queue + " is not for kind call, which its limits do not list"; err != nil || !strings.Contains(e.String(), want) {
		t.Errorf("%v, %v; want %s", e, err, want)
	}
	if sent := r.seen.sent(); len(sent) > 0 {
		t.Errorf("%d calls", len(sent))
	}
	publish()
	r.seen.wait(t, string(lifecycle.Done), 1)
}
