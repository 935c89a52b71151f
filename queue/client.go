package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// Errors of [Client.Enqueue]. They are wrapped with details.
var (
	// ErrConflict reports that the key belongs to a job with another kind or payload.
	// Nothing was enqueued.
	ErrConflict = errors.New("another job has this key")

	// ErrBacklogFull reports that the backlog cap of the tenant or of the queue is
	// reached. Nothing was enqueued.
	ErrBacklogFull = errors.New("backlog is full")

	// ErrUnknown reports that Redis did not answer in time, so that the job may or may
	// not have been enqueued. Enqueueing it again is safe while its Key is taken.
	ErrUnknown = errors.New("not known whether the job was enqueued")

	// ErrNotReplicated reports that the primary has accepted a job of a queue with
	// [limits.Replicated], but that no replica has acknowledged it. The job may be sent, or be lost
	// in a failover, so the error is also an [ErrUnknown].
	ErrNotReplicated = errors.New("the primary has accepted the job, but no replica has acknowledged it")

	// ErrUnknownQueue reports a queue without published limits, to a client that requires
	// them. Nothing was enqueued.
	ErrUnknownQueue = errors.New("unknown queue")

	// ErrEvicts reports that Redis is configured to evict keys when its memory is full,
	// which would lose jobs. Nothing was enqueued.
	ErrEvicts = errors.New("this redis evicts keys when memory is full")

	// ErrRedisFull reports that Redis has used most of its maxmemory, see [Client.FullAt].
	// Nothing was enqueued. Jobs can be enqueued again when others have ended.
	ErrRedisFull = errors.New("redis is full")
)

// errNoPartition reports that a queue has other partitions than when the client last looked, or that the
// tenant moves between two of them.
var errNoPartition = errors.New("certainly not enqueued: the tenant is in another partition of the queue than a moment ago, or on its way there; try again")

// defaultFullAt leaves a quarter of maxmemory to the jobs that were accepted before: to their
// limits, results, logs and follow-ups.
const defaultFullAt = 0.75

// Client enqueues jobs. It is safe for concurrent use. It does not close the Redis client.
type Client struct {
	redis  redis.UniversalClient
	routes *routes
	change []func(context.Context, *Job) error

	mu         sync.Mutex
	registered map[string]bool // partitions
	shared     map[place]*coalesce.Group[*gathered]
	lines      []*line // not in use by a request

	fit        fitness
	replicas   replicas
	direct     direct
	keys       *encryption.Keys
	unanswered unanswered

	// It enqueues what accepted jobs carry, whatever Redis has left. Their worker tries again later
	// if no replica answers.
	owed bool
}

// NewClient returns a client that enqueues jobs in the given Redis.
func NewClient(client redis.UniversalClient) *Client {
	return &Client{
		redis: client, routes: newRoutes(client), registered: map[string]bool{},
		shared: map[place]*coalesce.Group[*gathered]{}, fit: fitness{fullAt: defaultFullAt}, replicas: newReplicas(client),
	}
}

// Encrypt makes the client encrypt what it stores of payloads and results, and decrypt what it reads.
// Workers need the same keys: see [Config].PayloadKeys. It must be called before jobs are enqueued.
func (c *Client) Encrypt(keys *encryption.Keys) *Client {
	c.keys = keys
	return c
}

// FullAt sets from which part of Redis's maxmemory on the client refuses jobs ([ErrRedisFull]). By
// default, and for 0, that is 0.75. It must be called before jobs are enqueued.
func (c *Client) FullAt(part float64) *Client {
	c.fit.fullAt = cmp.Or(part, defaultFullAt)
	return c
}

// RequireLimits makes the client refuse jobs and follow-ups for queues without published limits
// ([ErrUnknownQueue]). It is for programs that take the names of queues from others, who could
// otherwise create any number of queues, and avoid limits by naming another one. It must be
// called before jobs are enqueued.
func (c *Client) RequireLimits() *Client {
	c.routes.published = true
	return c
}

// Receipt identifies an accepted job.
type Receipt struct {
	ID    string // unique in its queue
	Queue string

	// Existing reports whether the same job had been enqueued before.
	Existing bool
	State    lifecycle.State // now

	// Durability says which servers have the job.
	Durability limits.Durability
}

// Result is the result of enqueueing one job with [Client.EnqueueMany].
type Result struct {
	Receipt
	Err error // nil: accepted; otherwise an error as from [Client.Enqueue]
}

// Enqueue enqueues one job. The error is a [validation.Error] for each invalid field,
// [ErrConflict], [ErrBacklogFull], [ErrRedisFull], [ErrUnknown], [ErrNotReplicated], [ErrEvicts],
// or an error of Redis after which the job is certainly not enqueued.
//
// While Redis does not answer or temporarily rejects jobs, as in a failover, or no replica
// acknowledges a job that needs one, Enqueue tries again: until ctx is done, or for 5 seconds if
// ctx has no deadline. A retry never enqueues the job twice.
//
// Concurrent calls share round trips. A single call is sent at once.
func (c *Client) Enqueue(ctx context.Context, job Job) (Receipt, error) {
	seeking := &retry{}
	for try := 0; ; try++ {
		result := c.enqueueOne(ctx, job, try)
		if !errors.Is(result.Err, errNoPartition) || !seeking.seek(ctx, try) {
			return result.Receipt, result.Err
		}
	}
}

func (c *Client) enqueueOne(ctx context.Context, job Job, try int) Result {
	again := &retry{}
	a, err := c.prepare(ctx, job, time.Now(), again, try)
	if err != nil {
		return Result{Err: err}
	}
	answer, err := c.deliverOne(ctx, a, again)
	if err != nil {
		return Result{Err: err}
	}
	result := Result{Receipt: Receipt{ID: a.id, Queue: a.queue()}}
	c.read(&result, answer, a)
	return result
}

// prepare applies the functions of [Client.Use], and then does what placed does, again while Redis does not answer. try
// is how often the job was refused because it was in no partition of its own.
func (c *Client) prepare(ctx context.Context, job Job, now time.Time, again *retry, try int) (accepted, error) {
	job, err := c.changed(ctx, job)
	if err != nil {
		return accepted{}, err
	}
	for {
		a, err := c.placed(ctx, job, now, try)
		if !isLate(err) || !again.wait(ctx, time.Time{}) {
			return a, err
		}
	}
}

// placed finds the partition of a job, checks the job and encodes it.
func (c *Client) placed(ctx context.Context, job Job, now time.Time, try int) (a accepted, err error) {
	home, err := c.routes.homeOf(ctx, job, now, try)
	if err == nil {
		if a, err = c.accept(ctx, job, home, now); err == nil {
			err = c.routes.locate(ctx, job, &a)
		}
	} else if validation.Is(err) {
		_, others := job.accept(cmp.Or(job.Queue, "none"), now) // all mistakes are reported at once
		if !check.KindPattern.MatchString(job.Kind) {
			err = nil // others has it
		}
		err = errors.Join(err, others)
	}
	return a, err
}

// isLate reports whether the partition of a job was not found because Redis does not answer.
func isLate(err error) bool {
	_, asked := errors.AsType[*lookupError](err)
	return asked && passing(err)
}

// QueueOf returns the queue that takes a job, and "" for an invalid kind, which [Job.Validate]
// reports. The error is a [validation.Error] if no queue is for its kind, or the one that it names
// is not, as Redis had it at since or later: who asks for many jobs gives all the same time, so that
// they share what is read.
func (c *Client) QueueOf(ctx context.Context, job Job, since time.Time) (string, error) {
	if !check.KindPattern.MatchString(job.Kind) {
		return "", nil
	}
	home, err := c.routes.homeOf(ctx, job, since, 0)
	return partition.QueueOf(home), err
}

// read sets the result of a job from one answer of enqueue.lua.
func (c *Client) read(r *Result, answer any, a accepted) {
	if r.read(answer, a); errors.Is(r.Err, errNoPartition) {
		c.routes.forget(a.home)
	}
}

// read sets the job's result from one answer of enqueue.lua.
func (r *Result) read(answer any, a accepted) {
	read, err := store.Read(answer), error(nil)
	r.Durability = a.durability
	switch code := read.Int(); code {
	case 1:
		r.State = lifecycle.StateWaiting
		if a.due > 0 {
			r.State = lifecycle.StateScheduled
		}
	case 0:
		r.Existing, r.State, r.ID = true, lifecycle.StateOf(read.Text()), read.Text()
	case -1:
		err = fmt.Errorf("%w: job %s in queue %q, with another kind or payload", ErrConflict, check.Quote(a.id), a.queue())
	case -2, -4:
		err = backlogFull(code == -2, a.queue(), read.Int(), read.Int(), read.Int(), read.Int())
	case -3:
		err = neverAdmitted(read)
	case -5:
		err = fmt.Errorf("enqueue in %q: certainly not enqueued: the data of job %s or of its queue in Redis is damaged: %s",
			a.queue(), check.Quote(a.id), read.Text())
	case -6:
		err = fmt.Errorf("enqueue in %q: %w", a.queue(), errNoPartition)
	default:
		err = fmt.Errorf("enqueue: unexpected answer %d", code)
	}
	if unread := read.End(); unread != nil {
		err = fmt.Errorf("enqueue: %w", unread)
	}
	if err != nil {
		*r = Result{Err: err}
	}
}

// backlogFull returns the error for a cap that is reached: of jobs, or else of bytes.
func backlogFull(tenant bool, queue string, jobs, most, bytes, mostBytes int64) error {
	whose := ""
	if tenant {
		whose = " of the tenant"
	}
	if most > 0 && jobs >= most {
		return fmt.Errorf("%w: queue %q has %d of at most %d jobs%s, in all states", ErrBacklogFull, queue, jobs, most, whose)
	}
	return fmt.Errorf("%w: queue %q has %d of at most %d bytes of jobs%s, in all states, and no room for this one", ErrBacklogFull, queue, bytes, mostBytes, whose)
}
