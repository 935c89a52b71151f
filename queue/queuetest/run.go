package queuetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/internal/serving"
	"github.com/headgate/headgate/queue/lifecycle"
)

// Run is one run of a job: a call, or the end of a job that expired or crashed without
// being called; then only Queue, Kind and Outcome are set.
type Run struct {
	queue.Running
	Outcome lifecycle.Outcome
	Err     error // returned by the handler
}

func (r Run) String() string {
	text := fmt.Sprintf("%s in queue %s", r.Kind, r.Queue)
	if r.ID != "" {
		text = fmt.Sprintf("%s for %s in queue %s, job %s, attempt %d", r.Kind, r.Tenant, r.Queue, r.ID, r.Attempt)
	}
	text += ": " + string(r.Outcome)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Outcomes returns the runs of [Queue.Drain] so far, in order. After this, the test may
// end although some of them failed for good.
func (q *Queue) Outcomes() []Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = len(q.runs)
	return slices.Clone(q.runs)
}

func (q *Queue) add(run Run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs = append(q.runs, run)
}

type workKey struct{}

// record is the outermost middleware. It records each call.
func (q *Queue) record(next queue.Handler) queue.Handler {
	return func(ctx context.Context, payload []byte) (err error) {
		note := func(err error) {
			job, _ := queue.Current(ctx)
			if work, ok := ctx.Value(workKey{}).(*Run); ok {
				work.Running = job
				return
			}
			q.add(Run{Running: job, Outcome: queue.OutcomeOf(ctx, err), Err: err})
		}
		defer func() {
			if value := recover(); value != nil {
				note(fmt.Errorf("panic: %v", value))
				panic(value)
			}
			note(err)
		}()
		return next(ctx, payload)
	}
}

// Work calls the handler of a job now, in the goroutine of the test, through the worker's
// middleware. The job is not enqueued. Set its MaxAttempts to 1 to make the call its
// last. Work fails the test if the job could not be enqueued or has no handler.
func (q *Queue) Work(job queue.Job) Run {
	q.t.Helper()
	var run Run
	outcome, err := q.Worker.Call(context.WithValue(q.t.Context(), workKey{}, &run), job)
	if outcome == "" {
		q.t.Fatalf("queuetest: Work: %v", err)
	}
	run.Outcome, run.Err = outcome, err
	return run
}

const (
	// maxDrain ends a Drain whose handlers enqueue each other forever.
	maxDrain = 30 * time.Second

	// patience is how long Drain waits for a limit that the test published.
	patience = 500 * time.Millisecond
)

// Drain runs the jobs that may go now, and those that they enqueue, one at a time, until
// no more may go. It does not let time pass for the jobs: those for later stay, and so do
// failed jobs that wait for their next attempt, however long the others run. Jobs of a
// paused tenant also stay, and those that a limit holds for more than half a second: see
// [Queue.Advance]. Drain fails the test if a job of a kind that has a handler is in a queue
// that the worker does not serve.
func (q *Queue) Drain() {
	q.t.Helper()
	if err := q.serve(); err != nil {
		q.t.Fatalf("queuetest: Drain: %v", err)
	}
	ctx, cancel := context.WithCancel(serving.With(context.Background(), q.served))
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // Run may fail at its start
		ended <- q.Worker.Run(ctx)
	}()
	err := q.drained(ctx)
	cancel()
	switch err := cmp.Or(<-ended, err, q.release()); {
	case errors.Is(err, errNoEnd): // the worker has stopped, so the jobs can be listed
		q.t.Fatalf("queuetest: Drain: %v%s", err, q.list())
	case err != nil:
		q.t.Fatalf("queuetest: Drain: %v", err)
	}
	for _, task := range q.tasks("") {
		if q.unserved(task) && slices.Contains(q.Worker.Kinds(), task.Type) {
			q.t.Fatalf("queuetest: Drain: %s", q.describe(task))
		}
	}
}

var errNoEnd = errors.New("do handlers enqueue each other without end?")

// drained waits until the worker has nothing to do, or has ended by itself.
func (q *Queue) drained(ctx context.Context) error {
	timer := time.NewTimer(q.longest)
	defer timer.Stop()
	var still int // rounds in a row that released nothing
	since := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return fmt.Errorf("jobs still run after %v; %w", q.longest, errNoEnd)
		case released := <-q.rounds:
			if still++; released > 0 {
				still, since = 0, time.Now()
			}
		}
		state, err := q.state()
		if err != nil {
			return err
		}
		switch {
		case state.working:
			still, since = 0, time.Now()
		case !state.due, still >= 10 && time.Since(since) > patience:
			return nil
		}
	}
}

// list returns the jobs that are left, for messages.
func (q *Queue) list() string {
	var text strings.Builder
	for i, task := range q.tasks("") {
		if i == 10 {
			text.WriteString("\n\t…")
			break
		}
		text.WriteString("\n\t" + q.describe(task))
	}
	return text.String()
}

// Advance brings forward by d everything that waits for a time, to the second: jobs for
// later, the next attempts of failed jobs, and pauses. It runs nothing; call
// [Queue.Drain] for that. Deadlines, retention and the rates of limits follow the real
// time.
func (q *Queue) Advance(d time.Duration) {
	q.t.Helper()
	if d < 0 {
		q.t.Fatalf("queuetest: Advance: %v is negative", d)
	}
	if err := q.advance(d); err != nil {
		q.t.Fatalf("queuetest: Advance: %v", err)
	}
}
