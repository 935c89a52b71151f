package queue

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// capacity counts the places for jobs in this process.
type capacity struct {
	all   int64         // Config.Concurrency
	taken atomic.Int64  // places of held jobs, and places reserved for rounds under way
	held  atomic.Int64  // jobs
	freed chan struct{} // has a value if a place became free since it was last read
}

func newCapacity(all int) *capacity { return &capacity{all: int64(all), freed: make(chan struct{}, 1)} }

// reserve takes at most the given number of places for a round, and returns how many it
// took. Without it, the rounds of several queues would fill the same places.
func (c *capacity) reserve(most int64) int64 {
	for {
		taken := c.taken.Load()
		n := max(min(c.all-taken, most), 0)
		if c.taken.CompareAndSwap(taken, taken+n) {
			return n
		}
	}
}

// enter fills a reserved place, and leave frees it.
func (c *capacity) enter() { c.held.Add(1) }

func (c *capacity) leave() {
	c.held.Add(-1)
	c.free(1)
}

// free gives back n places. A negative n takes places beyond the reserved ones.
func (c *capacity) free(n int64) {
	if c.taken.Add(-n); n > 0 {
		signal(c.freed)
	}
}

// signal sends a value to a channel with one place, unless that has one already.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// dispatcher releases jobs of one partition of a queue and hands them to this worker's gate, as many as
// the worker can hold.
type dispatcher struct {
	queue     string           // the partition
	of        partition.Layout // its queue
	worker    string           // id of this session, in owner marks
	runs      *atomic.Int64    // latest run number of this session, for all queues
	hand      func([]handed)   // takes the jobs that are handed over
	kinds     string           // kinds with a handler, in the form of dispatch.lua
	redis     redis.UniversalClient
	capacity  *capacity
	observer  Observer
	logger    *slog.Logger
	limits    *effective.Calendars
	born      int64 // what the latest reply said of the limits, see dispatch.lua
	clock     *redisClock
	pauses    *pauses
	starving  *starvation
	sending   *atomic.Int64 // calls in flight, of all queues
	unheard   unheard
	reserved  atomic.Int64  // places reserved for the jobs of the next round
	failing   time.Duration // begin of the first round without an answer since the latest answer, on the boot clock; 0: there is none
	lastRound time.Duration // end of the latest round, on the boot clock
	roles     *roles        // roles of other workers
	live      *liveRuns     // runs of the queue's jobs in this process
	had       bool          // this process had jobs of the queue after the latest round
	stands    atomic.Bool   // standing by, because another worker leads; see lead.go
	idles     bool          // it is one of many partitions, and costs little while it has no jobs; see idle.go

	restsSince time.Duration // when the latest round found nothing to do, and that this worker leads; 0: it did not

	poll    time.Duration // maximum time between two rounds
	wakes   chan struct{} // has a value when a lane may go on
	called  chan struct{} // has a value when all workers should make a round
	replans *replans      // lanes to plan again
	lease   time.Duration // maximum time of a probe's call; 0: a minute
	lessor  *lessor       // of the queue's shared limits; only the first partition has one, or nil
}

// unheard is the jobs of calls of dispatch.lua whose reply was lost. They may have been
// handed over, so the next call asks for them again.
type unheard struct {
	first int64 // run number of the first such job; 0: no reply was lost
	runs  int64 // maximum number of such jobs
}

// wake starts the next round now.
func (d *dispatcher) wake() { signal(d.wakes) }

// call starts the next round now, even if the dispatcher stands by.
func (d *dispatcher) call() { signal(d.called) }

const (
	idleDispatch    = time.Second           // time between rounds while nothing happens
	slowestDispatch = 50 * time.Millisecond // maximum wait of a full worker for a place
	fastestDispatch = 5 * time.Millisecond  // minimum time between rounds

	maxHanded = 50 // jobs in one call of dispatch.lua
)

// Run dispatches until ctx is done.
func (d *dispatcher) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { d.replan(ctx) })
	defer func() {
		if d.unheard.first > 0 { // else jobs of a lost reply wait until other workers recover them
			_, _ = d.round(context.WithoutCancel(ctx), 0)
		}
		d.fill(0) // the process may go on with another session
		d.resign()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failing bool
	for {
		look := d.look
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.called:
			look = d.dispatch
		case <-d.wakes:
			if d.stands.Load() {
				store.Announce(ctx, d.redis, d.queue)
				continue
			}
		}
		wait, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				d.logger.Warn("dispatch failed; retrying", logkey.Queue, d.queue, logkey.Error, err)
			}
			failing = true
			wait = 200 * time.Millisecond
		case failing:
			failing = false
			d.logger.Info("dispatch works again", logkey.Queue, d.queue)
		}
		timer.Reset(wait)
	}
}

// room reserves places for a round and returns how many more jobs this process can hold. A partition that is away
// gets none: it may be one of many, and the places are those of all of them.
func (d *dispatcher) room() int64 {
	if d.failing > 0 && boottime.Now()-d.failing > store.AwayAfter {
		return 0
	}
	d.reserved.Add(d.capacity.reserve(maxHanded - d.reserved.Load()))
	return max(d.capacity.all-d.capacity.taken.Load(), 0) + d.reserved.Load()
}

// fill gives back the reserved places that a round with this many jobs did not use. Jobs beyond the reserved places
// take others.
func (d *dispatcher) fill(jobs int) { d.capacity.free(d.reserved.Swap(0) - int64(jobs)) }

// roundAnswer is the reply of dispatch.lua, where the fields are described.
type roundAnswer struct {
	again                        time.Duration // time until the next round; below 0: no job is due
	waiting, forwarded, enqueued int64
	pauses                       int64
	full, stepped, understood    bool
	led                          time.Duration
	jobs                         []handed
}

// ask runs dispatch.lua for at most room jobs. The first job gets the run number run.
func (d *dispatcher) ask(ctx context.Context, room, run int64) (a roundAnswer, err error) {
	// A quarter of the places is kept for jobs that may go at once. Otherwise jobs of a
	// busy tenant that wait for their slots would fill the worker, and a quiet tenant
	// would wait behind them.
	ahead := max(room-d.capacity.all/4, 0)
	var sent time.Duration
	var reply any
	err = d.limits.Run(ctx, func(calendars string) (err error) {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		sent = boottime.Now()
		reply, err = store.DispatchScript.Run(ctx, d.redis, store.ScriptKeys(d.queue), d.queue, room, ahead,
			store.Horizon.Microseconds(), pickup.Microseconds(), calendars, d.kinds, cmp.Or(d.lease, time.Minute).Microseconds(), d.worker, run, d.unheard.first,
			min(maxAlone-d.capacity.held.Load(), ahead-1), leadLasts.Milliseconds(), d.born)
		return err
	})
	if err != nil {
		return a, err
	}
	read := store.Read(reply)
	a.again = time.Duration(read.Int()) * time.Microsecond
	a.waiting, a.forwarded, a.full, a.enqueued, a.pauses = read.Int(), read.Int(), read.Flag(), read.Int(), read.Int()
	now := read.Int()
	a.stepped, a.understood, a.led = read.Flag(), read.Flag(), time.Duration(read.Int())*time.Millisecond
	jobs := read.List()
	if born := read.Int(); born > 0 {
		d.born = born
	}
	if err := read.End(); err != nil {
		return a, err
	}
	d.clock.observe(now, sent, boottime.Now())
	a.jobs, err = d.readHanded(jobs, run, sent)
	return a, err
}

// round runs dispatch.lua once, hands over the released jobs and returns the time until the
// next round.
func (d *dispatcher) round(ctx context.Context, room int64) (time.Duration, error) {
	filled := 0
	defer func() {
		if d.unheard.first == 0 {
			d.fill(filled)
		}
	}()
	runs := max(min(room, maxHanded), d.unheard.runs)
	run := d.runs.Add(runs) - runs + 1
	began := time.Now()
	d.failing = cmp.Or(d.failing, boottime.Now())
	// The jobs that may have been handed over get their places back when the partition answers. If others have these by
	// then, the process holds more jobs than it has places, until as many have ended.
	giveUp := time.AfterFunc(d.failing+store.AwayAfter-boottime.Now(), func() { d.fill(0) })
	a, err := d.ask(ctx, room, run)
	giveUp.Stop()
	if err == nil {
		d.failing = 0
	}
	switch {
	case err != nil:
		if !certain(err) {
			d.unheard = unheard{cmp.Or(d.unheard.first, run), runs}
		}
		return 0, err
	case !a.understood:
		return chores.Every, nil // a key of the queue is damaged; the fault is logged
	}
	d.unheard = unheard{}
	filled = len(a.jobs)
	d.hand(a.jobs)
	if err := d.follow(ctx, a); err != nil {
		return 0, err
	}
	released, now := len(a.jobs), boottime.Now()
	starved := d.starving.note(now, d.lastRound, a.full && a.again == 0)
	d.lastRound = now
	d.observer.Dispatched(d.of.Queue, Round{
		Took: time.Since(began), Released: released, Waiting: a.waiting, Enqueued: a.enqueued,
		Held: d.capacity.held.Load(), Sending: d.sending.Load(), Concurrency: d.capacity.all, Starved: starved,
	})
	d.had = released > 0 || d.live.any(d.queue)
	if d.restsSince = 0; d.idles && a.again < 0 && a.waiting == 0 && a.led == 0 && !d.had {
		d.restsSince = now
	}
	if a.led > 0 {
		return d.standBy(ctx, a.led, released > 0 || a.forwarded > 0), nil
	}
	return d.next(ctx, a), nil
}

// follow handles the rest of a round's answer: changed pauses, and a clock that was set
// back.
func (d *dispatcher) follow(ctx context.Context, a roundAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if a.stepped { // no other round reports this
		d.logger.Warn("redis's clock was set back; planning all lanes again", logkey.Queue, d.queue)
		d.replans.add("")
	}
	return d.pauses.follow(ctx, d.redis, d.queue, a.pauses, d.clock.now())
}

// next returns the time until the next round. A full worker waits for a free place first.
func (d *dispatcher) next(ctx context.Context, a roundAnswer) time.Duration {
	switch {
	case a.full:
		select {
		case <-ctx.Done():
		case <-d.capacity.freed:
			return fastestDispatch
		case <-time.After(slowestDispatch):
		}
		return 0
	case a.again > 0:
		// By then half of the jobs released ahead are sent. That is often enough to keep
		// the rate, and far less often than once per slot.
		return min(max(a.again-store.Horizon/2, fastestDispatch), d.poll)
	case a.again < 0:
		return d.poll
	}
	return 0
}
