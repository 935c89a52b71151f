package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/refreshed"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// routes looks up the partition of a job: the queue of its kind, and in it the partition of its tenant.
// What it reads of Redis is at most routesAge old; a refusal is based on what it read since a time that the caller
// gives, so that all refusals of a batch share their reads.
type routes struct {
	redis     redis.UniversalClient
	published bool // only queues with published limits

	kinds refreshed.Value[map[string]string] // queues by kind
	names refreshed.Value[[]string]          // of all queues

	mu      sync.Mutex
	layouts map[string]partition.Layout          // by queue, as they were last read
	listed  map[string]*refreshed.Value[listing] // by partition
}

// listing is what the limits of a queue say, as they are in one of its partitions.
type listing struct {
	found bool     // it has limits
	kinds []string // empty: it takes any

	maxRetention time.Duration // 0: no bound
	durability   limits.Durability
	layout       partition.Layout
	sum          string // [partition.Layout.Sum] of layout
}

const (
	routesAge = 5 * time.Second
	maxListed = 1000 // queues and partitions that are remembered
)

func newRoutes(client redis.UniversalClient) *routes {
	r := &routes{redis: client, layouts: map[string]partition.Layout{}, listed: map[string]*refreshed.Value[listing]{}}
	r.kinds.Read = func(ctx context.Context) (map[string]string, error) {
		return client.HGetAll(ctx, store.RoutesKey).Result()
	}
	r.names.Read = func(ctx context.Context) ([]string, error) { return store.Queues(ctx, client) }
	return r
}

// homeOf returns the partition of a job: that of its tenant in the queue that the job names, unless the
// limits of that list other kinds or allow only a shorter retention, or in that of its kind. Of a tenant that
// moves it returns the partition that it leaves, and if the number of tries is odd the other one. A job is refused
// by what Redis held at a time not before since. Errors: [validation.Error], with [ErrUnknownQueue] as its cause if
// the queue must have limits and has none.
func (r *routes) homeOf(ctx context.Context, job Job, since time.Time, try int) (string, error) {
	queue := job.Queue
	if queue == "" {
		var err error
		if queue, err = r.route(ctx, job.Kind, since); err != nil {
			return queue, err
		}
	}
	if !check.QueuePattern.MatchString(queue) {
		if _, _, ok := partition.Split(queue); ok {
			return "", validation.Field("queue", check.Quote(queue)+" is a partition, which the tenant decides: name the queue")
		}
		return queue, nil // reported with the other mistakes of the job
	}
	if err := r.mustBeListed(ctx, queue, job.Kind, since); err != nil {
		return "", err
	}
	var list listing
	tooLong := false
	for _, fresh := range []bool{false, true} {
		var err error
		if list, err = r.listing(ctx, queue, job.Tenant, ageOf(fresh, since), fresh); err != nil {
			return "", &lookupError{job.Kind, err}
		}
		ok := (list.found || !r.published) && (len(list.kinds) == 0 || slices.Contains(list.kinds, job.Kind))
		if tooLong = ok && list.maxRetention > 0 && job.Retention > list.maxRetention; ok && !tooLong {
			return oneOf(list.layout.Homes(job.Tenant), try), nil
		}
	}
	if tooLong {
		return "", validation.Field("retention", fmt.Sprintf("%v is more than queue %s allows, %v", job.Retention, check.Quote(queue), list.maxRetention))
	}
	if !list.found {
		return "", r.unknown(ctx, queue, job.Kind)
	}
	home, err := r.route(ctx, job.Kind, since)
	if err != nil {
		return "", err
	}
	return "", validation.Field("queue", fmt.Sprintf("%s is not for kind %s, whose queue is %s", check.Quote(queue), check.Quote(job.Kind), check.Quote(home)))
}

// mustBeListed refuses a queue that is not listed, if it must have limits: a request that makes up names must not
// have each of them looked up.
func (r *routes) mustBeListed(ctx context.Context, queue, kind string, since time.Time) error {
	if !r.published {
		return nil
	}
	for _, fresh := range []bool{false, true} {
		names, err := r.names.Get(ctx, ageOf(fresh, since), fresh)
		if err != nil {
			return &lookupError{kind, err}
		}
		if _, found := slices.BinarySearch(names, queue); found {
			return nil
		}
	}
	return r.unknown(ctx, queue, kind)
}

func (r *routes) unknown(ctx context.Context, queue, kind string) error {
	names, err := r.names.Get(ctx, routesAge, false)
	if err != nil {
		return &lookupError{kind, err}
	}
	reason := "no limits were published for " + check.Quote(queue) + check.Suggest(queue, names)
	if len(names) == 0 {
		reason += " or any other queue: start a worker with a limits file, or publish one with enqueue limits apply FILE"
	}
	return &validation.Error{Field: "queue", Reason: reason, Cause: ErrUnknownQueue}
}

// route returns the queue of a kind.
func (r *routes) route(ctx context.Context, kind string, since time.Time) (string, error) {
	var known map[string]string
	for _, fresh := range []bool{false, true} {
		var err error
		if known, err = r.kinds.Get(ctx, ageOf(fresh, since), fresh); err != nil {
			return "", &lookupError{kind, err}
		}
		if queue, ok := known[kind]; ok {
			return queue, nil
		}
	}
	if len(known) == 0 {
		return kind, nil
	}
	like := cmp.Or(check.Suggest(kind, slices.Sorted(maps.Keys(known))), ": add it to the kinds of a queue in the limits file")
	return "", validation.Field("kind", "no queue serves "+check.Quote(kind)+like)
}

// lastHome returns the partition of a job, as far as it is known without a read.
func (r *routes) lastHome(job Job) string {
	queue := cmp.Or(job.Queue, job.Kind)
	r.mu.Lock()
	defer r.mu.Unlock()
	if layout, known := r.layouts[queue]; known {
		return layout.Home(job.Tenant)
	}
	return queue
}

func oneOf(homes []string, try int) string { return homes[try%len(homes)] }

// homeIn returns the partition of a tenant in a queue, as homeOf does.
func (r *routes) homeIn(ctx context.Context, queue, tenant string, try int) (string, error) {
	list, err := r.listing(ctx, queue, tenant, routesAge, false)
	if err != nil {
		return "", err
	}
	return oneOf(list.layout.Homes(tenant), try), nil
}

func ageOf(fresh bool, since time.Time) time.Duration {
	if fresh {
		return time.Since(since)
	}
	return routesAge
}

// listing returns what the limits of a queue say. It reads the partition of the tenant, so that other
// partitions do not matter to it, or the first one while the partitions are not known.
func (r *routes) listing(ctx context.Context, queue, tenant string, age time.Duration, fresh bool) (listing, error) {
	r.mu.Lock()
	layout, known := r.layouts[queue]
	r.mu.Unlock()
	if known {
		list, err := r.in(layout.Home(tenant)).Get(ctx, age, fresh)
		if err != nil || list.layout.Equal(layout) {
			return list, err
		}
	}
	list, err := r.in(queue).Get(ctx, age, fresh)
	if err != nil {
		return list, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.layouts) >= maxListed {
		clear(r.layouts)
	}
	r.layouts[queue] = list.layout
	return list, nil
}

// forget makes the next job of a partition's queue read its partitions again.
func (r *routes) forget(home string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue := partition.QueueOf(home)
	delete(r.layouts, queue)
	maps.DeleteFunc(r.listed, func(name string, _ *refreshed.Value[listing]) bool { return partition.QueueOf(name) == queue })
}

// find returns the partition of a job; that of any if there is no such job.
func (r *routes) find(ctx context.Context, queue, id string) (string, error) {
	list, err := r.listing(ctx, queue, "", routesAge, false)
	if err != nil || list.layout.Whole() {
		return queue, err
	}
	home, _, err := store.FindJob(ctx, r.redis, list.layout, id)
	return cmp.Or(home, queue), err
}

// in returns the listing in a partition.
func (r *routes) in(home string) *refreshed.Value[listing] {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.listed[home]
	if list == nil {
		if len(r.listed) >= maxListed {
			clear(r.listed)
		}
		list = &refreshed.Value[listing]{Read: func(ctx context.Context) (listing, error) { return readListing(ctx, r.redis, home) }}
		r.listed[home] = list
	}
	return list
}

func readListing(ctx context.Context, client redis.UniversalClient, home string) (listing, error) {
	text, err := store.StoredLimits(ctx, client, home)
	if err != nil {
		return listing{}, err
	}
	var stored struct {
		Kinds        []string `json:"kinds"`
		MaxRetention int64    `json:"max_retention"`

		Durability limits.Durability `json:"durability"`
	}
	_ = json.Unmarshal([]byte(text[0]), &stored) // scripts report damaged limits
	layout, err := store.LayoutOf(partition.QueueOf(home), text[0], text[1])
	return listing{
		text[0] != "", stored.Kinds, time.Duration(stored.MaxRetention) * time.Second, cmp.Or(stored.Durability, limits.Primary), layout, layout.Sum(),
	}, err
}

// locate sets what the limits of a job's partition say of it: when it is accepted, and by which layout it is there.
// The error is [errNoPartition] if it is not. After homeOf it costs no command.
func (r *routes) locate(ctx context.Context, job Job, a *accepted) error {
	list, err := r.in(a.home).Get(ctx, routesAge, false)
	if err != nil {
		return &lookupError{job.Kind, err}
	}
	homes := list.layout.Homes(job.Tenant)
	side := slices.Index(homes, a.home)
	if side < 0 {
		r.forget(a.home)
		return fmt.Errorf("enqueue in %q: %w", a.queue(), errNoPartition)
	}
	a.durability, a.layout = list.durability, list.sum
	if len(homes) > 1 {
		a.layout += []string{store.Leaves, store.Arrives}[side]
	}
	return nil
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
