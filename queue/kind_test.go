package queue

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/queue/lifecycle"
)

type greeting struct {
	To   string `json:"to"`
	Word string `json:"word"`
}

func TestKind(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	const greet Kind[greeting] = "greet"
	got := make(chan greeting, 2)
	Handle(r.worker, greet, func(_ context.Context, g greeting) error { got <- g; return nil })
	job := greet.Job("acme", greeting{"Ada", "hello"})
	job.Queue = r.queue
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	// A producer that is newer than this worker sends another field.
	job.Payload = json.RawMessage(`{"to":"Bob","word":"hi","urgent":true}`)
	if _, err := r.client.Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	job.Payload = json.RawMessage(`{"to":7}`)
	receipt, err := r.client.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.stop()
	if got := map[greeting]bool{<-got: true, <-got: true}; !got[greeting{"Ada", "hello"}] || !got[greeting{"Bob", "hi"}] {
		t.Errorf("payloads = %v", got)
	}
	if reason := r.archived(t)[receipt.ID]; !strings.Contains(reason, "decode the payload of greet: json: cannot unmarshal number") {
		t.Errorf("archived with %q", reason)
	}
}

// TestKindsOfAllTypes: a handler gets the payload that the producer passed to Kind.Job.
func TestKindsOfAllTypes(t *testing.T) {
	roundTrip(t, greeting{"Ada", "hello"})
	roundTrip(t, &greeting{"Ada", "hello"})
	roundTrip(t, "text")
	roundTrip(t, []byte("no JSON at all \x00"))
	roundTrip(t, json.RawMessage(`{"as":"it is"}`))
	roundTrip(t, map[string]int{"a": 1})
	roundTrip(t, struct{}{})
}

func roundTrip[T any](t *testing.T, payload T) {
	t.Helper()
	const kind Kind[T] = "any"
	encoded, err := encodePayload(kind.Job("a", payload).Payload)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kind.Decode(encoded); err != nil || !reflect.DeepEqual(got, payload) {
		t.Errorf("%T: %v, %v; want %v", payload, got, err, payload)
	}
}
