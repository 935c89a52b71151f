package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// request is one call of enqueue.lua for jobs of one queue. All tries of it are the same
// words with the same ids, so what was accepted by one whose reply was lost is known to the
// next.
type request struct {
	queue   string
	jobs    int
	line    *line
	args    []any
	unknown time.Time // when the first try was sent of which nobody knows whether it arrived
}

// line is what requests of a client have in common of which each is answered before the next
// is sent: Redis keeps only the answers to the latest of a line.
type line struct {
	id       string
	requests int64
}

func (c *Client) newRequest(jobs []accepted) *request {
	const first = 4
	r := &request{queue: jobs[0].queue, jobs: len(jobs), line: c.takeLine(), args: make([]any, first, first+acceptedWords*len(jobs))}
	r.line.requests++
	r.args[0], r.args[1], r.args[2], r.args[3] = r.queue, r.line.id, r.line.requests, false
	for _, a := range jobs {
		r.args = a.append(r.args)
	}
	return r
}

func (c *Client) takeLine() *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.lines)
	if n == 0 {
		return &line{id: rand.Text()}
	}
	l := c.lines[n-1]
	c.lines = c.lines[:n-1]
	return l
}

// freeLine gives the line of an answered request to the next one. A request that was sent
// more than once keeps its line, because a try of it may still arrive.
func (c *Client) freeLine(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.unknown.IsZero() {
		c.lines = append(c.lines, r.line)
	}
}

// deliver sends a request until it is answered.
func (c *Client) deliver(ctx context.Context, r *request, again *retry) ([]any, error) {
	answers, err := c.try(ctx, r)
	return c.persist(ctx, r, answers, err, again)
}

// persist tries a request again whose last try was answered so, as often as that may help.
func (c *Client) persist(ctx context.Context, r *request, answers []any, err error, again *retry) ([]any, error) {
	for err != nil {
		if certain(err) && !passing(err) || !again.wait(ctx, r.unknown) {
			if !r.unknown.IsZero() {
				return nil, fmt.Errorf("enqueue in %q: %w: %w", r.queue, ErrUnknown, err)
			}
			return nil, fmt.Errorf("enqueue in %q: certainly not enqueued: %w", r.queue, err)
		}
		answers, err = c.try(ctx, r)
	}
	again.reset()
	return answers, nil
}

// try sends a request once.
func (c *Client) try(ctx context.Context, r *request) ([]any, error) {
	if err := c.ready(ctx, r.queue); err != nil {
		return nil, &unsentError{err}
	}
	sent := time.Now()
	reply, err := store.EnqueueScript.Run(ctx, c.redis, store.ScriptKeys(r.queue), r.args...)
	var answers []any
	if err == nil {
		answers, err = answersOf(reply, r.jobs)
	}
	if err == nil {
		c.freeLine(r)
	} else if r.unknown.IsZero() && !certain(err) {
		r.unknown, r.args[3] = sent, true
	}
	return answers, err
}

// answersOf are the answers of enqueue.lua to so many jobs.
func answersOf(reply any, jobs int) ([]any, error) {
	answers, ok := reply.([]any)
	if !ok || len(answers) != jobs {
		return nil, fmt.Errorf("unexpected reply of type %T, with %d answers to %d jobs", reply, len(answers), jobs)
	}
	return answers, nil
}

// ready returns why nothing can be sent to a queue.
func (c *Client) ready(ctx context.Context, queue string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.fit.check(ctx, c.redis); err != nil {
		return err
	}
	return c.register(ctx, queue)
}

// register lists a queue among those of asynq.
func (c *Client) register(ctx context.Context, queue string) error {
	c.mu.Lock()
	known := c.registered[queue]
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := asynqwire.RegisterQueues(ctx, c.redis, queue); err != nil {
		return err
	}
	c.mu.Lock()
	c.registered[queue] = true
	c.mu.Unlock()
	return nil
}
