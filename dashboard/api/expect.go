package api

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// expectations forecasts when newly enqueued jobs will go. A forecast for each job would
// cost many times what enqueueing costs, so one serves all jobs that come to the same lane
// within a second: those of later jobs are derived from it. At most a twentieth of the time
// is spent on forecasts; further jobs get none.
type expectations struct {
	inspector *inspect.Inspector

	mu    sync.Mutex
	lanes map[laneOf]*expected
	spent time.Duration // on forecasts
	since time.Time     // when spent was 0
}

// laneOf identifies a lane by the fields of its jobs.
type laneOf struct{ queue, tenant, kind, priority, attributes string }

// expected is the forecast of a lane.
type expected struct {
	looked time.Time
	found  inspect.Explanation
	rate   float64 // jobs per second that the tenant gets; 0: unknown
	behind int64   // jobs that came after the forecast
}

const (
	lookHolds  = time.Second
	lookTime   = 250 * time.Millisecond // timeout of a forecast
	lookPart   = 20                     // one part in 20 of the time
	lookPeriod = time.Second
	maxLooked  = 10_000 // lanes whose forecasts are kept
)

// of returns the forecast for a newly enqueued job, and false if there is none.
func (x *expectations) of(ctx context.Context, job queue.Job, got queue.Receipt) (inspect.Explanation, bool) {
	lane := laneOf{got.Queue, job.Tenant, job.Kind, string(job.Priority), textOf(job.Attributes)}
	plain := !got.Existing && got.State == lifecycle.StateWaiting
	if affords := x.afford(); plain {
		if e, ok := x.next(lane, got.ID, !affords); ok || !affords {
			return e, ok
		}
	} else if !affords {
		return inspect.Explanation{}, false
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, err := x.inspector.Explain(ctx, got.Queue, got.ID)
	rate := 0.0
	if err == nil && plain {
		if outlook, err := x.inspector.Outlook(ctx, got.Queue, job.Tenant); err == nil {
			rate = outlook.Rate
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.spent += time.Since(began)
	if err != nil {
		return inspect.Explanation{}, false
	}
	if plain && found.State == lifecycle.StateWaiting {
		if len(x.lanes) >= maxLooked {
			clear(x.lanes)
		}
		x.lanes[lane] = &expected{looked: began, found: found, rate: rate}
	}
	return found, true
}

// next derives the forecast of a job from the last one of its lane. Without a rate it can
// derive only the position, and does so only if hasTo is true or no worker serves the lane.
func (x *expectations) next(lane laneOf, id string, hasTo bool) (inspect.Explanation, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	seen, ok := x.lanes[lane]
	if !ok {
		return inspect.Explanation{}, false
	}
	age := time.Since(seen.looked)
	if age > lookHolds {
		delete(x.lanes, lane)
		return inspect.Explanation{}, false
	}
	// Jobs that no worker takes stay in place, whatever the rate.
	if seen.rate == 0 && !hasTo && seen.found.Unserved == nil {
		return inspect.Explanation{}, false
	}
	seen.behind++
	e := seen.found
	e.ID, e.Now = id, e.Now.Add(age)
	gone := int64(seen.rate * age.Seconds())
	e.Position = max(e.Position+seen.behind-gone, 0)
	e.TenantPosition = max(e.TenantPosition+seen.behind-gone, 0)
	e.Waiting = max(e.Waiting+seen.behind-gone, 1)
	if seen.rate > 0 {
		more := time.Duration(float64(seen.behind) / seen.rate * float64(time.Second))
		if !e.At.IsZero() {
			e.At = e.At.Add(more)
		}
		if !e.DrainsAt.IsZero() {
			e.DrainsAt = e.DrainsAt.Add(more)
		}
	} else {
		e.At, e.DrainsAt, e.Sure = time.Time{}, time.Time{}, inspect.NotKnown
	}
	if e.Sure == inspect.Steady {
		e.Sure = inspect.Rough
	}
	return e, true
}

// afford reports whether there is time for a forecast.
func (x *expectations) afford() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now := time.Now(); now.Sub(x.since) >= lookPeriod {
		x.since, x.spent = now, 0
	}
	return x.spent < lookPeriod/lookPart
}

// textOf returns the same text for equal attributes.
func textOf(attributes map[string]string) string {
	if len(attributes) == 0 {
		return ""
	}
	return string(mustJSON(attributes)) // sorts the keys
}
