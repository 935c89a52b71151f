package queue

import (
	"context"
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
	if percent < 0 || percent > 100 {
		return fmt.Errorf("queue: Progress: %d percent must be 0 to 100", percent)
	}
	return inCall(ctx, "Progress", func(c *call) error {
		switch {
		case c.gate == nil: // see Worker.Call
			return nil
		case c.progress == nil:
			c.progress = newReporter(func(r report) { c.gate.writeProgress(c.job, r) })
		}
		c.progress.add(report{percent, check.Printable(text, maxProgressText)})
		return nil
	})
}

// end lets nothing more be reported, because the call has ended. Progress that is not written yet is dropped.
func (c *call) end() {
	c.mu.Lock()
	c.over = true
	reports := c.progress
	c.mu.Unlock()
	if reports != nil {
		reports.end()
	}
}

// report is one report of a call's progress.
type report struct {
	percent int
	text    string
}

// reporter writes the reports of one call. Few calls report, so it is made with the first
// report.
type reporter struct {
	write  func(report)
	latest chan report   // holds the latest one that is not written
	over   chan struct{} // closed when the call has ended
	writes sync.WaitGroup
}

func newReporter(write func(report)) *reporter {
	r := &reporter{write: write, latest: make(chan report, 1), over: make(chan struct{})}
	r.writes.Go(r.run)
	return r
}

// add replaces the latest report. Its callers take turns.
func (r *reporter) add(latest report) {
	select {
	case <-r.latest:
	default:
	}
	r.latest <- latest
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

func (r *reporter) end() {
	close(r.over)
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
