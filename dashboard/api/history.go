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
)

// point is what one second of a queue was like.
type point struct {
	Sent    calls                      `json:"sent"`
	Allowed float64                    `json:"allowed,omitempty"` // calls a second that limits let go of what waited; left out where nothing waited, or it is not known
	Waiting int64                      `json:"waiting"`
	Answers map[lifecycle.Answer]calls `json:"answers"` // by what was answered
}

// calls is how many calls a second had. It is no whole number: what two looks counted
// is spread over the time between them.
type calls float64

func (c calls) MarshalJSON() ([]byte, error) {
	return mustJSON(math.Round(float64(c)*100) / 100), nil
}

// history is the last ten minutes of each queue in whole seconds of the clock of
// Redis, as this process saw them. What a look finds was called since the look before,
// and is spread evenly over the time between the two: a look may be late, and early
// where somebody begins to watch, who gets it at once.
type history struct {
	mu     sync.Mutex
	queues map[string]*past
}

// past is that of one queue.
type past struct {
	points []point   // of seconds that are over, the newest last
	end    time.Time // of the newest of them, when the second under way began
	now    point     // the second under way, so far
	last   inspect.Totals
}

// newSeconds are those of a queue that ended by a look.
type newSeconds struct {
	queue  string
	from   time.Time // when the first of the seconds began
	points []point
}

// add enters what queues count now, and what limits let go of each. The answer has the
// seconds that ended. Queues that are gone are forgotten.
func (h *history) add(all []inspect.Totals, allowed map[string]float64) []newSeconds {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ended []newSeconds
	before := h.queues
	h.queues = make(map[string]*past, len(all))
	for _, t := range all {
		p := before[t.Queue]
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

// follows tells whether counts can be compared with those of before. The clock of
// another Redis may be behind, and after a long sleep nothing is left of the past.
func (p *past) follows(t inspect.Totals) bool {
	passed := t.At.Sub(p.last.At)
	return passed > -lookEvery && passed < historyLen*lookEvery
}

// add enters a look, and says how many seconds ended by it.
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
		// The first second that was seen in part only is left out.
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

// of is a queue's past, the oldest first, and when the first second began.
func (h *history) of(name string) (from time.Time, points []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.queues[name]
	if p == nil {
		return time.Time{}, nil
	}
	return p.end.Add(-time.Duration(len(p.points)) * lookEvery), append([]point(nil), p.points...)
}
