package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestAsynqCancelsACall: a task is cancelled with asynq's tools. The context of its call
// ends, the outcome of the call is unknown, and the job is called again.
func TestAsynqCancelsACall(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, limitsOf(), nil)
	r.answer = func(ctx context.Context, job Running) error {
		if len(r.callsOf("a")) > 1 {
			return nil
		}
		<-ctx.Done()
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("the call ended by itself: %v", err)
		}
		return ctx.Err()
	}
	id := r.add(t, nil)
	r.run(t)
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	until(t, "called", func() bool { return len(r.callsOf("a")) == 1 })
	until(t, "called again", func() bool { // the worker listens a moment after its start
		if err := inspector.CancelProcessing(id); err != nil {
			t.Fatal(err)
		}
		return len(r.callsOf("a")) == 2
	})
	r.seen.wait(t, string(lifecycle.Done), 1)
	r.stop()
	if n := r.server.Client().Exists(t.Context(), asynqwire.Key(r.queue, "t:"+id)).Val(); n != 0 {
		t.Errorf("the job is done, and asynq still has it as %s", r.field(t, id, "state"))
	}
}
