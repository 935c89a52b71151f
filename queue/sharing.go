package queue

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/coalesce"
)

// gathered is a job of [Client.Enqueue]. While other requests to its partition are in flight it
// waits, and then shares a request with the jobs of other callers.
type gathered struct {
	job accepted

	// Set when the job was sent:
	request *request
	at      int   // index in the request
	answers []any // of the request
	err     error
}

// sharing returns the group that collects the jobs of concurrent callers for a
// place.
func (c *Client) sharing(in place) *coalesce.Group[*gathered] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[in]
	if s == nil {
		s = &coalesce.Group[*gathered]{
			Send: c.sendGathered, MaxCalls: maxBatch,
			MaxBytes: maxBatchBytes, Size: func(g *gathered) int { return g.job.size() },
		}
		c.shared[in] = s
	}
	return s
}

// deliverOne sends a job, alone or with the jobs of other callers, and returns its answer.
func (c *Client) deliverOne(ctx context.Context, job accepted, again *retry) (any, error) {
	g := &gathered{job: job}
	sent, err := c.sharing(job.place()).Do(ctx, g)
	switch {
	case err != nil && sent == nil:
		return nil, fmt.Errorf("enqueue in %q: certainly not enqueued: %w", job.queue(), err)
	case err != nil:
		return nil, fmt.Errorf("enqueue in %q: %w: %w", job.queue(), ErrUnknown, err)
	}
	// If the request may have arrived, only repeating it unchanged is safe.
	r, at := g.request, g.at
	if g.err != nil && r.jobs > 1 && r.unknown.IsZero() {
		// Nothing was enqueued. The other callers may give up, so only this job is sent again.
		r, at = c.newRequest([]accepted{job}), 0
	}
	answers, err := c.persist(ctx, r, g.answers, g.err, again)
	if err != nil && !isRefusal(answers, at) {
		return nil, err
	}
	return answers[at], nil
}

// sendGathered sends jobs of a partition in one request, without retries.
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
