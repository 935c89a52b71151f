package api

import (
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

const (
	lookEvery  = time.Second
	historyLen = 600 // points: ten minutes

	maxHistories = 200 // queues
)

// point is one second of a queue.
type point struct {
	Sent    calls                      `json:"sent"`
	Allowed float64                    `json:"allowed,omitempty"` // calls per second that limits admitted of waiting jobs; omitted if no job waited, or if unknown
	Waiting int64                      `json:"waiting"`
	Answers map[lifecycle.Answer]calls `json:"answers"` // calls by answer
}

// calls is the number of calls in a second. It need not be whole: calls counted between two
// readings are spread over the time between them.
type calls float64

func (c calls) MarshalJSON() ([]byte, error) {
	return mustJSON(math.Round(float64(c)*100) / 100), nil
}

// history has the last ten minutes of each queue, in full seconds of the clock of Redis, as
// seen by this process. Calls counted since the previous reading are spread evenly over the
// time between the two readings, because a reading can be late, or early when a stream opens.
type history struct {
	mu     sync.Mutex
	queues map[string]*past
}

// past is the history of one queue.
type past struct {
	points []point   // completed seconds, newest last
	end    time.Time // of the newest of them, and the start of the current second
	now    point     // the current second so far
	last   inspect.Totals
}

// newSeconds are the seconds of a queue that a reading completed.
type newSeconds struct {
	queue  string
	from   time.Time // start of the first second
	points []point
}

// add records a reading of the queues that answered, with the rate that the limits of each allow. It
// returns the completed seconds. Queues that no longer exist are dropped; names has those that do.
func (h *history) add(names []string, all []inspect.Totals, allowed map[string]float64) []newSeconds {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ended []newSeconds
	before := h.queues
	h.queues = make(map[string]*past, min(len(names), maxHistories))
	for _, name := range names {
		if p := before[name]; p != nil {
			h.queues[name] = p
		}
	}
	for _, t := range all {
		p := h.queues[t.Queue]
		if p == nil && len(h.queues) >= maxHistories {
			continue // those that have a history keep it
		}
		if p == nil || !p.follows(t) {
			p = &past{end: t.At.Truncate(lookEvery).Add(lookEvery), last: t, now: newPoint()}
		}
		h.queues[t.Queue] = p
		if n := p.add(t, allowed[t.Queue]); n > 0 {
			ended = append(ended, newSeconds{t.Queue, p.end.Add(-time.Duration(n) * lookEvery), append([]point(nil), p.points[len(p.points)-n:]...)})
		}
	}
	return ended
}

func newPoint() point { return point{Answers: map[lifecycle.Answer]calls{}} }

// follows reports whether counts can be compared with the previous ones. They cannot if the
// clock went back, as after a failover, or if the whole history is out of date.
func (p *past) follows(t inspect.Totals) bool {
	passed := t.At.Sub(p.last.At)
	return passed > -lookEvery && passed < historyLen*lookEvery
}

// add records a reading and returns how many seconds it completed.
func (p *past) add(t inspect.Totals, allowed float64) (ended int) {
	passed := t.At.Sub(p.last.At).Seconds()
	if passed <= 0 {
		return 0
	}
	for at := p.last.At; at.Before(t.At); {
		until := p.end.Add(lookEvery)
		over := !t.At.Before(until)
		if !over {
			until = t.At
		}
		// The first second, of which only a part was seen, is omitted.
		if seen := min(until.Sub(at), until.Sub(p.end)); seen > 0 {
			part := seen.Seconds() / passed
			p.now.Sent += calls(float64(max(t.Calls-p.last.Calls, 0)) * part)
			for answer, n := range t.Answers {
				if n -= p.last.Answers[answer]; n > 0 {
					p.now.Answers[answer] += calls(float64(n) * part)
				}
			}
		}
		if at = until; !over {
			break
		}
		if p.now.Waiting = t.Waiting; t.Waiting > 0 {
			p.now.Allowed = allowed
		}
		p.points, p.end, p.now = append(p.points, p.now), until, newPoint()
		ended++
	}
	if more := len(p.points) - historyLen; more > 0 {
		p.points = append(p.points[:0], p.points[more:]...)
	}
	p.last = t
	return min(ended, historyLen)
}

// of returns the points of a queue, oldest first, and the start of the first.
func (h *history) of(name string) (from time.Time, points []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.queues[name]
	if p == nil {
		return time.Time{}, nil
	}
	return p.end.Add(-time.Duration(len(p.points)) * lookEvery), append([]point(nil), p.points...)
}
