package api

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue"
)

// coalescer lets jobs that come one by one share round trips to Redis: while one
// is under way the next gather, and go together. A lone job waits for nobody.
type coalescer struct {
	enqueue func(context.Context, []queue.Job) []queue.Result

	mu      sync.Mutex
	waiting []asked
	busy    bool
}

type asked struct {
	job    queue.Job
	answer chan queue.Result
}

const (
	mostTogether = 100 // jobs in a round trip

	// mostEnqueueTime bounds a round trip with its repetitions. It is not the
	// caller's time: a client that goes away must not spoil the others' jobs.
	mostEnqueueTime = 10 * time.Second
)

// do enqueues one job. What it does not wait for any more may still happen.
func (c *coalescer) do(ctx context.Context, job queue.Job) (queue.Receipt, error) {
	mine := asked{job, make(chan queue.Result, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, mine)
	lead := !c.busy
	c.busy = true
	c.mu.Unlock()
	if lead {
		go c.drain()
	}
	select {
	case result := <-mine.answer:
		return result.Receipt, result.Err
	case <-ctx.Done():
		return queue.Receipt{}, queue.ErrUnknown
	}
}

func (c *coalescer) drain() {
	for c.more() {
		batch := c.take()
		jobs := make([]queue.Job, len(batch))
		for i, one := range batch {
			jobs[i] = one.job
		}
		ctx, cancel := context.WithTimeout(context.Background(), mostEnqueueTime)
		results := c.enqueue(ctx, jobs)
		cancel()
		for i, one := range batch {
			one.answer <- results[i]
		}
	}
}

// more tells whether somebody waits; the drain ends when nobody does.
func (c *coalescer) more() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = len(c.waiting) > 0
	if !c.busy {
		c.waiting = nil
	}
	return c.busy
}

func (c *coalescer) take() []asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), mostTogether)
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return batch
}
