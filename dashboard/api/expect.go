package api

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
)

// expectations forecasts when newly enqueued jobs will go. A forecast costs more than
// enqueueing does, so at most a tenth of the time is spent on forecasts; jobs beyond that get
// none.
type expectations struct {
	inspector *inspect.Inspector
	most      time.Duration // for one forecast

	mu    sync.Mutex
	spent time.Duration // on forecasts
	since time.Time     // when spent was 0
}

const (
	forecastTimeout = 250 * time.Millisecond
	forecastPart    = 10 // one part in 10 of each period
	forecastPeriod  = time.Second
)

// of returns the forecast for a newly enqueued job, and false if there is none.
func (x *expectations) of(ctx context.Context, job queue.Receipt) (inspect.Explanation, bool) {
	began := time.Now()
	if !x.affordable(began) {
		return inspect.Explanation{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, x.most)
	defer cancel()
	found, err := x.inspector.Explain(ctx, job.Queue, job.ID)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.spent += time.Since(began)
	return found, err == nil
}

// affordable reports whether there is time left for a forecast in this period.
func (x *expectations) affordable(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.Sub(x.since) >= forecastPeriod {
		x.since, x.spent = now, 0
	}
	return x.spent < forecastPeriod/forecastPart
}
