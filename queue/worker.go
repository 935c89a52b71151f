package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
)

// Config configures a [Worker].
type Config struct {
	// Redis has the options of the Redis with the queues. Required. The worker opens and
	// closes its own connections.
	Redis *redis.UniversalOptions

	// Queues are the names of the queues to serve, at most 10. By default they are the
	// queues of the kinds that have handlers: the queue whose limits list the kind, or
	// else the queue with the name of the kind. They are looked up when [Worker.Run]
	// starts: restart the workers after a kind has moved to another queue.
	Queues []string

	// Concurrency is the maximum number of jobs that the process holds at once, waiting
	// for their slots or in flight. 0 means 1,000. It should have room for half a second
	// of the rates that the worker serves, plus the calls in flight.
	Concurrency int

	// ShutdownTimeout is how long [Worker.Run] waits for calls in flight when it stops. 0
	// means 30 s.
	ShutdownTimeout time.Duration

	// Logger receives log records. nil disables logging.
	Logger *slog.Logger

	// PayloadKeys encrypt the results of calls, and the payloads of follow-ups and periodic
	// jobs, and decrypt what clients have encrypted: see [Client.Encrypt]. A job whose key is
	// not among them waits, and is tried again every minute. nil means that nothing is
	// encrypted.
	PayloadKeys *encryption.Keys

	// Observer receives events for metrics. nil means none.
	Observer Observer

	// Details returns a value that is published as JSON with the worker's state every
	// 5 s, see [workers.List]. More than [workers.MaxDetails] bytes are left out, which
	// is logged once. Details must be fast. nil means no details.
	Details func() any
}

const (
	defaultConcurrency = 1000
	maxQueues          = 10
)

// Worker runs jobs: it releases them from their lanes and calls their handlers at their
// slots.
type Worker struct {
	config     Config
	redis      redis.UniversalClient // opened and closed by Run
	handlers   map[string]*handler
	middleware []Middleware
	observer   Observer
	logger     *slog.Logger
	queues     []partition.Layout   // that this run serves
	live       map[string]*liveRuns // by partition
	alone      map[string]bool      // queues whose missing replica was logged
	poll       time.Duration        // maximum time between two rounds of a dispatcher

	mu    sync.Mutex
	ready error
	gone  []string
}

// New returns a worker. It does not connect to Redis: [Handle] registers handlers, and
// [Worker.Run] starts the worker.
func New(config Config) (*Worker, error) {
	var errs []error
	if config.Redis == nil || len(config.Redis.Addrs) == 0 {
		errs = append(errs, errors.New("queue: Config.Redis: an address is required"))
	}
	if len(config.Queues) > maxQueues {
		errs = append(errs, fmt.Errorf("queue: Config.Queues: %d queues; a worker serves at most %d", len(config.Queues), maxQueues))
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
		poll: idleDispatch, ready: errors.New("the worker has not started"),
	}
	queues := make([]partition.Layout, len(config.Queues))
	for i, name := range config.Queues {
		queues[i] = partition.Layout{Queue: name, N: 1} // until Run reads its partitions
	}
	w.serve(queues)
	if w.observer == nil {
		w.observer = NoObserver{}
	}
	if w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	return w, nil
}

// serve sets the queues of the next run.
func (w *Worker) serve(queues []partition.Layout) {
	w.queues, w.live, w.alone = queues, map[string]*liveRuns{}, map[string]bool{}
	for _, home := range w.homes() {
		w.live[home] = newLiveRuns()
	}
}

// partitions returns the partitions of the queues, each with its queue.
func (w *Worker) partitions() iter.Seq2[partition.Layout, string] {
	return func(yield func(partition.Layout, string) bool) {
		for _, of := range w.queues {
			for _, name := range of.Names() {
				if !yield(of, name) {
					return
				}
			}
		}
	}
}

// homes returns the names of all partitions of the queues.
func (w *Worker) homes() (names []string) {
	for _, name := range w.partitions() {
		names = append(names, name)
	}
	return names
}

// names returns the names of the queues.
func (w *Worker) names() []string {
	names := make([]string, len(w.queues))
	for i, queue := range w.queues {
		names[i] = queue.Queue
	}
	return names
}

// Ready returns nil while the worker takes jobs, and otherwise why it does not.
func (w *Worker) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// Away returns the queues, and partitions of queues, whose node of a Redis Cluster does not answer while
// others do. The worker is ready then, for what it can serve.
func (w *Worker) Away() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gone)
}

func (w *Worker) setAway(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = names
}

func (w *Worker) setReady(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = err
}

// Run serves the queues until ctx is done and then stops. Jobs that wait for their slots
// go back to their lanes with their slots. Calls in flight are finished, or cut off after
// ShutdownTimeout and then given 5 s to settle. A call that goes on even then is given up,
// and its job is recovered as one whose outcome is unknown. Run returns nil after a stop,
// and an error if the worker cannot start.
//
// A call is sent on time only if a thread is free at its slot. The programs of this project
// set GOGC=800, and GOMAXPROCS=3 if Go chooses fewer; do the same in your own programs.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("queue: the worker has no handlers")
	}
	for _, h := range w.handlers {
		h.call = w.around(h.fn)
	}
	w.redis = redisclient.New(w.config.Redis)
	defer w.redis.Close()
	w.redis.AddHook(roundTrips{w.observer, scriptNames()})
	if err := w.begin(ctx); err != nil {
		return err
	}

	clocks, each := newClocks(w.redis, w.homes())
	for _, clock := range each {
		if slices.Contains(w.Away(), clock.queue) {
			continue // it will learn the time from the first reply
		}
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

	// The worker reports that it is alive until its last call is settled.
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	heart := w.newHeart(id, clocks[w.queues[0].Queue], capacity, sending, dispatchers, renewals)
	heart.begin(alive)
	beating.Go(func() { heart.Run(alive) })
	beating.Go(func() { w.heedCancellations(alive) })
	defer beating.Wait()
	defer die()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var parts sync.WaitGroup
	calendars := map[string]*effective.Calendars{}
	for _, d := range dispatchers {
		calendars[d.queue] = d.limits
	}
	for _, d := range dispatchers {
		if d.queue == d.of.Queue {
			d.lessor = newLessor(d.of, id, w.redis, clocks, calendars, d.lease, roles, w.logger)
			parts.Go(func() { d.lessor.Run(background) })
		}
		parts.Go(func() { d.Run(background) })
	}
	parts.Go(func() { listen(background, w.redis, dispatchers) })
	var recoverers []*recoverer
	for _, d := range dispatchers {
		r := &recoverer{
			queue: d.queue, of: d.of, worker: id, redis: w.redis, live: w.live[d.queue], logger: w.logger,
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
	periodic := &ticks{redis: w.redis, client: NewClient(w.redis).Encrypt(w.config.PayloadKeys), logger: w.logger}
	parts.Go(func() { periodic.Run(background) })
	w.setReady(nil)

	<-ctx.Done()
	w.setReady(errors.New("the worker is stopping"))
	stop()
	parts.Wait()
	close(stopping)
	w.finish(running, cutOff)
	for _, r := range recoverers {
		if err := r.abandon(); err != nil { // other workers recover them
			w.logger.Warn("cannot give back jobs whose calls go on; other workers recover them", logkey.Queue, r.queue, logkey.Error, err)
		}
	}
	return nil
}

// finish waits for the runs, and cuts them off after ShutdownTimeout. They then have
// [store.Timeout] to settle.
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

// parts makes the gate and the dispatcher of each partition.
func (w *Worker) parts(id string, clocks map[string]*redisClock, roles *roles, capacity *capacity, sending *atomic.Int64, renewals *renewals,
	running *sync.WaitGroup, base context.Context, stopping, ended <-chan struct{}) []*dispatcher {
	var dispatchers []*dispatcher
	suspects, runs := newSuspects(w.config.Concurrency), &atomic.Int64{}
	client := NewClient(w.redis).Encrypt(w.config.PayloadKeys)
	client.owed = true
	var escaped []string
	for _, kind := range w.Kinds() {
		escaped = append(escaped, rediskey.Escape(kind))
	}
	kinds := kindList(escaped)
	// No call takes longer than this: it would have been cut off.
	lease := store.Timeout
	for _, h := range w.handlers {
		lease = max(lease, h.timeout+store.Timeout)
	}
	for of, name := range w.partitions() {
		replans := newReplans()
		limits := &effective.Calendars{Queue: name, Redis: w.redis, Seen: (&kindLog{handlers: w.handlers, logger: w.logger}).look}
		pauses, starving := &pauses{}, &starvation{}
		d := &dispatcher{
			queue: name, of: of, worker: id, runs: runs, kinds: kinds, redis: w.redis, capacity: capacity, observer: w.observer, logger: w.logger,
			limits: limits, clock: clocks[name], pauses: pauses, starving: starving, sending: sending,
			roles: roles, live: w.live[name], poll: slowed(of, w.poll, slowDispatch), wakes: make(chan struct{}, 1), called: make(chan struct{}, 1), stepped: make(chan struct{}, 1), replans: replans, lease: lease,
		}
		g := (&gate{
			queue: name, of: of, clocks: clocks, redis: w.redis, handlers: w.handlers, observer: w.observer, logger: w.logger,
			clock: clocks[name], capacity: capacity, suspects: suspects, sending: sending, client: client, keys: w.config.PayloadKeys, live: w.live[name], renewals: renewals,
			limits: limits, pauses: pauses, starving: starving, onWake: d.wake, replans: replans, lease: lease,
			base: base, running: running, stopping: stopping, ended: ended,
		}).init()
		d.hand = g.take
		dispatchers = append(dispatchers, d)
	}
	return dispatchers
}

// kindList joins kinds into the form in which the scripts look them up.
func kindList(kinds []string) string { return "," + strings.Join(kinds, ",") + "," }
