// Package queuetest helps to test code that enqueues or handles jobs. [Start] gives a
// test a queue of its own, with a Redis inside the process: there is nothing to install,
// and nothing is shared with other tests.
//
//	q := queuetest.Start(t)
//	shop := NewShop(q.Client)
//	shop.Order(ctx, "Ada")
//	queuetest.RequireEnqueued(q, SendSMS, SMS{To: "Ada", Text: "on its way"})
//
// Nothing runs by itself. [Queue.Drain] runs the jobs that may go now, with a real
// worker: handlers, middleware, attempts, keys and follow-ups are as in production. It
// runs one job at a time, so handlers in a test need no locks. [Queue.Advance] brings
// forward what waits for a later time. [Queue.Work] calls one handler with one job,
// without a queue.
//
// There are no limits until the test publishes some, so that tests are fast. When the
// test ends, it fails if there are jobs that it never looked at, or that failed for good:
// see [Enqueued] and [Queue.Outcomes].
package queuetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Queue is a queue of one test, or several queues on one Redis.
type Queue struct {
	Client *queue.Client
	Worker *queue.Worker // handlers are registered on it; Drain runs it
	Redis  redis.UniversalClient

	t         testing.TB
	queues    []string // of Start
	served    []string // these, and those of the kinds with handlers
	inspector *asynq.Inspector
	rounds    chan int      // jobs released by each round of dispatch, while Drain listens
	longest   time.Duration // the maximum duration of a Drain

	mu   sync.Mutex
	runs []Run
	seen map[string]bool // ids of jobs that Enqueued returned
	told int             // how many of runs Outcomes returned
}

// Start starts a Redis, a client and a worker that serves the queues of the kinds that have
// handlers: the queue whose limits list the kind, if the test publishes limits, or else the
// queue with the name of the kind. It also serves the given queues; name those that only
// [queue.Job].Queue selects. All of it is closed when the test ends. A subtest calls Start
// itself.
func Start(t testing.TB, queues ...string) *Queue {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	t.Cleanup(server.Close)
	options, err := queue.ParseRedisURL(server.URL())
	if err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	q := &Queue{
		Client: queue.NewClient(client), Redis: client, t: t, queues: queues, served: queues,
		inspector: asynq.NewInspectorFromRedisClient(client), rounds: make(chan int), seen: map[string]bool{}, longest: maxDrain,
	}
	q.Worker, err = queue.New(queue.Config{
		Redis: options, Queues: queues, Concurrency: 1, ShutdownTimeout: 5 * time.Second,
		// Outcomes has the failed calls. Only the log has the stack of a panic.
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})), Observer: observer{q: q},
	})
	if err != nil {
		t.Fatalf("queuetest: Start: %v", err)
	}
	q.Worker.Use(q.record)
	t.Cleanup(q.leftovers)
	return q
}

// leftovers fails a test that leaves jobs it did not look at.
func (q *Queue) leftovers() {
	if q.t.Failed() || q.t.Skipped() {
		return
	}
	if err := q.serve(); err != nil {
		q.t.Errorf("queuetest: %v", err)
		return
	}
	var left []string
	for _, task := range q.tasks("") {
		if !q.seen[task.ID] {
			left = append(left, "left over: "+q.describe(task))
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, run := range q.runs[q.told:] {
		switch run.Outcome {
		case lifecycle.Archived, lifecycle.Unknown, lifecycle.Expired, lifecycle.Crashed:
			left = append(left, "failed for good: "+run.String())
		}
	}
	if len(left) > 0 {
		q.t.Errorf("queuetest: the test ends with jobs that it did not look at (Drain, Enqueued, Outcomes):\n\t%s", strings.Join(left, "\n\t"))
	}
}

// describe returns what a job is and why it is there.
func (q *Queue) describe(task *asynq.TaskInfo) string {
	text := fmt.Sprintf("%s for %s in queue %s, job %s", task.Type, tenantOf(task), task.Queue, task.ID)
	switch {
	case q.unserved(task):
		text += fmt.Sprintf("; the worker serves %s: queuetest.Start(t, …, %q)", cmp.Or(strings.Join(q.served, ", "), "no queue"), task.Queue)
	case task.State == asynq.TaskStateRetry:
		text += fmt.Sprintf(", again in %v: %s", time.Until(task.NextProcessAt).Round(time.Second), task.LastErr)
	case task.State == asynq.TaskStateScheduled:
		text += fmt.Sprintf(", due in %v", time.Until(task.NextProcessAt).Round(time.Second))
	case !slices.Contains(q.Worker.Kinds(), task.Type):
		text += fmt.Sprintf("; the worker has no handler for kind %q", task.Type)
	}
	return text
}

// unserved reports whether the worker does not serve the queue of a job.
func (q *Queue) unserved(task *asynq.TaskInfo) bool { return !slices.Contains(q.served, task.Queue) }

// observer reports to Drain what the worker does.
type observer struct {
	queue.NoObserver
	q *Queue
}

func (o observer) Dispatched(name string, round queue.Round) {
	_ = o.q.hold(name) // if Redis fails, the next call of state returns the error
	select {
	case o.q.rounds <- round.Released:
	default:
	}
}

// Finished records jobs that ended without a call, which middleware does not see.
func (o observer) Finished(name, kind string, outcome lifecycle.Outcome) {
	if outcome == lifecycle.Expired || outcome == lifecycle.Crashed {
		o.q.add(Run{Running: queue.Running{Queue: name, Kind: kind}, Outcome: outcome})
	}
}

const redisTimeout = 5 * time.Second

func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), redisTimeout)
}
