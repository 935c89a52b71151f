package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
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
