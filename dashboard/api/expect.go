package api

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// expectations say of jobs that were just enqueued when they will go. Looking at
// the queue for each would cost many times what enqueueing costs, so a look serves
// the jobs that come to the same lane within a second: those behind it are counted
// on. And looks take a twentieth of the time at most; jobs beyond are told nothing.
type expectations struct {
	inspector *inspect.Inspector

	mu    sync.Mutex
	lanes map[laneOf]*expected
	spent time.Duration // on looks
	since time.Time     // when spent was 0
}

// laneOf names what jobs wait in together, as far as the job tells.
type laneOf struct{ queue, tenant, kind, priority, attributes string }

// expected is what a look found.
type expected struct {
	looked time.Time
	found  inspect.Explanation
	rate   float64 // jobs a second that the tenant gets; 0: not known
	behind int64   // jobs that came after it
}

const (
	lookHolds  = time.Second
	lookTime   = 250 * time.Millisecond // for an answer; without one there is no expectation
	lookPart   = 20                     // of the time
	lookPeriod = time.Second
	maxLooked  = 10_000 // lanes that are remembered
)

// of is what is expected of a job that was just enqueued; false: nothing is known.
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

// next counts a job on from the last look at its lane. It needs the rate for a time,
// and without one does it only where it has to do: then it knows the place alone.
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
	// What no worker takes stays where it is, whatever the rate.
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

// afford tells whether there is time for a look.
func (x *expectations) afford() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now := time.Now(); now.Sub(x.since) >= lookPeriod {
		x.since, x.spent = now, 0
	}
	return x.spent < lookPeriod/lookPart
}

// textOf is the same for the same attributes.
func textOf(attributes map[string]string) string {
	if len(attributes) == 0 {
		return ""
	}
	return string(mustJSON(attributes)) // whose keys it sorts
}
