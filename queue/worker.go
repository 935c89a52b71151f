package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fdtable"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/queue/encryption"
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
	poll       time.Duration // maximum time between two rounds of a dispatcher
	check      time.Duration // between two checks of Redis

	// All sessions share these.
	capacity  *capacity
	suspects  *suspects
	sending   atomic.Int64   // calls in flight
	announced chan struct{}  // has a value when a queue may have other partitions
	ending    sync.WaitGroup // sessions that others have followed

	mu    sync.Mutex
	live  map[string]*liveRuns // by queue
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
	if details := config.Details; details != nil {
		var one sync.Mutex // two sessions may ask
		config.Details = func() any {
			one.Lock()
			defer one.Unlock()
			return details()
		}
	}
	return &Worker{
		config: config, handlers: map[string]*handler{}, poll: idleDispatch, check: checkEvery,
		observer: cmp.Or[Observer](config.Observer, NoObserver{}), logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler)),
		capacity: newCapacity(config.Concurrency), suspects: newSuspects(config.Concurrency), announced: make(chan struct{}, 1),
		live: map[string]*liveRuns{}, ready: errors.New("the worker has not started"),
	}, nil
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
// If a queue gets other partitions, the worker serves these from then on. Calls in flight go on
// meanwhile.
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
	fdtable.Grow(2 * w.config.Concurrency) // a connection for each call, as many idle ones, and a few of Redis
	w.redis = redisclient.New(w.config.Redis)
	defer w.redis.Close()
	w.redis.AddHook(roundTrips{w.observer})
	s, err := w.begin(ctx)
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return err
	}
	var beside sync.WaitGroup
	periodic := &ticks{redis: w.redis, client: NewClient(w.redis).Encrypt(w.config.PayloadKeys), logger: w.logger}
	beside.Go(func() { periodic.Run(ctx) })
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	beside.Go(func() { w.heedCancellations(alive) })
	w.setReady(nil)

	s = w.follow(ctx, s)
	w.setReady(errors.New("the worker is stopping"))
	s.end(ctx)
	w.ending.Wait()
	die()
	beside.Wait()
	return nil
}
