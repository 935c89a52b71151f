package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// Config says what a worker serves.
type Config struct {
	// Redis is where the queues are. Required. The worker opens connections of
	// its own and closes them.
	Redis *redis.UniversalOptions

	// Queues to serve, at most 10. Required.
	Queues []string

	// Concurrency is how many jobs the process holds at once, waiting for their
	// slots or being sent; 0 means 1,000. Half a second of the rates it serves,
	// and what is in flight, should find room.
	Concurrency int

	// ShutdownTimeout is how long Run waits for calls that are being made when
	// it is told to stop; 0 means 30 s.
	ShutdownTimeout time.Duration

	// Logger gets what happens; nil: nothing is logged.
	Logger *slog.Logger

	// Observer is told what happens, for metrics; nil: nobody.
	Observer Observer

	// Details goes with what the worker tells of itself every 5 s ([workers.List]), as
	// JSON: at most [workers.MaxDetails], else it is left out, which is logged once. It must be
	// quick. nil: nothing.
	Details func() any
}

const (
	defaultConcurrency = 1000
	maxQueues          = 10
)

// Worker runs jobs: it releases them at their slots and calls their handlers.
type Worker struct {
	config     Config
	redis      redis.UniversalClient // ours
	handlers   map[string]*handler
	middleware []Middleware
	observer   Observer
	logger     *slog.Logger
	live       map[string]*liveRuns // by queue
	poll       time.Duration        // of the dispatchers

	mu    sync.Mutex
	ready error
}

// New makes a worker. It does not talk to Redis yet; [Handle] registers what it
// does and [Worker.Run] starts it.
func New(config Config) (*Worker, error) {
	var errs []error
	if config.Redis == nil || len(config.Redis.Addrs) == 0 {
		errs = append(errs, errors.New("queue: Config.Redis: an address is required"))
	}
	if len(config.Queues) == 0 || len(config.Queues) > maxQueues {
		errs = append(errs, fmt.Errorf("queue: Config.Queues: %d queues; a worker serves 1 to %d", len(config.Queues), maxQueues))
	}
	for _, name := range config.Queues {
		if !check.QueuePattern.MatchString(name) {
			errs = append(errs, fmt.Errorf("queue: Config.Queues: %s is not 1 to 64 letters, digits, '.', '_' or '-'", check.Quote(name)))
		}
	}
	if config.Concurrency < 0 {
		errs = append(errs, fmt.Errorf("queue: Config.Concurrency: %d is negative", config.Concurrency))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config.Queues = slices.Compact(slices.Sorted(slices.Values(config.Queues)))
	config.Concurrency = cmp.Or(config.Concurrency, defaultConcurrency)
	config.ShutdownTimeout = cmp.Or(config.ShutdownTimeout, 30*time.Second)
	w := &Worker{
		config: config, handlers: map[string]*handler{}, observer: config.Observer, logger: config.Logger,
		live: map[string]*liveRuns{}, poll: idleDispatch, ready: errors.New("the worker has not started"),
	}
	for _, name := range config.Queues {
		w.live[name] = newLiveRuns()
	}
	if w.observer == nil {
		w.observer = NoObserver{}
	}
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	return w, nil
}

// Ready is nil while the worker takes jobs, else why it does not.
func (w *Worker) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

func (w *Worker) setReady(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = err
}

// Run serves the queues until ctx is done, then stops: jobs that are held go
// back to their lanes with their slots, and calls that are being made are
// finished, or cut off after ShutdownTimeout. It returns nil once what came of
// them is in Redis, for which calls that were cut off have 5 s, or the reason why
// it could not start. What goes on even then is given back as a job of which nobody knows
// what comes of it.
//
// A call leaves at its slot only if a thread is free at that moment. The programs of this
// project set Go's runtime for that, and a program of your own does well to do the same:
// GOGC=800, and GOMAXPROCS=3 where Go gives fewer.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("queue: the worker has no handlers")
	}
	for _, h := range w.handlers {
		h.call = w.around(h.fn)
	}
	w.redis = redis.NewUniversalClient(w.config.Redis)
	defer w.redis.Close()
	w.redis.AddHook(roundTrips{w.observer, "other"})
	if err := w.check(ctx, true); err != nil {
		return err
	}

	clocks, each := newClocks(w.redis, w.config.Queues)
	for _, clock := range each {
		if err := clock.start(ctx); err != nil {
			return fmt.Errorf("queue: ask redis for the time: %w", err)
		}
	}

	capacity := newCapacity(w.config.Concurrency)
	stopping, finished := make(chan struct{}), make(chan struct{})
	defer close(finished)
	id, sending := uuid.NewString(), &atomic.Int64{}
	renewals := &renewals{}
	base, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	running := &sync.WaitGroup{}
	roles := newRoles(w.redis, id)
	dispatchers := w.parts(id, clocks, roles, capacity, sending, renewals, running, base, stopping, finished)

	// It lives until its last call is settled.
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	heart := w.newHeart(id, clocks[w.config.Queues[0]], capacity, sending, w.live, renewals)
	beating.Go(func() { heart.Run(alive) })
	beating.Go(func() { w.heedCancellations(alive) })
	defer beating.Wait()
	defer die()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var parts sync.WaitGroup
	for _, d := range dispatchers {
		parts.Go(func() { d.Run(background) })
	}
	parts.Go(func() { listen(background, w.redis, dispatchers) })
	var recoverers []*recoverer
	for _, d := range dispatchers {
		r := &recoverer{
			queue: d.queue, worker: id, redis: w.redis, live: w.live[d.queue], logger: w.logger,
			chores: chores.New(d.queue, w.redis, d.limits, w.logger), roles: roles,
		}
		recoverers = append(recoverers, r)
		parts.Go(func() { r.Run(background) })
	}
	for _, clock := range each {
		parts.Go(func() { clock.Run(background) })
	}
	parts.Go(func() { roles.Run(background) })
	parts.Go(func() { w.checkOn(background) })
	periodic := &ticks{redis: w.redis, client: NewClient(w.redis), logger: w.logger}
	parts.Go(func() { periodic.Run(background) })
	w.setReady(nil)

	<-ctx.Done()
	w.setReady(errors.New("the worker stops"))
	stop()
	parts.Wait()
	close(stopping)
	w.finish(running, cutOff)
	for _, r := range recoverers {
		if err := r.abandon(); err != nil { // other workers recover them
			w.logger.Warn("jobs whose calls go on are not given back", logkey.Queue, r.queue, logkey.Error, err)
		}
	}
	return nil
}

// finish waits for what runs, and cuts it off when the time to stop is up. Then calls
// have [store.Timeout] left to settle what is known of them.
func (w *Worker) finish(running *sync.WaitGroup, cutOff context.CancelFunc) {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-time.After(w.config.ShutdownTimeout):
	}
	cutOff()
	select {
	case <-ended:
	case <-time.After(store.Timeout):
	}
}

// parts makes the gate and the dispatcher of each queue.
func (w *Worker) parts(id string, clocks map[string]*redisClock, roles *roles, capacity *capacity, sending *atomic.Int64, renewals *renewals,
	running *sync.WaitGroup, base context.Context, stopping, ended <-chan struct{}) []*dispatcher {
	var dispatchers []*dispatcher
	suspects, runs := newSuspects(w.config.Concurrency), &atomic.Int64{}
	client := NewClient(w.redis)
	var escaped []string
	for _, kind := range w.Kinds() {
		escaped = append(escaped, rediskey.Escape(kind))
	}
	kinds := kindList(escaped)
	// A call that takes longer than this was cut off.
	lease := store.Timeout
	for _, h := range w.handlers {
		lease = max(lease, h.timeout+store.Timeout)
	}
	for _, name := range w.config.Queues {
		replans := newReplans()
		limits := &effective.Calendars{Queue: name, Redis: w.redis, Seen: (&kindLog{handlers: w.handlers, logger: w.logger}).look}
		pauses, starving := &pauses{}, &starvation{}
		d := &dispatcher{
			queue: name, worker: id, runs: runs, kinds: kinds, redis: w.redis, capacity: capacity, observer: w.observer, logger: w.logger,
			limits: limits, clock: clocks[name], pauses: pauses, starving: starving, sending: sending,
			roles: roles, live: w.live[name], poll: w.poll, wakes: make(chan struct{}, 1), called: make(chan struct{}, 1), stepped: make(chan struct{}, 1), replans: replans, lease: lease,
		}
		g := (&gate{
			queue: name, redis: w.redis, handlers: w.handlers, observer: w.observer, logger: w.logger,
			clock: clocks[name], capacity: capacity, suspects: suspects, sending: sending, client: client, live: w.live[name], renewals: renewals,
			limits: limits, pauses: pauses, starving: starving, onWake: d.wake, replans: replans, lease: lease,
			base: base, running: running, stopping: stopping, ended: ended,
		}).init()
		d.hand = g.take
		dispatchers = append(dispatchers, d)
	}
	return dispatchers
}

// kindList is kinds as the scripts look them up.
func kindList(kinds []string) string { return "," + strings.Join(kinds, ",") + "," }
