package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// routes looks up the queue that serves a kind, and what the limits of a queue list. It reads them
// from Redis again after routesAge, and before it refuses a job.
type routes struct {
	redis     redis.UniversalClient
	published bool // only queues with published limits

	mu     sync.Mutex
	known  map[string]string // queues by kind
	asked  time.Time
	queues map[string]listing
}

// listing is what the limits of a queue say of kinds.
type listing struct {
	read  time.Time
	found bool     // it has limits
	kinds []string // empty: it takes any

	maxRetention time.Duration // 0: no bound
	durability   limits.Durability
}

const (
	routesAge  = 5 * time.Second
	refusalAge = 100 * time.Millisecond // of what a refusal is based on
	maxListed  = 1000                   // queues that are remembered
)

// queueOf returns the queue of a job: the one it names, unless the limits of that list other kinds or
// allow only a shorter retention, or that of its kind. Errors: [validation.Error], with [ErrUnknownQueue] as its cause if the
// queue must have limits and has none.
func (r *routes) queueOf(ctx context.Context, job Job) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue := job.Queue
	if queue == "" {
		var err error
		if queue, err = r.route(ctx, job.Kind); err != nil {
			return queue, err
		}
	}
	if !check.QueuePattern.MatchString(queue) {
		return queue, nil // which is told with the other mistakes of the job
	}
	var list listing
	tooLong := false
	for _, age := range []time.Duration{routesAge, refusalAge} {
		var err error
		if list, err = r.listing(ctx, job.Kind, queue, age); err != nil {
			return "", err
		}
		ok := (list.found || !r.published) && (len(list.kinds) == 0 || slices.Contains(list.kinds, job.Kind))
		if tooLong = ok && list.maxRetention > 0 && job.Retention > list.maxRetention; ok && !tooLong {
			return queue, nil
		}
	}
	if tooLong {
		return "", validation.Field("retention", fmt.Sprintf("%v is more than queue %s allows, %v", job.Retention, check.Quote(queue), list.maxRetention))
	}
	if !list.found {
		names, err := store.Queues(ctx, r.redis)
		if err != nil {
			return "", &lookupError{job.Kind, err}
		}
		reason := "no limits were published for " + check.Quote(queue) + check.Suggest(queue, names)
		if len(names) == 0 {
			reason += " or any other queue: start a worker with a limits file, or publish one with enqueue limits apply FILE"
		}
		return "", &validation.Error{Field: "queue", Reason: reason, Cause: ErrUnknownQueue}
	}
	home, err := r.route(ctx, job.Kind)
	if err != nil {
		return "", err
	}
	return "", validation.Field("queue", fmt.Sprintf("%s is not for kind %s, whose queue is %s", check.Quote(queue), check.Quote(job.Kind), check.Quote(home)))
}

// route returns the queue of a kind.
func (r *routes) route(ctx context.Context, kind string) (string, error) {
	queue, ok := r.known[kind]
	if age := time.Since(r.asked); age > routesAge || !ok && age > refusalAge {
		known, err := r.redis.HGetAll(ctx, store.RoutesKey).Result()
		if err != nil {
			return "", &lookupError{kind, err}
		}
		r.known, r.asked = known, time.Now()
		queue, ok = known[kind]
	}
	if ok {
		return queue, nil
	}
	if len(r.known) == 0 {
		return kind, nil
	}
	like := check.Suggest(kind, slices.Sorted(maps.Keys(r.known)))
	if like == "" {
		like = ": add it to the kinds of a queue in the limits file"
	}
	return "", validation.Field("kind", "no queue serves "+check.Quote(kind)+like)
}

// listing returns what the limits of a queue say of kinds, read at most age ago.
func (r *routes) listing(ctx context.Context, kind, queue string, age time.Duration) (listing, error) {
	if list, ok := r.queues[queue]; ok && time.Since(list.read) < age {
		return list, nil
	}
	text, err := r.redis.HGet(ctx, store.Key(queue, "limits"), "*").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return listing{}, &lookupError{kind, err}
	}
	var stored struct {
		Kinds        []string `json:"kinds"`
		MaxRetention int64    `json:"max_retention"`

		Durability limits.Durability `json:"durability"`
	}
	_ = json.Unmarshal([]byte(text), &stored) // damaged limits are told by the scripts
	if len(r.queues) >= maxListed {
		clear(r.queues)
	}
	list := listing{time.Now(), err == nil, stored.Kinds, time.Duration(stored.MaxRetention) * time.Second,
		cmp.Or(stored.Durability, limits.Primary)}
	r.queues[queue] = list
	return list, nil
}

// durability returns when a job of a queue is accepted. After queueOf it costs no command.
func (r *routes) durability(ctx context.Context, kind, queue string) (limits.Durability, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := r.listing(ctx, kind, queue, routesAge)
	return list.durability, err
}

// lookupError reports that the queue of a kind could not be read from Redis.
type lookupError struct {
	kind string
	err  error
}

func (e *lookupError) Error() string {
	return fmt.Sprintf("look up the queue of kind %s: %v", check.Quote(e.kind), e.err)
}

func (e *lookupError) Unwrap() error { return e.err }

// kindLog warns of kinds of a queue that have no handler in this worker. Their jobs wait for
// a worker with a handler, which is easily mistaken for a limit.
type kindLog struct {
	handlers map[string]*handler
	logger   *slog.Logger
	known    []string // the kinds of the last look
}

// look takes the kinds in the queue's published limits, and warns once after each change of
// them.
func (l *kindLog) look(queue string, kinds []string) {
	if slices.Equal(kinds, l.known) {
		return
	}
	l.known = kinds
	var missing []string
	for _, kind := range kinds {
		if l.handlers[kind] == nil {
			missing = append(missing, kind)
		}
	}
	switch len(missing) {
	case 0:
	case len(kinds):
		l.logger.Warn("this worker has no handler for any of a queue's kinds", logkey.Queue, queue, "kinds", missing)
	default:
		l.logger.Warn("this worker has no handler for some of a queue's kinds", logkey.Queue, queue, "kinds", missing)
	}
}
