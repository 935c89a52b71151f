package queue

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestSilentRedisCutsNoCall: calls in flight need no Redis. They go on while it does not
// answer for longer than asynq's leases last, and are settled afterwards.
func TestSilentRedisCutsNoCall(t *testing.T) {
	redistest.Slow(t)
	t.Parallel() // it measures no time, and takes a while
	const jobs = 20
	server := redistest.Start(t)
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	began, release := make(chan struct{}, 100), make(chan struct{})
	calls := newLedger()
	var cut atomic.Int64
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		calls.begin(job)
		began <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			cut.Add(1)
			return ctx.Err()
		}
	}, Timeout(10*time.Minute))
	stop := runWorker(t, worker)
	c := &livingCase{t: t, name: "silent", server: server}
	c.ids = c.enqueue("call", jobs)
	for range jobs {
		<-began
	}
	server.Pause()
	time.Sleep(33 * time.Second) // the fault itself
	server.Resume()
	if n := cut.Load(); n > 0 {
		t.Errorf("%d of %d calls were cut off", n, jobs)
	}
	close(release)
	c.gone(time.Minute)
	calls.once(t, c.ids)
	stop()
}
