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
	"github.com/headgate/headgate/queue/lifecycle"
)

// Run is one run of a job: a call, or the end of a job that was not called
// (expired), of which then only Queue and Kind are known.
type Run struct {
	queue.Running
	Outcome lifecycle.Outcome
	Err     error // the handler's
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

// Outcomes are the runs of [Queue.Drain] until now, in order. Having seen them,
// the test may end with jobs among them that failed for good.
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

// record is the outermost middleware: it notes every call.
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

// Work calls the handler of one job here and now, in the test's own goroutine,
// through the worker's middleware. The job is not enqueued, and its MaxAttempts
// of 1 make the call its last. A job that could not be enqueued, or has no
// handler, fails the test.
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
	// maxDrain ends handlers that enqueue one another for ever.
	maxDrain = 30 * time.Second

	// patience is how long Drain waits for a limit of the test's own.
	patience = 500 * time.Millisecond
)

// Drain runs the jobs that may go now, and those that they enqueue, one at a
// time, until none is left that may. For them it takes no time: what is for later
// stays, and so do failed jobs that wait for their next attempt, however long the
// others run. Jobs of a paused tenant stay, too, and what a limit holds for more
// than half a second: see [Queue.Advance].
func (q *Queue) Drain() {
	q.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // it may not start at all
		ended <- q.Worker.Run(ctx)
	}()
	err := q.drained(ctx)
	cancel()
	switch err := cmp.Or(<-ended, err, q.release()); {
	case errors.Is(err, errNoEnd): // only now do the jobs stand still for a list
		q.t.Fatalf("queuetest: Drain: %v%s", err, q.list())
	case err != nil:
		q.t.Fatalf("queuetest: Drain: %v", err)
	}
}

var errNoEnd = errors.New("do handlers enqueue one another without end?")

// drained waits until the worker has nothing to do, or ended by itself.
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

// list names what is left, for messages.
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

// Advance lets what waits for time wait d less: jobs for later, the next
// attempts of failed ones, and pauses, to the second. It runs nothing:
// [Queue.Drain] does. Deadlines, kept results and the rates of limits go by the
// real time.
func (q *Queue) Advance(d time.Duration) {
	q.t.Helper()
	if d < 0 {
		q.t.Fatalf("queuetest: Advance: %v is negative", d)
	}
	if err := q.advance(d); err != nil {
		q.t.Fatalf("queuetest: Advance: %v", err)
	}
}
