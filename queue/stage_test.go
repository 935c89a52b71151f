package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/operate"
)

var ann = operate.Operator{Actor: "ann", Reason: "the campaign was a mistake"}

// notToday is an error with PostponeUntil, as in package clients.
type notToday struct{ time.Time }

func (notToday) Error() string              { return "not today" }
func (e notToday) PostponeUntil() time.Time { return e.Time }

// staged is a queue without a worker and with jobs in every state, of two tenants and two
// kinds.
type staged struct {
	*rig
	ids map[string]string // id -> "TENANT KIND STATE"
}

func stage(t *testing.T) *staged {
	t.Helper()
	s := &staged{ids: map[string]string{}}
	s.rig = startRig(t, 0, limitsOf(perTenant(1000)), nil)
	s.answer = func(_ context.Context, job Running) error {
		if strings.HasSuffix(job.ID, "retry") {
			return notToday{time.Now().Add(time.Hour)}
		}
		return permanent{}
	}
	Handle(s.worker, "other", func(ctx context.Context, _ json.RawMessage) error {
		job, _ := Current(ctx)
		return s.answer(ctx, job)
	})
	each := func(states ...lifecycle.State) {
		for _, tenant := range []string{"a", "a b/%"} {
			for _, kind := range []string{"call", "other"} {
				for _, state := range states {
					id := s.add(t, func(job *Job) {
						job.Tenant, job.Kind, job.Key = tenant, kind, kind+"-"+string(state)
						if state == lifecycle.StateScheduled {
							job.In = time.Hour
						}
					})
					s.ids[id] = tenant + " " + kind + " " + string(state)
				}
			}
		}
	}
	each(lifecycle.StateRetry, lifecycle.StateArchived)
	s.run(t)
	s.seen.wait(t, string(lifecycle.Postponed), 4)
	s.seen.wait(t, string(lifecycle.Archived), 4)
	s.stop()
	each(lifecycle.StateWaiting, lifecycle.StateScheduled, lifecycle.StateActive, lifecycle.StatePending)
	inspector := asynq.NewInspectorFromRedisClient(s.server.Client())
	for _, state := range []lifecycle.State{lifecycle.StateActive, lifecycle.StatePending} {
		for id, what := range s.ids {
			if !strings.HasSuffix(what, string(state)) {
				continue
			}
			if err := inspector.RunTask(s.queue, id); err != nil {
				t.Fatal(err)
			}
			// asynq does not update Headgate's counts; dispatch and the sweep correct them.
			tenant, _, _ := strings.Cut(what, " "+"call")
			tenant, _, _ = strings.Cut(tenant, " other")
			countWaiting(t, s.server.Client(), s.queue, rediskey.Escape(tenant), -1)
			if state == lifecycle.StateActive {
				s.dequeue(t)
			}
		}
	}
	return s
}

// dequeue takes the next pending task like asynq's workers.
func (r *rig) dequeue(t *testing.T) {
	t.Helper()
	ctx, client := t.Context(), r.server.Client()
	id, err := client.LMove(ctx, asynqwire.Key(r.queue, "pending"), asynqwire.Key(r.queue, "active"), "right", "left").Result()
	if err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", "active")
	client.ZAdd(ctx, asynqwire.Key(r.queue, "lease"), zOf(id, float64(time.Now().Unix()+30)))
}

// account returns where every job of a queue is, as asynq's Inspector sees it. It fails the
// test if Redis has a job elsewhere.
func (r *rig) account(t *testing.T) map[string]lifecycle.State {
	t.Helper()
	where := map[string]lifecycle.State{}
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	note := func(state lifecycle.State, tasks []*asynq.TaskInfo, err error) {
		if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if other, twice := where[task.ID]; twice {
				t.Errorf("job %s is %s and %s", task.ID, other, state)
			}
			if info, err := inspector.GetTaskInfo(r.queue, task.ID); err != nil || lifecycle.StateOf(info.State.String()) != state {
				t.Errorf("job %s stands under %s: %+v, %v", task.ID, state, info, err)
			}
			where[task.ID] = state
		}
	}
	all := asynq.PageSize(100_000)
	groups, err := inspector.Groups(r.queue)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		tasks, err := inspector.ListAggregatingTasks(r.queue, group.Group, all)
		note(lifecycle.StateWaiting, tasks, err)
		if len(tasks) == 0 {
			t.Errorf("an empty lane %s is still listed", group.Group)
		}
	}
	for state, list := range map[lifecycle.State]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		lifecycle.StateScheduled: inspector.ListScheduledTasks, lifecycle.StateRetry: inspector.ListRetryTasks, lifecycle.StatePending: inspector.ListPendingTasks,
		lifecycle.StateActive: inspector.ListActiveTasks, lifecycle.StateArchived: inspector.ListArchivedTasks, "completed": inspector.ListCompletedTasks,
	} {
		tasks, err := list(r.queue, all)
		note(state, tasks, err)
	}
	ours, err := r.server.Client().ZRange(t.Context(), store.Key(r.queue, "archive"), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ours {
		where[id] = lifecycle.StateArchived
	}
	tasks := redistest.Keys(t, r.server.Client(), asynqwire.Key(r.queue, "t:*"))
	if len(tasks) != len(where) {
		t.Errorf("%d jobs stand somewhere, and there are %d", len(where), len(tasks))
	}
	backlog := int(countsOf(t, r.server.Client(), r.queue, "*").Waiting)
	waiting := 0
	for _, state := range where {
		if state == lifecycle.StateWaiting {
			waiting++
		}
	}
	if backlog != waiting {
		t.Errorf("%d jobs wait, and the books say %d", waiting, backlog)
	}
	return where
}
