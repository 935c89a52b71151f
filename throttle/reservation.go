package throttle

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
)

//go:embed settle.lua
var settleLua string

var settleScript = limitlua.NewScript(settleLua).AllowOOM()

// Reservation is a call that was given a slot, or refused one. Its methods say
// what became of the call; the first of them ends the reservation, and later
// ones do nothing. A refused reservation needs none.
//
// A permit of a [Concurrency] limit is held from the answer on, also while the
// call waits for its slot, and renewed by its [Limiter] until the reservation
// ends: forgetting to end it keeps the permit for as long as the process lives.
// A process that dies or stands still gives it up after the limit's lease.
type Reservation struct {
	Decision

	limiter *Limiter
	call    *call
	ended   atomic.Bool
	lost    chan struct{}
}

// Reserve takes n permits at the first moment at which every limit admits them,
// if that is at most within away, and says how long to wait. The caller must
// not go earlier. within <= 0 accepts only now; the longest is a year. Keys and
// errors are those of [Limiter.Take]; without an error the reservation is never
// nil, but may be refused.
//
// A slot is taken in all limits at its moment. Where some share a limit and
// others are their own, a far slot of one key's own limit takes that moment of
// the shared one, and nothing before it: keep within short there.
//
// A concurrency limit has no slots: with no permit left the call is refused.
func (l *Limiter) Reserve(ctx context.Context, n int64, within time.Duration, keys ...string) (*Reservation, error) {
	if l.shards != nil {
		return l.reserveSharded(ctx, n, within, keys)
	}
	c, err := l.ask(shape, n, within, keys)
	if err != nil {
		return nil, err
	}
	// What is reserved for a caller that has left is given back.
	late := func() {
		r := &Reservation{Decision: c.decision, limiter: l, call: c}
		_ = r.Cancel(context.WithoutCancel(ctx)) // what stays is lost, or lapses
	}
	if err := decide(ctx, l.placing, c, late); err != nil {
		return nil, err
	}
	r := &Reservation{Decision: c.decision, limiter: l, call: c}
	if r.Allowed && c.id != "" {
		r.lost = make(chan struct{})
		l.leases.add(l, r)
	}
	return r, nil
}

// Cancel says that the call was not made, and gives back what was reserved for
// it: of a window everything while it is the latest one used, of a token bucket
// what is not time in which it was full, or would have been without this call, of a
// bucket that shapes the newest slot alone, for others stand in line behind the
// older ones. After an error it may have been given back or not, and the
// reservation is ended all the same.
func (r *Reservation) Cancel(ctx context.Context) error { return r.end(ctx, 0, settleScript.Run) }

// Settle says that the call was made and took actual permits, >= 0, instead of
// those reserved. Less is given back as by [Reservation.Cancel]. More is charged
// at once, even beyond what the limit holds, but never beyond twice that, and
// later calls wait for it. An error is that of a negative cost, or of Redis.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("throttle: settle %d permits: a call takes none or more", actual)
	}
	return r.end(ctx, actual, settleScript.Run)
}

// Release says that the call was made and took what was reserved. It is needed
// only with a concurrency limit; without one Redis is not asked, and there is no
// error.
func (r *Reservation) Release(ctx context.Context) error {
	return r.end(ctx, r.call.n, settleScript.Run)
}

// Lost is closed when a permit of a concurrency limit lapsed although it was
// held: Redis or this process stood still for longer than the lease, and others
// may have been admitted in its place. nil without a concurrency limit.
func (r *Reservation) Lost() <-chan struct{} { return r.lost }

// runScript is [Script.Run], or leave.
type runScript func(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error)

func (r *Reservation) end(ctx context.Context, actual int64, run runScript) error {
	if !r.Allowed || r.ended.Swap(true) {
		return nil
	}
	l, c := r.limiter, r.call
	if c.id != "" {
		l.leases.remove(r)
	} else if actual == c.n {
		return nil
	}
	// More than twice what any limit holds charges no more than that.
	actual = min(actual, exact/4)
	args := make([]any, 0, 6+7*len(l.limits))
	args = append(args, l.clock(), len(l.limits))
	args = l.appendSpecs(args, shape, c.within)
	args = append(args, c.id, c.n, actual, r.At.UnixMicro())
	for _, mark := range c.marks {
		args = append(args, mark)
	}
	if _, err := run(ctx, l.client, c.buckets, args...); err != nil {
		return fmt.Errorf("throttle: settle: %w", err)
	}
	return nil
}

// ids are unique among all processes: a random start and a count.
var (
	idStart = rand.Text()
	idCount atomic.Int64
)

func newID() string { return idStart + strconv.FormatInt(idCount.Add(1), 36) }

// layered is how far ahead Wait reserves where a far slot would take shared
// limits' moments from others.
const layered = time.Second

// Wait reserves and sleeps until the slot, or until ctx is done: then the slot
// is given back and ctx's error returned. A [RefusedError] says at once that
// the slot lies behind ctx's deadline, or that the queue in front of it is full.
// Keys and other errors are those of [Limiter.Take].
//
// Waiting for a single limit is first come, first served. Several limits are
// asked again as they come near, and so are concurrency limits, and one may
// pass another there.
func (l *Limiter) Wait(ctx context.Context, n int64, keys ...string) (*Reservation, error) {
	for {
		within := maxWithin
		deadline, hurried := ctx.Deadline()
		if hurried {
			within = time.Until(deadline)
		}
		near := within
		if len(l.limits) > 1 {
			near = min(near, layered)
		}
		r, err := l.Reserve(ctx, n, near, keys...)
		if err != nil {
			return nil, err
		}
		if r.Allowed {
			if err := sleep(ctx, r.Delay); err != nil {
				// It must come back although ctx is done, but hold up nobody for long.
				back, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer stop()
				return nil, errors.Join(err, r.end(back, 0, settleScript.RunUntilDone))
			}
			return r, nil
		}
		pause, again := l.ahead(r, near)
		if !again || (hurried && r.Delay > within && !r.lapses()) {
			if r.RetryAfter == r.Delay-near {
				r.RetryAfter -= within - near // a call may wait longer than each reservation
			}
			return nil, &RefusedError{r.Decision}
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// lapses reports that a refusal is a concurrency limit's, whose RetryAfter is
// the longest it can take.
func (r *Reservation) lapses() bool {
	for _, limit := range r.limiter.limits {
		if limit.Name == r.Limit {
			return limit.Algorithm == Concurrency
		}
	}
	return false
}

// ahead is how long to wait before a refused call is tried again; false: it
// never helps within the time there is.
func (l *Limiter) ahead(r *Reservation, near time.Duration) (time.Duration, bool) {
	switch {
	case r.lapses():
		// A permit comes back when somebody ends a call, which nobody tells.
		return min(r.RetryAfter, 20*time.Millisecond), true
	case len(l.limits) > 1 && r.Delay > near:
		return r.Delay - near/2, true
	default:
		return 0, false
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
