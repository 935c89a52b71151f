package throttle

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/wait"
)

//go:embed settle.lua
var settleLua string

//go:embed release.lua
var releaseLua string

var (
	settleScript  = limitlua.NewScript(settleLua).AllowOOM()
	releaseScript = limitlua.NewScript(releaseLua).AllowOOM()
)

// Reservation is the slot that a call was given or refused. The first call of
// [Reservation.Cancel], [Reservation.Settle] or [Reservation.Release] ends it, and
// later ones do nothing. A refused reservation need not be ended.
//
// A permit of a [Concurrency] limit is held from the answer on, also while the call
// waits for its slot. The [Limiter] renews it until the reservation ends, so a
// reservation that is never ended keeps its permit for as long as the process lives.
// If the process dies or hangs, the permit lapses after the limit's lease.
type Reservation struct {
	Decision

	limiter *Limiter
	call    *call
	ended   atomic.Bool
	lost    chan struct{}
	renewed []time.Time // when its permit of each concurrency limit was taken or renewed last
}

// Reserve takes n permits at the first moment at which every limit admits them, if
// that is at most within from now. The call may go after Delay, and not earlier.
// within <= 0 means now or not at all; it is at most a year. Keys and errors are those
// of [Limiter.Take]. If err is nil, the reservation is not nil, but it may be refused:
// look at Allowed.
//
// A slot is taken in all limits at the same moment. If keys share one limit and have
// another each, a distant slot of a key's own limit also takes that moment of the
// shared limit, and later calls of all keys come after it: keep within short there.
//
// A concurrency limit has no slots: if no permit is left, the call is refused.
//
// Use [Limiter.Wait] to also sleep until the slot.
func (l *Limiter) Reserve(ctx context.Context, n int64, within time.Duration, keys ...string) (*Reservation, error) {
	began := l.began()
	r, err := l.reserve(ctx, n, within, keys)
	seen := Observation{Err: err, Took: l.since(began)}
	if err == nil {
		seen.Decision = r.Decision
		if r.Allowed {
			seen.Waited = r.Delay
		}
	}
	l.tell(seen)
	return r, err
}

func (l *Limiter) reserve(ctx context.Context, n int64, within time.Duration, keys []string) (*Reservation, error) {
	if l.shards != nil {
		return l.reserveSharded(ctx, n, within, keys)
	}
	c, err := l.ask(shape, n, within, keys)
	if err != nil {
		return nil, err
	}
	asked := l.time()
	// A reservation for a caller that has left is given back.
	late := func() {
		r := &Reservation{Decision: c.decision, limiter: l, call: c}
		_ = r.Cancel(context.WithoutCancel(ctx)) // after an error the permits are lost, or lapse
	}
	if err := decide(ctx, l.placing, c, late); err != nil {
		return nil, err
	}
	r := &Reservation{Decision: c.decision, limiter: l, call: c}
	if r.Allowed && c.id != "" {
		r.lost, r.renewed = make(chan struct{}), slices.Repeat([]time.Time{asked}, len(l.limits))
		l.leases.add(l, r)
	}
	return r, nil
}

// Cancel gives back what was reserved for a call that was not made. What comes back
// depends on the algorithm: everything from a window as long as no later window was
// used; from a token bucket what has not refilled since; from a bucket that shapes
// only the newest slot, because other calls wait behind the older ones.
//
// After an error it is not known whether the permits were given back. The reservation
// has ended nevertheless.
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.end(ctx, 0, (*redisscript.Script).Run)
}

// Settle corrects the cost of a call that was made to actual permits, >= 0. What was
// reserved beyond that is given back as by [Reservation.Cancel]. What is missing is
// charged at once, up to twice what the limit holds, and later calls wait for it. It
// returns an error if actual is negative, or that of Redis.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 {
		return fmt.Errorf("throttle: settle %d permits: a call takes none or more", actual)
	}
	return r.end(ctx, actual, (*redisscript.Script).Run)
}

// Release ends the reservation of a call that took what was reserved, and gives its
// permits of concurrency limits back, also if ctx ends meanwhile. Without a concurrency
// limit it need not be called: it does not ask Redis and returns nil.
func (r *Reservation) Release(ctx context.Context) error {
	return r.end(ctx, r.call.n, (*redisscript.Script).Run)
}

// Lost returns a channel that is closed if a permit of a concurrency limit lapsed while
// it was held, because Redis or this process hung for longer than the lease. Another
// call may have been admitted in its place. While Redis cannot be reached it is closed
// once the lease is over, up to a quarter of the lease later. Without a concurrency limit
// it is nil.
func (r *Reservation) Lost() <-chan struct{} { return r.lost }

// runScript is [redisscript.Script.Run], or RunUntilDone.
type runScript func(script *redisscript.Script, ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error)

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
	if actual == c.n {
		sent, err := l.ending.Do(ctx, c)
		if err = settled(err); err == nil {
			err = c.err
		}
		if err != nil && sent == nil && ctx.Err() != nil { // its permit would be held for the rest of its lease
			c.err = nil
			go func() { _, _ = l.ending.Do(context.WithoutCancel(ctx), c) }()
		}
		return err
	}
	// It is more than twice what any limit holds, and exact in Lua.
	actual = min(actual, exact/4)
	args := make([]any, 0, 6+7*len(l.limits))
	args = append(args, l.clock(), len(l.limits))
	args = l.appendSpecs(args, shape, r.Delay)
	args = append(args, c.id, c.n, actual, r.At.UnixMicro())
	for _, mark := range c.marks {
		args = append(args, mark)
	}
	_, err := run(settleScript, ctx, l.client, c.buckets, args...)
	return settled(err)
}

// settled returns the error of a reservation that was ended.
func settled(err error) error {
	if err != nil {
		return fmt.Errorf("throttle: settle: %w", err)
	}
	return nil
}

// release gives the permits of ended calls back.
func (l *Limiter) release(ctx context.Context, calls []*call) error {
	var all []request
	for _, group := range l.bySlot(calls) {
		r := request{calls: group, script: releaseScript}
		for _, c := range group {
			for i, limit := range l.limits {
				if limit.Algorithm == Concurrency {
					r.keys, r.args = append(r.keys, c.buckets[i]), append(r.args, c.id)
				}
			}
		}
		all = append(all, r)
	}
	return l.doAll(ctx, all)
}

// ids are unique among all processes: a random start and a count.
var (
	idStart = rand.Text()
	idCount atomic.Int64
)

func newID() string { return idStart + strconv.FormatInt(idCount.Add(1), 36) }

// nearby is how far ahead Wait reserves a slot of several limits: a distant one would
// take a moment of a shared limit from calls that can go before it.
const nearby = time.Second

// Wait reserves a slot and sleeps until then. If ctx is done first, the slot is given
// back and the error of ctx returned. Wait returns a [RefusedError] at once if the slot
// lies after the deadline of ctx, or if the queue of a leaky bucket or the log of a sliding
// window log is full. Keys and other errors are those of [Limiter.Take].
//
// Calls that wait for a single limit go in the order in which they came. A call that
// waits for several limits, or for a concurrency limit, asks again from time to time,
// so that another call may pass it.
func (l *Limiter) Wait(ctx context.Context, n int64, keys ...string) (*Reservation, error) {
	began, asked := time.Now(), time.Duration(0)
	for {
		within := maxWithin
		deadline, hurried := ctx.Deadline()
		if hurried {
			within = time.Until(deadline)
		}
		near := within
		if len(l.limits) > 1 {
			near = min(near, nearby)
		}
		asking := time.Now()
		r, err := l.reserve(ctx, n, near, keys)
		asked += time.Since(asking)
		if err != nil {
			l.tell(Observation{Err: err, Took: asked})
			return nil, err
		}
		if r.Allowed {
			if err := wait.For(ctx, r.Delay); err != nil {
				// The slot is given back although ctx is done, but that must not take long.
				back, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer stop()
				return nil, errors.Join(err, r.end(back, 0, (*redisscript.Script).RunUntilDone))
			}
			l.tell(Observation{Decision: r.Decision, Took: asked, Waited: time.Since(began) - asked})
			return r, nil
		}
		pause, again := l.ahead(r, near)
		if !again || (hurried && r.Delay > within && !r.lapses()) {
			if r.RetryAfter == r.Delay-near {
				r.RetryAfter -= within - near // a call may wait longer than each reservation
			}
			l.tell(Observation{Decision: r.Decision, Took: asked})
			return nil, &RefusedError{r.Decision}
		}
		if err := wait.For(ctx, pause); err != nil {
			if known(err) { // its time was over, and it was not left
				l.tell(Observation{Decision: r.Decision, Took: asked})
			}
			return nil, err
		}
	}
}

// lapses reports whether a concurrency limit refused the call. Its RetryAfter is an
// upper bound.
func (r *Reservation) lapses() bool {
	return slices.ContainsFunc(r.limiter.limits, func(limit Limit) bool { return limit.Name == r.Limit && limit.Algorithm == Concurrency })
}

// ahead returns how long to wait before a refused call is tried again, or false if that
// cannot help in time.
func (l *Limiter) ahead(r *Reservation, near time.Duration) (time.Duration, bool) {
	switch {
	case r.lapses():
		// A permit comes back when another call ends, and there is no event for that.
		return min(r.RetryAfter, 20*time.Millisecond), true
	case len(l.limits) > 1 && r.Delay > near:
		return r.Delay - near/2, true
	default:
		return 0, false
	}
}
