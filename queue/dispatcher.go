package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// capacity is how many jobs the process can hold, and how many it does.
type capacity struct {
	all   int64
	held  atomic.Int64
	freed chan struct{} // has a value when a job left since it was last read
}

func newCapacity(all int) *capacity { return &capacity{all: int64(all), freed: make(chan struct{}, 1)} }

func (c *capacity) enter() { c.held.Add(1) }

func (c *capacity) leave() {
	c.held.Add(-1)
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// dispatcher releases the jobs of one queue, as many as this worker can hold.
type dispatcher struct {
	queue    string
	kinds    string // that the worker has handlers for, as dispatch.lua takes them
	redis    redis.UniversalClient
	capacity *capacity
	pending  *atomic.Int64   // released and not yet picked up, of this queue
	others   []*atomic.Int64 // of the worker's other queues
	observer Observer
	logger   *slog.Logger
	limits   *limitsCache
	clock    *redisClock
	pauses   *pauses
	archive  archiver
	faults   faultLog
	starving *starvation
	sending  *atomic.Int64 // calls under way, of all queues
	looked   time.Duration // when the latest round ended, on the boot clock
	poll     time.Duration // how long a lane that was empty goes unseen, unless something wakes the dispatcher
	woken    chan struct{} // has a value when a lane may go on
	stepped  chan struct{} // has a value when redis's clock was set back; nil: nothing is done about it
	replans  *replans      // nil: nothing is done about them
	lease    time.Duration // how long the call of a probe may take; 0: a minute
}

// wake brings the next round forward.
func (d *dispatcher) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

const (
	// A lane that was empty is seen after this at the latest.
	slowestDispatch = 50 * time.Millisecond
	fastestDispatch = 5 * time.Millisecond
	sweepEvery      = 3 * time.Second
)

// Run dispatches until ctx is done.
func (d *dispatcher) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { d.replanAfterSteps(ctx) })
	beside.Go(func() { d.replanAfterHolds(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failing bool
	var swept time.Time
	cursor := "0"
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.woken:
		}
		wait, err := d.round(ctx, d.room())
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			// A round that failed is when they say why.
			err = cmp.Or(err, d.faults.look(ctx, d.redis, d.queue, d.logger))
			if err == nil {
				cursor, err = d.sweep(ctx, cursor)
			}
			if err == nil {
				err = d.archive.sweep(ctx, d.redis, d.queue, d.logger)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				d.logger.Warn("dispatch fails; it goes on trying", logQueue, d.queue, logError, err)
			}
			failing = true
			wait = 200 * time.Millisecond
		case failing:
			failing = false
			d.logger.Info("dispatch works again", logQueue, d.queue)
		}
		timer.Reset(wait)
	}
}

// room is how many more jobs this process can hold.
func (d *dispatcher) room() int64 {
	free := d.capacity.all - d.capacity.held.Load()
	for _, other := range d.others {
		free -= other.Load()
	}
	return max(free, 0)
}

// round releases once and says when to come back.
func (d *dispatcher) round(ctx context.Context, room int64) (time.Duration, error) {
	windows, err := d.limits.windows(ctx)
	if err != nil {
		return 0, err
	}
	// A quarter of the places is kept for jobs that may go at once, or slots of
	// a busy tenant would fill the worker and a quiet one would wait behind them.
	ahead := max(room-d.capacity.all/4, 0)
	began, sent := time.Now(), bootTime()
	callCtx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	reply, err := dispatchScript.Run(callCtx, d.redis, scriptKeys(d.queue), d.queue, room, ahead,
		horizon.Microseconds(), pickup.Microseconds(), windows, d.kinds, cmp.Or(d.lease, time.Minute).Microseconds())
	if err != nil {
		d.limits.look(err)
		return 0, err
	}
	n, err := numbers(reply, 11)
	if err != nil {
		return 0, err
	}
	d.clock.observe(n[8], sent, bootTime())
	if n[10] == 0 {
		return sweepEvery, nil // what it could not understand is among the faults, which are logged
	}
	if err := d.pauses.follow(callCtx, d.redis, d.queue, n[7], d.clock.now()); err != nil {
		return 0, err
	}
	if n[9] == 1 {
		select {
		case d.stepped <- struct{}{}:
		default:
		}
	}
	released, again, full := int(n[0]), time.Duration(n[1])*time.Microsecond, n[4] == 1
	d.pending.Store(n[5])
	now := bootTime()
	starved := d.starving.note(now, d.looked, full && again == 0)
	d.looked = now
	d.observer.Dispatched(d.queue, Round{
		Took: time.Since(began), Released: released, Waiting: n[2], Enqueued: n[6],
		Held: d.capacity.held.Load(), Sending: d.sending.Load(), Concurrency: d.capacity.all, Starved: starved,
	})
	switch {
	case full:
		select {
		case <-ctx.Done():
		case <-d.capacity.freed:
			return fastestDispatch, nil
		case <-time.After(slowestDispatch):
		}
		return 0, nil
	case again == 0:
		return 0, nil
	case again > 0:
		// Half of what was released ahead has gone by then: often enough to keep
		// the rate, and far less often than a slot.
		return min(max(again-horizon/2, fastestDispatch), d.poll), nil
	}
	return d.poll, nil
}

func (d *dispatcher) sweep(ctx context.Context, cursor string) (string, error) {
	windows, err := d.limits.windows(ctx)
	if err != nil {
		return cursor, err
	}
	return sweepSlice(ctx, d.redis, d.queue, "", cursor, windows, true)
}

// limitsCache knows the calendars of a queue's limits for the scripts.
type limitsCache struct {
	queue string
	redis redis.UniversalClient
	kinds *kindLog // of a worker; nil: of none

	mu    sync.Mutex
	text  string
	until time.Time
}

func (c *limitsCache) windows(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.until) {
		return c.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	stored, err := readStored(ctx, c.redis, c.queue)
	if err != nil && !errors.Is(err, errUnreadable) {
		return "", err
	}
	if c.kinds != nil {
		c.kinds.look(c.queue, stored.Kinds)
	}
	if c.text, err = stored.calendars(now); err != nil {
		c.text = "" // the scripts meet the same limits, and report what they cannot understand
	}
	c.until = now.Add(5 * time.Second)
	return c.text, nil
}

// look makes the next question read the limits again if a script missed a
// calendar: they have changed.
func (c *limitsCache) look(err error) {
	if !stale(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

// stale is whether a script missed a calendar: the limits have changed.
func stale(err error) bool { return strings.Contains(err.Error(), "STALE") }
