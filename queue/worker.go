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
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
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

	// Details goes with what the worker tells of itself every 5 s ([Workers]), as
	// JSON: at most [MostDetails], else it is left out, which is logged once. It must be
	// quick. nil: nothing.
	Details func() any
}

const (
	defaultConcurrency = 1000
	mostQueues         = 10
	perServer          = 250 // jobs for each of asynq's dequeuing loops, up to 4
)

// Worker runs jobs: it releases them at their slots and calls their handlers.
type Worker struct {
	config     Config
	redis      redis.UniversalClient // ours
	asynq      redis.UniversalClient // asynq's alone, with hooks
	handlers   map[string]*handler
	middleware []Middleware
	observer   Observer
	logger     *slog.Logger
	live       map[string]*liveRuns // by queue
	losing     redis.Hook           // of tests: loses what asynq says; nil: nothing is lost
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
	if len(config.Queues) == 0 || len(config.Queues) > mostQueues {
		errs = append(errs, fmt.Errorf("queue: Config.Queues: %d queues; a worker serves 1 to %d", len(config.Queues), mostQueues))
	}
	for _, name := range config.Queues {
		if !queuePattern.MatchString(name) {
			errs = append(errs, fmt.Errorf("queue: Config.Queues: %s is not 1 to 64 letters, digits, '.', '_' or '-'", quote(name)))
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
		live: map[string]*liveRuns{}, poll: slowestDispatch, ready: errors.New("the worker has not started"),
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
// it could not start.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("queue: the worker has no handlers")
	}
	for _, h := range w.handlers {
		h.call = w.around(h.fn)
	}
	w.redis = redis.NewUniversalClient(w.config.Redis)
	defer w.redis.Close()
	w.asynq = redis.NewUniversalClient(w.config.Redis)
	defer w.asynq.Close()
	w.hookAsynq(w.asynq)
	w.redis.AddHook(roundTrips{w.observer, "other"})
	if err := w.check(ctx, true); err != nil {
		return err
	}

	clocks := make(map[string]*redisClock, len(w.config.Queues))
	for _, name := range w.config.Queues {
		clocks[name] = &redisClock{redis: w.redis, queue: name}
		if err := clocks[name].start(ctx); err != nil {
			return fmt.Errorf("queue: ask redis for the time: %w", err)
		}
	}

	capacity := newCapacity(w.config.Concurrency)
	stopping, finished := make(chan struct{}), make(chan struct{})
	defer close(finished)
	id, sending := uuid.NewString(), &atomic.Int64{}
	renewals := &renewals{}
	gates, dispatchers := w.parts(id, clocks, capacity, sending, renewals, stopping, finished)
	servers := w.servers()
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		capacity.enter()
		defer capacity.leave()
		return gates[queue].ProcessTask(ctx, task)
	})
	for i, server := range servers {
		if err := server.Start(handler); err != nil {
			for _, started := range servers[:i] {
				started.Shutdown()
			}
			return fmt.Errorf("queue: start asynq: %w", err)
		}
	}

	// It lives until its last call is settled.
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	heart := w.newHeart(id, clocks[w.config.Queues[0]], capacity, sending, w.live, renewals)
	beating.Go(func() { heart.Run(alive) })
	defer beating.Wait()
	defer die()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var parts sync.WaitGroup
	for _, d := range dispatchers {
		parts.Go(func() { d.Run(background) })
	}
	parts.Go(func() { listen(background, w.redis, dispatchers) })
	for _, name := range w.config.Queues {
		r := &recoverer{queue: name, worker: id, redis: w.redis, live: w.live[name], logger: w.logger}
		parts.Go(func() { r.Run(background) })
		parts.Go(func() { clocks[name].Run(background) })
	}
	parts.Go(func() { w.checkOn(background) })
	periodic := &ticks{redis: w.redis, client: NewClient(w.redis), logger: w.logger}
	parts.Go(func() { periodic.Run(background) })
	w.setReady(nil)

	<-ctx.Done()
	w.setReady(errors.New("the worker stops"))
	stop()
	parts.Wait()
	var ends sync.WaitGroup
	for _, server := range servers {
		ends.Go(server.Stop)
	}
	ends.Wait()
	close(stopping)
	inTime, late := context.WithTimeout(context.WithoutCancel(ctx), w.config.ShutdownTimeout)
	defer late()
	for _, server := range servers {
		ends.Go(server.Shutdown)
	}
	ends.Wait()
	for _, live := range w.live {
		ends.Go(func() { live.drain(inTime) })
	}
	ends.Wait()
	// What was held is on its way through asynq's retry set: put it in its lanes now.
	for _, d := range dispatchers {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
		if _, err := d.round(last, 0); err != nil {
			w.logger.Warn("held jobs return to their lanes when the next worker starts", logQueue, d.queue, logError, err)
		}
		cancel()
	}
	return nil
}

// hookAsynq puts our hooks on the client that only asynq uses.
func (w *Worker) hookAsynq(client redis.UniversalClient) {
	client.AddHook(replacedHook{})
	client.AddHook(dequeueHook{client, kindList(w.Kinds())})
	client.AddHook(leaseHook{w.live})
	if w.losing != nil {
		client.AddHook(w.losing)
	}
	client.AddHook(lostHook{})
	client.AddHook(archiveHook{w.redis})
	client.AddHook(newAcks(client))
	client.AddHook(roundTrips{w.observer, "asynq"})
}

// parts makes the gate and the dispatcher of each queue.
func (w *Worker) parts(id string, clocks map[string]*redisClock, capacity *capacity, sending *atomic.Int64, renewals *renewals, stopping, ended <-chan struct{}) (map[string]*gate, []*dispatcher) {
	gates := make(map[string]*gate, len(w.config.Queues))
	var dispatchers []*dispatcher
	var pendings []*atomic.Int64
	suspects, runs := newSuspects(w.config.Concurrency), &atomic.Int64{}
	client := NewClient(w.redis)
	var escaped []string
	for _, kind := range w.Kinds() {
		escaped = append(escaped, throttle.Escape(kind))
	}
	kinds := kindList(escaped)
	// A call that takes longer than this was cut off.
	lease := redisTimeout
	for _, h := range w.handlers {
		lease = max(lease, h.timeout+redisTimeout)
	}
	for _, name := range w.config.Queues {
		replans := newReplans()
		limits := &limitsCache{queue: name, redis: w.redis, kinds: &kindLog{handlers: w.handlers, logger: w.logger}}
		pauses, starving := &pauses{}, &starvation{}
		d := &dispatcher{
			queue: name, kinds: kinds, redis: w.redis, capacity: capacity, pending: &atomic.Int64{}, observer: w.observer, logger: w.logger,
			limits: limits, clock: clocks[name], pauses: pauses, starving: starving, sending: sending,
			poll: w.poll, woken: make(chan struct{}, 1), stepped: make(chan struct{}, 1), replans: replans, lease: lease,
		}
		gates[name] = (&gate{
			queue: name, redis: w.redis, handlers: w.handlers, observer: w.observer, logger: w.logger,
			clock: clocks[name], suspects: suspects, runs: runs, sending: sending, worker: id, client: client, live: w.live[name], renewals: renewals, stopping: stopping, ended: ended,
			limits: limits, pauses: pauses, starving: starving, woke: d.wake, replans: replans, lease: lease,
		}).init()
		dispatchers = append(dispatchers, d)
		pendings = append(pendings, d.pending)
	}
	for i, d := range dispatchers {
		d.others = slices.Delete(slices.Clone(pendings), i, i+1)
	}
	return gates, dispatchers
}

// servers are several to one process because each dequeues one task a round trip.
func (w *Worker) servers() []*asynq.Server {
	n := min(max(w.config.Concurrency/perServer, 1), 4)
	servers := make([]*asynq.Server, n)
	for i := range servers {
		share := w.config.Concurrency / n
		if i < w.config.Concurrency%n {
			share++
		}
		servers[i] = asynq.NewServerFromRedisClient(w.asynq, asynqConfig(w.config.Queues, share, w.config.ShutdownTimeout, w.logger))
	}
	return servers
}

// kindList is kinds as the scripts look them up.
func kindList(kinds []string) string { return "," + strings.Join(kinds, ",") + "," }
