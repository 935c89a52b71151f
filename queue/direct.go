package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

const (
	// directPoll is how often a call asks whether a permit of a concurrency limit is free: a permit that
	// is given back wakes only lanes.
	directPoll = 20 * time.Millisecond

	// directNear is how far ahead of now calls get slots. Dispatch gives jobs the slots up to store.Horizon ahead
	// whenever half of them are left. So calls that wait come just before that, and find one slot each time.
	directNear = store.Horizon/2 + 10*time.Millisecond

	maxMissed = 10 // slots that a call misses before it fails
)

// RefusedError reports a call that may not be made now. Nothing was taken.
type RefusedError struct {
	Queue  string
	Reason ParkReason
	Limit  string // of [ParkedByLimit] and [ParkedByConcurrency]

	// RetryAfter is how long it takes until the limits admit the call, if no other call is
	// made before; 0: not known.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string {
	why := map[ParkReason]string{
		ParkedByPause: "calls are paused", ParkedByWindow: "the send window is closed",
		ParkedByLimit: "limit " + check.Quote(e.Limit) + " is used up", ParkedByConcurrency: "all calls of limit " + check.Quote(e.Limit) + " are in flight",
	}[e.Reason]
	after := ""
	if e.RetryAfter > 0 {
		after = fmt.Sprintf(", for another %v", e.RetryAfter)
	}
	return fmt.Sprintf("queue %s: the call may not be made now: %s%s", check.Quote(e.Queue), why, after)
}

// Take takes what a job's call would take from the limits of its queue, for a call that this
// program makes itself, at once. The job is not enqueued: its Queue, Kind, Tenant, Attributes,
// Payload, Cost and Costs say which limits apply, and [Client.Use] applies; other fields
// are checked and do not matter.
//
// The call must be made right after Take has returned, because its moment counts. The error is a
// [RefusedError] if the limits, a pause or a send window do not admit it now, a
// [validation.Error] for each invalid field, or an error of Redis. After an error of Redis,
// what the call takes may be taken.
//
// Jobs that wait get their slots up to 150 ms ahead, so of a limit that is busy Take finds
// something only if the limit keeps a reserve for direct calls ([limits.Limit].For). [Client.Wait] can
// do without one.
func (c *Client) Take(ctx context.Context, job Job) (*Permit, error) { return c.Wait(ctx, job, 0) }

// Wait does what [Client.Take] does, and waits for up to maxWait for the call's moment. Calls of this process under
// the same limits wait in line. Beside a backlog of jobs the first of them finds a slot about every 75 ms, so many
// processes whose calls wait hold jobs back: a limit can keep a reserve for jobs, too. If Redis does not answer, Wait
// returns an error 5 s after maxWait at the latest.
func (c *Client) Wait(ctx context.Context, job Job, maxWait time.Duration) (*Permit, error) {
	seen := &observed{observe: c.direct.observe}
	p, err := c.wait(ctx, job, maxWait, seen)
	seen.tell(err)
	return p, err
}

func (c *Client) wait(ctx context.Context, job Job, maxWait time.Duration, seen *observed) (*Permit, error) {
	end := time.Now().Add(maxWait)
	ctx, cancel := context.WithDeadline(ctx, end.Add(store.Timeout))
	defer cancel()
	seeking := &retry{}
	for try := 0; ; try++ {
		a, err := c.prepare(ctx, job, time.Now(), &retry{}, try)
		seen.of(a)
		if err != nil && !errors.Is(err, errNoPartition) {
			if _, asked := errors.AsType[*lookupError](err); asked {
				seen.failed(err)
			}
			return nil, err
		}
		var p *Permit
		if err == nil {
			p, err = c.waitIn(ctx, a, end, seen)
		}
		if !errors.Is(err, errNoPartition) {
			return p, err
		}
		if !seeking.seek(ctx, try) {
			return nil, seen.failed(fmt.Errorf("a call of queue %q: its tenant moves to another partition: try again", a.queue()))
		}
	}
}

// waitIn asks one partition until the call has come to its moment.
func (c *Client) waitIn(ctx context.Context, a accepted, end time.Time, seen *observed) (*Permit, error) {
	in := c.direct.in(c.redis, a.home)
	for missed := range maxMissed {
		p, err := c.nextSlot(ctx, a, in, missed, end, seen)
		if err != nil {
			return nil, err
		}
		seen.waits(p.slot.earliest - boottime.Now())
		if p.hold(ctx, in) {
			return p, nil
		}
		_ = p.Cancel(ctx) // else it is used up
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return nil, seen.failed(fmt.Errorf("a call of queue %q: it missed its slot %d times: Redis answers too slowly, or this process is too busy", a.queue(), maxMissed))
}

// nextSlot asks for a slot until there is one. Calls of this process that wait for the same bucket stand in line, and
// only the first one asks again. missed is how many slots the call has missed: then it gets more time for the next.
func (c *Client) nextSlot(ctx context.Context, a accepted, in *directIn, missed int, end time.Time, seen *observed) (*Permit, error) {
	waiting, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	line, leave := "", func() {}
	defer func() { leave() }()
	ahead := min(cmp.Or(c.direct.pickup, pickup)<<missed, directNear)
	for {
		if err := in.clock.ready(ctx); err != nil {
			return nil, seen.failed(fmt.Errorf("a call of queue %q: %w", a.queue(), err))
		}
		left := max(time.Until(end), 0)
		// The call before may be accounted as much ahead of when it left.
		p, refused, err := c.ask(ctx, a, in, ahead, max(min(left, directNear), ahead), seen)
		if err != nil || refused == nil {
			return p, err
		}
		if left == 0 || refused.RetryAfter > left {
			return nil, &refused.RefusedError
		}
		if refused.line != line {
			leave()
			entered := time.Now()
			line, leave = refused.line, in.lines.enter(waiting, refused.line)
			seen.waits(time.Since(entered))
			continue
		}
		again := min(cmp.Or(refused.again, directPoll), left)
		if err := wait.For(ctx, again); err != nil {
			return nil, err
		}
		seen.waits(again)
	}
}

// refusal is the answer to a call that has no slot yet.
type refusal struct {
	RefusedError
	again time.Duration // when to ask again; 0: not known
	line  string        // the bucket that it waits for; "": none
}

// ask asks once for a slot, which is at most `near` from now, and ends `ahead` from now or later.
func (c *Client) ask(ctx context.Context, a accepted, in *directIn, ahead, near time.Duration, seen *observed) (*Permit, *refusal, error) {
	p := &Permit{client: c, of: a, id: "*" + rand.Text()}
	var reply any
	var sent time.Duration
	seen.Decision = throttle.Decision{} // that of the answer before does not matter any more
	asked := time.Now()
	err := in.calendars.Run(ctx, func(calendars string) (err error) {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		sent = boottime.Now()
		args := seen.append([]any{a.home, calendars, near.Microseconds(), ahead.Microseconds(), a.layout,
			p.id, a.tenant, a.attributesOfLane(), a.cost, a.costs, store.DirectLease.Microseconds(), in.born.Load()})
		reply, err = store.DirectScript.RunUntilDone(ctx, c.redis, store.ScriptKeys(a.home), args...)
		return err
	})
	seen.Took += time.Since(asked)
	if err != nil {
		return nil, nil, seen.failed(fmt.Errorf("a call of queue %q: %w", a.queue(), err))
	}
	read := store.Read(reply)
	switch word := read.Text(); word {
	case "go":
		in.born.Store(read.Int())
		earliest, latest, now := read.Int(), read.Int(), read.Int()
		p.permits, p.marks = read.Text(), read.Text()
		seen.goes(read, earliest, now)
		if err := read.End(); err != nil {
			return nil, nil, err
		}
		in.clock.observe(now, sent, boottime.Now())
		p.slot = in.clock.slot(earliest, latest)
		return p, nil, nil
	case "no":
		in.born.Store(read.Int())
		after, again := time.Duration(read.Int())*time.Microsecond, time.Duration(read.Int())*time.Microsecond
		refused := &refusal{RefusedError{a.queue(), ParkReason(read.Text()), read.Text(), after}, again, read.Text()}
		seen.refused(read, after)
		return nil, refused, read.End()
	case "never":
		return nil, nil, neverAdmitted(read)
	case "leased":
		return nil, nil, fmt.Errorf("a call of queue %q: limit %s is shared by partitions or queues, and its leases are for jobs: enqueue the call", a.queue(), check.Quote(read.Text()))
	case "moved":
		c.routes.forget(a.home)
		return nil, nil, errNoPartition
	default:
		return nil, nil, fmt.Errorf("a call of queue %q: unexpected answer %q", a.queue(), word)
	}
}

// neverAdmitted returns the error for a cost that a limit never admits, as scripts name it: limit, most, cost, unit.
func neverAdmitted(read *store.Reply) error {
	limit, most, wanted, field := read.Text(), read.Text(), read.Text(), "cost"
	if unit := read.Text(); unit != "" {
		field = "costs." + unit
	}
	return validation.Field(field, fmt.Sprintf("%s is more than limit %s ever admits at once (%s)", wanted, check.Quote(limit), most))
}

// direct is what a client knows of the partitions from which it takes permits for calls of its own.
type direct struct {
	pickup  time.Duration              // in which a call leaves that Redis admits now; 0: pickup
	observe func(throttle.Observation) // nil: nobody observes

	mu    sync.Mutex
	known map[string]*directIn
	clock *redisClock // of all partitions; nil in a Cluster, where each has its own
}

// directIn is what is known of a partition.
type directIn struct {
	clock     *redisClock
	calendars *effective.Calendars
	lines     lines
	born      atomic.Int64 // when limits were first published in this Redis, Unix µs; 0: not known
}

// in returns what is known of a partition.
func (d *direct) in(client redis.UniversalClient, home string) *directIn {
	d.mu.Lock()
	defer d.mu.Unlock()
	in := d.known[home]
	if in == nil {
		if d.known == nil || len(d.known) == maxListed {
			d.known = map[string]*directIn{}
		}
		clocks, _ := newClocks(client, []string{home})
		in = &directIn{clock: clocks[home], calendars: &effective.Calendars{Queue: home, Redis: client}}
		if _, apart := client.(*redis.ClusterClient); !apart {
			if d.clock == nil {
				d.clock = in.clock
			}
			in.clock = d.clock
		}
		d.known[home] = in
	}
	return in
}
