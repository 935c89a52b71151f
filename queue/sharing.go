package queue

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// maxFlights is how many requests of concurrent callers are on their way to a queue before
// callers begin to gather: Redis answers one while another is written and read here.
const maxFlights = 2

// sharing is where jobs that were enqueued one by one gather for a queue, while as many
// requests as may be are on their way. A lone caller waits for nobody.
type sharing struct {
	mu      sync.Mutex
	flights int
	waiting []*gathered // callers join the last one
}

// gathered is the jobs of several callers that go in one request.
type gathered struct {
	jobs  []*waiter
	bytes int

	// Once done is closed:
	request *request
	err     error
	done    chan struct{}
}

// waiter is a caller's job, and its answer.
type waiter struct {
	job    accepted
	answer any
	at     int // its place in the request
}

// sharingOf is the one for a queue.
func (c *Client) sharingOf(queue string) *sharing {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[queue]
	if s == nil {
		s = &sharing{}
		c.shared[queue] = s
	}
	return s
}

// deliverOne sends a job, alone or with those of other callers, until it is answered.
func (c *Client) deliverOne(ctx context.Context, job accepted, again *retry) (any, error) {
	s := c.sharingOf(job.queue)
	with, mine := s.join(job)
	if with == nil {
		r := c.newRequest([]accepted{job})
		answers, err := c.try(ctx, r)
		if next := s.next(); next != nil {
			go c.fly(s, next)
		}
		return c.answer(ctx, r, 0, answers, err, again)
	}
	select {
	case <-with.done:
	case <-ctx.Done():
		if s.leave(with, mine) {
			return nil, fmt.Errorf("enqueue in %q: certainly not enqueued: %w", job.queue, ctx.Err())
		}
		return nil, fmt.Errorf("enqueue in %q: %w: %w", job.queue, ErrUnknown, ctx.Err())
	}
	switch {
	case with.err == nil:
		return mine.answer, nil
	case with.request.unknown.IsZero():
		// Nothing was enqueued. Others may give up, so their jobs are not sent again.
		return c.answer(ctx, c.newRequest([]accepted{job}), 0, nil, with.err, again)
	}
	// The request may have arrived, and only the same request is safe to repeat.
	return c.answer(ctx, with.request, mine.at, nil, with.err, again)
}

// answer is that of one job of a request, which is tried again after an error.
func (c *Client) answer(ctx context.Context, r *request, at int, answers []any, err error, again *retry) (any, error) {
	answers, err = c.persist(ctx, r, answers, err, again)
	if err != nil {
		return nil, err
	}
	return answers[at], nil
}

// join adds a job to those that wait. nil: it need not wait, and its caller calls next
// after its first try.
func (s *sharing) join(job accepted) (*gathered, *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights < maxFlights {
		s.flights++
		return nil, nil
	}
	size := job.size()
	var last *gathered
	if n := len(s.waiting); n > 0 {
		last = s.waiting[n-1]
	}
	if last == nil || len(last.jobs) == maxBatch || last.bytes+size > maxBatchBytes {
		last = &gathered{done: make(chan struct{})}
		s.waiting = append(s.waiting, last)
	}
	mine := &waiter{job: job}
	last.jobs, last.bytes = append(last.jobs, mine), last.bytes+size
	return last, mine
}

// leave takes a job out again, and answers whether it was not sent.
func (s *sharing) leave(g *gathered, mine *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting, g)
	if at < 0 {
		return false
	}
	g.jobs, g.bytes = slices.DeleteFunc(g.jobs, func(w *waiter) bool { return w == mine }), g.bytes-mine.job.size()
	if len(g.jobs) == 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	return true
}

// next is what flies next after a request, or nil: then another caller may fly alone.
func (s *sharing) next() *gathered {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.flights--
		return nil
	}
	g := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	return g
}

// fly sends what has gathered until nobody waits. The callers leave by their contexts;
// what bounds the request are the timeouts of the Redis client.
func (c *Client) fly(s *sharing, g *gathered) {
	for g != nil {
		jobs := make([]accepted, len(g.jobs))
		for i, w := range g.jobs {
			jobs[i], w.at = w.job, i
		}
		g.request = c.newRequest(jobs)
		var answers []any
		if answers, g.err = c.try(context.Background(), g.request); g.err == nil {
			for i, w := range g.jobs {
				w.answer = answers[i]
			}
		}
		close(g.done)
		runtime.Gosched() // whoever was just answered and enqueues more goes along
		g = s.next()
	}
}
