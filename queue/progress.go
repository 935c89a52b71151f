package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	progressEvery   = time.Second
	maxProgressText = 200 // bytes
)

// Progress reports how far the current call has come, for people: a percentage from 0 to 100,
// and a short text such as "page 4 of 10", of which 200 bytes are kept. Explain, the HTTP API
// and the dashboard show the latest report while the call is in flight. Reports are written to
// Redis in the background, at most one a second, and dropped if that fails. Progress returns an
// error if percent is out of range, or if ctx is not the context of a call in flight.
func Progress(ctx context.Context, percent int, text string) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return errors.New("queue: Progress: ctx is not from a handler")
	}
	if percent < 0 || percent > 100 {
		return fmt.Errorf("queue: Progress: %d percent must be 0 to 100", percent)
	}
	return c.progress.add(report{percent, check.Printable(text, maxProgressText)})
}

// report is one report of a call's progress.
type report struct {
	percent int
	text    string
}

// reporter writes the reports of one call.
type reporter struct {
	write func(report) // nil: they are dropped

	mu     sync.Mutex
	latest chan report   // holds the latest one that is not written; nil: none came
	over   chan struct{} // closed when the call has ended
	closed bool
	writes sync.WaitGroup
}

func (r *reporter) add(latest report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return errors.New("queue: Progress: the call has ended")
	case r.write == nil:
		return nil
	case r.latest == nil:
		r.latest, r.over = make(chan report, 1), make(chan struct{})
		r.writes.Go(r.run)
	}
	select {
	case <-r.latest: // it is replaced
	default:
	}
	r.latest <- latest
	return nil
}

func (r *reporter) run() {
	for {
		select {
		case latest := <-r.latest:
			r.write(latest)
		case <-r.over:
			return
		}
		select {
		case <-time.After(progressEvery):
		case <-r.over:
			return
		}
	}
}

// end drops reports that are not written yet, because the call has ended.
func (r *reporter) end() {
	r.mu.Lock()
	if r.closed = true; r.over != nil {
		close(r.over)
	}
	r.mu.Unlock()
	r.writes.Wait()
}

// writeProgress writes a report to a job that this worker runs.
func (g *gate) writeProgress(job *Running, r report) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	_, err := store.ProgressScript.Run(ctx, g.redis, store.ScriptKeys(g.queue), g.queue, job.ID, job.owner, r.percent, r.text)
	if err != nil {
		g.logger.Debug("a job's progress is not written", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
	}
}
