package queue

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestTimedTasksOfAsynqAreShaped: tasks that asynq's own client enqueued follow the limits.
func TestTimedTasksOfAsynqAreShaped(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, 4, limitsOf(perTenant(4)), nil)
		client := asynq.NewClientFromRedisClient(r.server.Client())
		for _, options := range [][]asynq.Option{
			{asynq.Queue(r.queue)},
			{asynq.Queue(r.queue), asynq.MaxRetry(0)}, // asynq would archive this one instead of deferring it
			{asynq.Queue(r.queue), asynq.Group(asynqwire.NoTenant)},
			{asynq.Queue(r.queue), asynq.ProcessIn(time.Second)},
		} {
			if _, err := client.Enqueue(asynq.NewTask("call", []byte(`{}`)), options...); err != nil {
				t.Fatal(err)
			}
		}
		r.run(t)
		r.receiver.wait(t)
		r.seen.wait(t, string(lifecycle.Done), 4)
		run.Law("asynq's own", r.calls[asynqwire.NoTenant], 4, 1)
		if archived := r.archived(t); len(archived) != 0 {
			t.Errorf("archived: %v", archived)
		}
	})
}

// TestAsynqContract is what a new version of asynq has to pass: asynq's Inspector and
// Client see what Headgate did, and Headgate sees what they did.
func TestAsynqContract(t *testing.T) {
	t.Parallel()
	t.Run("asynq sees a waiting job", func(t *testing.T) {
		r := startRig(t, 1, limitsOf(perTenant(100)), nil)
		inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
		id := r.add(t, func(job *Job) { job.Payload = json.RawMessage(`{"n":1}`); job.Retention = time.Hour })
		task, err := inspector.GetTaskInfo(r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		if task.State != asynq.TaskStateAggregating || task.Type != "call" || string(task.Payload) != `{"n":1}` ||
			task.Group != "a;kind=call" || task.Queue != r.queue || task.Retention != time.Hour || task.MaxRetry != asynqwire.EndlessRetry ||
			task.Timeout != asynqwire.EndlessTimeout || task.Headers[asynqwire.HeaderTenant] != "a" || task.Retried != 0 {
			t.Errorf("GetTaskInfo = %+v", task)
		}
		groups, err := inspector.Groups(r.queue)
		if err != nil || len(groups) != 1 || groups[0].Group != "a;kind=call" || groups[0].Size != 1 {
			t.Errorf("Groups = %+v, %v", groups, err)
		}
		listed, err := inspector.ListAggregatingTasks(r.queue, "a;kind=call")
		if err != nil || len(listed) != 1 || listed[0].ID != id {
			t.Errorf("ListAggregatingTasks = %+v, %v", listed, err)
		}
		if queues, err := inspector.Queues(); err != nil || !slices.Contains(queues, r.queue) {
			t.Errorf("Queues = %v, %v; want %s among them", queues, err, r.queue)
		}
	})

	t.Run("a job that asynq deletes is not called and does not stop its lane", func(t *testing.T) {
		r := startRig(t, 1, limitsOf(perTenant(100)), nil)
		deleted := r.add(t, nil)
		kept := r.add(t, nil)
		if err := asynq.NewInspectorFromRedisClient(r.server.Client()).DeleteTask(r.queue, deleted); err != nil {
			t.Fatal(err)
		}
		r.run(t)
		r.receiver.wait(t)
		if r.jobs[kept] != 1 || r.jobs[deleted] != 0 {
			t.Errorf("calls = %v; want only %s", r.jobs, kept)
		}
	})

	t.Run("a job that asynq runs takes a slot like any other", func(t *testing.T) {
		hourly := perTenant(1)
		hourly.Rate.Period = time.Hour
		r := startRig(t, 1, limitsOf(hourly), nil)
		r.add(t, nil)
		second := r.add(t, nil)
		if err := asynq.NewInspectorFromRedisClient(r.server.Client()).RunTask(r.queue, second); err != nil {
			t.Fatal(err)
		}
		r.run(t)
		r.receiver.wait(t)
		r.seen.wait(t, "round", 40) // enough time for the other job to go, if it could
		r.stop()
		if calls, states := len(r.all()), r.states(t); calls != 1 || states["aggregating"] != 1 {
			t.Errorf("%d calls at one an hour; states: %v", calls, states)
		}
	})

	t.Run("asynq lists the worker and what it runs", func(t *testing.T) {
		r := startRig(t, 1, limitsOf(), nil)
		inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
		r.answer = func(ctx context.Context, _ Running) error {
			<-ctx.Done() // until its task is cancelled
			return permanent{}
		}
		id := r.add(t, func(job *Job) { job.Payload = json.RawMessage(`{"n":1}`) })
		began := time.Now()
		r.run(t)
		ours := func() *asynq.ServerInfo {
			servers, err := inspector.Servers()
			if err != nil {
				t.Fatal(err)
			}
			for _, server := range servers {
				if _, serves := server.Queues[r.queue]; serves {
					return server
				}
			}
			return nil
		}
		until(t, "listed", func() bool {
			server := ours()
			return server != nil && len(server.ActiveWorkers) == 1
		})
		server := ours()
		run := server.ActiveWorkers[0]
		if server.Status != "active" || server.Concurrency != defaultConcurrency || server.PID != os.Getpid() || began.Sub(server.Started).Abs() > time.Minute ||
			run.TaskID != id || run.TaskType != "call" || string(run.TaskPayload) != `{"n":1}` || run.Queue != r.queue || began.Sub(run.Started).Abs() > time.Minute {
			t.Errorf("%+v runs %+v", server, run)
		}
		if err := inspector.CancelProcessing(id); err != nil {
			t.Fatal(err)
		}
		r.seen.wait(t, "called", 1)
		r.stop()
		if server := ours(); server != nil {
			t.Errorf("it has ended, and is listed: %+v", server)
		}
	})

	t.Run("asynq counts and keeps what was done", func(t *testing.T) {
		r := startRig(t, 2, limitsOf(), nil)
		r.answer = func(_ context.Context, job Running) error {
			if job.Tenant == "bad" {
				return permanent{}
			}
			return nil
		}
		done := r.add(t, func(job *Job) { job.Key = "k" })
		bad := r.add(t, func(job *Job) { job.Tenant = "bad" })
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 1)
		r.seen.wait(t, string(lifecycle.Archived), 1)
		r.stop()
		inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
		if task, err := inspector.GetTaskInfo(r.queue, done); err != nil || task.State != asynq.TaskStateCompleted {
			t.Errorf("the job with a key: %+v, %v; want it completed and kept", task, err)
		}
		if reason := r.archived(t)[bad]; reason == "" {
			t.Errorf("the failed job is not in asynq's archive with a reason")
		}
		info, err := inspector.GetQueueInfo(r.queue)
		if err != nil || info.ProcessedTotal != 2 || info.FailedTotal != 1 || info.Groups != 0 {
			t.Errorf("GetQueueInfo = %+v, %v; want 2 processed, 1 failed, no group left", info, err)
		}
	})
}

// permanent is an error as package clients makes them.
type permanent struct{}

func (permanent) Error() string   { return "the provider will never take it" }
func (permanent) Permanent() bool { return true }
