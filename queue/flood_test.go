package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestForeignTasksBesideAFlood: while jobs of one tenant fill the worker, tasks of asynq's
// own client and jobs of a quiet tenant are still served.
func TestForeignTasksBesideAFlood(t *testing.T) {
	t.Parallel()
	const flood, foreign = 3000, 50
	r := startRig(t, -1, limitsOf(), func(c *Config) { c.Concurrency = 10 })
	r.answer = func(context.Context, Running) error {
		time.Sleep(2 * time.Millisecond) // the call itself
		return nil
	}
	r.enqueue(t, "busy", flood)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 100)
	client := asynq.NewClientFromRedisClient(r.server.Client())
	for range foreign {
		if _, err := client.Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(r.queue)); err != nil {
			t.Fatal(err)
		}
	}
	r.enqueue(t, "quiet", foreign)
	until(t, "both are served", func() bool {
		return len(r.callsOf(asynqwire.NoTenant)) == foreign && len(r.callsOf("quiet")) == foreign
	})
	if n := len(r.callsOf("busy")); n > flood/2 {
		t.Errorf("%d of %d jobs of the busy tenant went before them", n, flood)
	}
	if n := r.states(t)["pending"]; n != 0 {
		t.Errorf("%d tasks are pending", n)
	}
}
