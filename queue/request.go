package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// request is one call of enqueue.lua for jobs of one partition and layout. Every try of a request has the
// same arguments and ids, so a retry after a lost reply finds the jobs that were accepted.
type request struct {
	home    string // the partition
	jobs    int
	bytes   int
	awaits  bool // a replica, before it counts as answered: see [limits.Replicated]
	line    *line
	args    []any
	unknown time.Time // when the first try was sent that may have arrived; zero: none was
}

// line is a sequence of requests, each of which is answered before the next is sent. Redis
// keeps only the answers to the latest request of a line.
type line struct {
	id       string
	requests int64
}

func (c *Client) newRequest(jobs []accepted) *request {
	const first = 5
	r := &request{home: jobs[0].home, jobs: len(jobs), line: c.takeLine(), args: make([]any, first, first+acceptedWords*len(jobs))}
	r.line.requests++
	r.args[0], r.args[1], r.args[2], r.args[3], r.args[4] = r.home, r.line.id, r.line.requests, false, jobs[0].layout
	for _, a := range jobs {
		r.args = a.append(r.args)
		r.bytes += a.size()
		r.awaits = r.awaits || a.durability == limits.Replicated
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

// freeLine lets later requests use the line of an answered request. A line is not used
// again after a try without an answer, because that try may still arrive.
func (c *Client) freeLine(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.unknown.IsZero() {
		c.lines = append(c.lines, r.line)
	}
}

// deliver sends a request, again if necessary, until it is answered or again gives up. Beside an
// [ErrNotReplicated], the answers are those of the primary.
func (c *Client) deliver(ctx context.Context, r *request, again *retry) ([]any, error) {
	answers, err := c.try(ctx, r)
	return c.persist(ctx, r, answers, err, again)
}

// persist takes the answers or the error of a request's last try. After an error it tries
// the request again while that may help. It returns what deliver does.
func (c *Client) persist(ctx context.Context, r *request, answers []any, err error, again *retry) ([]any, error) {
	var onPrimary error // of the latest try that the primary accepted; a later one without an answer says less
	var accepted []any
	for err != nil {
		if errors.Is(err, ErrNotReplicated) {
			onPrimary, accepted = err, answers
		}
		if certain(err) && !passing(err) || c.owed && errors.Is(err, ErrNotReplicated) || !again.wait(ctx, r.unknown) {
			if onPrimary != nil && !errors.Is(err, ErrNotReplicated) {
				answers, err = accepted, fmt.Errorf("%w; the last try: %w", onPrimary, err)
			}
			if !r.unknown.IsZero() {
				return answers, fmt.Errorf("enqueue in %q: %w: %w", partition.QueueOf(r.home), ErrUnknown, err)
			}
			return nil, fmt.Errorf("enqueue in %q: certainly not enqueued: %w", partition.QueueOf(r.home), err)
		}
		answers, err = c.try(ctx, r)
	}
	again.reset()
	return answers, nil
}

// try sends a request once. It returns what deliver does.
func (c *Client) try(ctx context.Context, r *request) ([]any, error) {
	if err := c.ready(ctx, r.home, r.bytes); err != nil {
		redisclient.FindNodes(ctx, c.redis, err)
		return nil, &unsentError{err}
	}
	script := store.EnqueueScript
	if c.owed {
		script = store.EnqueueOwedScript
	}
	sent := time.Now()
	var reply any
	var err error
	if r.awaits {
		reply, err = c.replicas.run(ctx, script, r.home, r.args...)
	} else {
		reply, err = script.Run(ctx, c.redis, store.ScriptKeys(r.home), r.args...)
	}
	if redis.HasErrorPrefix(err, "OOM") {
		err = fmt.Errorf("%w: %w", ErrRedisFull, err)
	}
	var answers []any
	if err == nil || errors.Is(err, ErrNotReplicated) {
		var unread error
		answers, unread = answersOf(reply, r.jobs)
		if unread != nil || allRefused(answers) {
			err = unread
		}
	}
	if err == nil {
		c.freeLine(r)
	} else if r.unknown.IsZero() && !certain(err) {
		r.unknown, r.args[3] = sent, true
	}
	return answers, err
}

// answersOf returns the answers in a reply of enqueue.lua to this many jobs.
func answersOf(reply any, jobs int) ([]any, error) {
	answers, ok := reply.([]any)
	if !ok || len(answers) != jobs {
		return nil, fmt.Errorf("unexpected reply of type %T, with %d answers to %d jobs", reply, len(answers), jobs)
	}
	return answers, nil
}

// isRefusal reports whether the n-th of some answers is a refusal, which holds whatever replicas have.
func isRefusal(answers []any, n int) bool {
	return n < len(answers) && store.Read(answers[n]).Int() < 0
}

// allRefused reports whether all answers are refusals: no replica needs to have them.
func allRefused(answers []any) bool {
	for n := range answers {
		if !isRefusal(answers, n) {
			return false
		}
	}
	return true
}

// ready prepares a queue for n bytes of jobs, or returns why nothing can be sent to it.
func (c *Client) ready(ctx context.Context, queue string, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.fit.check(ctx, c.redis, queue, n); err != nil && (!c.owed || !errors.Is(err, ErrRedisFull)) {
		return err
	}
	return c.register(ctx, queue)
}

// register adds a queue to asynq's list of queues.
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
