package queue

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/coalesce"
)

// gathered is a job that was enqueued by itself. While requests of other callers are under
// way to its queue it waits, and then shares a request with their jobs.
type gathered struct {
	job accepted

	// Once it was sent:
	request *request
	at      int   // its place in the request
	answers []any // of the request
	err     error
}

// sharing is where the jobs of concurrent callers gather for a queue.
func (c *Client) sharing(queue string) *coalesce.Group[*gathered] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[queue]
	if s == nil {
		s = &coalesce.Group[*gathered]{
			Send: c.sendGathered, MaxCalls: maxBatch,
			MaxBytes: maxBatchBytes, Size: func(g *gathered) int { return g.job.size() },
		}
		c.shared[queue] = s
	}
	return s
}

// deliverOne sends a job, alone or with those of other callers, until it is answered.
func (c *Client) deliverOne(ctx context.Context, job accepted, again *retry) (any, error) {
	g := &gathered{job: job}
	sent, err := c.sharing(job.queue).Do(ctx, g)
	switch {
	case err != nil && sent == nil:
		return nil, fmt.Errorf("enqueue in %q: certainly not enqueued: %w", job.queue, err)
	case err != nil:
		return nil, fmt.Errorf("enqueue in %q: %w: %w", job.queue, ErrUnknown, err)
	}
	// A request that may have arrived is repeated as it was, because only that is safe.
	r, at := g.request, g.at
	if g.err != nil && r.jobs > 1 && r.unknown.IsZero() {
		// Nothing was enqueued. Other callers may give up, so their jobs are not sent again.
		r, at = c.newRequest([]accepted{job}), 0
	}
	answers, err := c.persist(ctx, r, g.answers, g.err, again)
	if err != nil {
		return nil, err
	}
	return answers[at], nil
}

// sendGathered sends jobs of a queue in one request, once.
func (c *Client) sendGathered(ctx context.Context, all []*gathered) {
	jobs := make([]accepted, len(all))
	for i, g := range all {
		jobs[i] = g.job
	}
	r := c.newRequest(jobs)
	answers, err := c.try(ctx, r)
	for i, g := range all {
		g.request, g.at, g.answers, g.err = r, i, answers, err
	}
}
