package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestCancelledRunSwallowsNothing: an operator of asynq cancels a task whose call
// does not listen. asynq gives the task back at once, and never acknowledges that
// run. The next run's acknowledgement reaches Redis.
func TestCancelledRunSwallowsNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	release := make(chan struct{})
	r.answer = func(context.Context, Running) error {
		<-release
		return nil
	}
	id := r.add(t, nil)
	r.run(t)
	r.wait(t, 5*time.Second)
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	until(t, "given back", func() bool { // asynq listens to cancellations a moment after its start
		if err := inspector.CancelProcessing(id); err != nil {
			t.Fatal(err)
		}
		return r.field(t, id, "state") != "active"
	})
	until(t, "handed out again", func() bool { return r.field(t, id, "state") == "active" })
	close(release)
	r.seen.wait(t, string(Done), 1)
	r.stop()
	if n := r.server.Client().Exists(t.Context(), asynqKey(r.queue, "t:"+id)).Val(); n != 0 {
		t.Errorf("the job is done, and asynq still has it as %s", r.field(t, id, "state"))
	}
}
