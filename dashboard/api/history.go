package api

import (
	"sync"
	"time"

	"github.com/headgate/headgate/queue"
)

const (
	lookEvery  = time.Second
	historyLen = 600 // points: ten minutes
)

// point is what one second of a queue was like.
type point struct {
	Sent    int64                  `json:"sent"`              // calls in it
	Allowed float64                `json:"allowed,omitempty"` // calls a second that limits let go; left out where nobody looked
	Waiting int64                  `json:"waiting"`
	Answers map[queue.Answer]int64 `json:"answers"` // calls in it, by what was answered
}

// history is the last ten minutes of each queue, in seconds, as this process saw
// them. Seconds that it did not see, for Redis was away, hold what came in the next.
type history struct {
	mu     sync.Mutex
	queues map[string]*past
}

type past struct {
	points []point // the newest last
	last   time.Time
	totals queue.Totals
}

// add enters what queues count now. Queues that are gone are forgotten.
func (h *history) add(now time.Time, all []queue.Totals, allowed map[string]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.queues
	h.queues = make(map[string]*past, len(all))
	for _, t := range all {
		p := before[t.Queue]
		if p == nil {
			h.queues[t.Queue] = &past{last: now, totals: t}
			continue
		}
		h.queues[t.Queue] = p
		if now.Sub(p.last) < lookEvery*9/10 {
			continue // somebody who begins to watch is told at once; that is no second
		}
		one := point{Sent: max(t.Calls-p.totals.Calls, 0), Allowed: allowed[t.Queue], Waiting: t.Waiting, Answers: map[queue.Answer]int64{}}
		for answer, n := range t.Answers {
			if n -= p.totals.Answers[answer]; n > 0 {
				one.Answers[answer] = n
			}
		}
		for missed := int(now.Sub(p.last)/lookEvery) - 1; missed > 0 && missed <= historyLen; missed-- {
			p.points = append(p.points, point{Waiting: t.Waiting, Answers: map[queue.Answer]int64{}})
		}
		p.points = append(p.points, one)
		if more := len(p.points) - historyLen; more > 0 {
			p.points = append(p.points[:0], p.points[more:]...)
		}
		p.last, p.totals = now, t
	}
}

// of is a queue's past, the oldest first, and when the first second began.
func (h *history) of(name string) (from time.Time, points []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.queues[name]
	if p == nil {
		return time.Time{}, nil
	}
	return p.last.Add(-time.Duration(len(p.points)) * lookEvery), append([]point(nil), p.points...)
}
