package queue

import (
	"context"
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
	"github.com/headgate/headgate/queue/validation"
)

// routes looks up the queue that serves a kind. It reads all routes from Redis again after
// routesAge, or for a kind that it does not know.
type routes struct {
	redis redis.UniversalClient

	mu    sync.Mutex
	known map[string]string
	asked time.Time
}

const routesAge = 5 * time.Second

func (r *routes) queueOf(ctx context.Context, job Job) (string, error) {
	if job.Queue != "" {
		return job.Queue, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	queue, ok := r.known[job.Kind]
	if age := time.Since(r.asked); age > routesAge || (!ok && age > 100*time.Millisecond) {
		known, err := r.redis.HGetAll(ctx, store.RoutesKey).Result()
		if err != nil {
			return "", &lookupError{job.Kind, err}
		}
		r.known, r.asked = known, time.Now()
		queue, ok = known[job.Kind]
	}
	if ok {
		return queue, nil
	}
	if len(r.known) == 0 {
		return job.Kind, nil
	}
	return "", validation.Field("kind", fmt.Sprintf("no queue serves %s%s", check.Quote(job.Kind), check.Suggest(job.Kind, slices.Sorted(maps.Keys(r.known)))))
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
