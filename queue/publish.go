package queue

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// routesKey maps each kind to its queue.
const routesKey = "headgate:routes"

// Publish puts limits in force for all workers and clients of a Redis, at once
// for each queue; what its buckets have used is kept. Overrides stay, and are
// computed anew from what is published. One that does not fit its limit any more is
// not in force until it fits again: see [Overrides]. Queues that limits no longer name keep theirs. The limits are checked first: an
// error of [Limits.Validate] leaves everything as it was.
func Publish(ctx context.Context, client redis.UniversalClient, limits Limits) error {
	if err := limits.Validate(); err != nil {
		return err
	}
	routes := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(limits.Queues)) {
		q := limits.Queues[name]
		for _, kind := range q.Kinds {
			routes[kind] = name
		}
		if err := publishQueue(ctx, client, name, q, limits.storedTenants(name)); err != nil {
			return fmt.Errorf("publish the limits of queue %q: %w", name, err)
		}
		if err := asynqwire.RegisterQueues(ctx, client, name); err != nil {
			return err
		}
	}
	if len(routes) > 0 {
		if err := client.HSet(ctx, routesKey, routes).Err(); err != nil {
			return fmt.Errorf("publish the queues of kinds: %w", err)
		}
	}
	return nil
}

// publishQueue writes beside what is in force and then renames, so that no
// script ever sees half of it.
func publishQueue(ctx context.Context, client redis.UniversalClient, queue string, q QueueLimits, tenants map[string]storedTenant) error {
	stored := storedQueue{
		Limits: []storedLimit{}, Attributes: q.attributes(), MaxBacklog: q.MaxBacklog, MaxQueue: q.MaxQueue, Kinds: q.Kinds,
		SendWindows: map[string]string{},
	}
	windows := map[string]bool{}
	for kind, window := range q.SendWindows {
		stored.SendWindows[kind] = window.String()
		windows[window.String()] = true
	}
	for _, tenant := range tenants {
		windows[tenant.Window] = true
	}
	delete(windows, "") // always open
	stored.Windows = slices.Sorted(maps.Keys(windows))
	// Empty lists, not null, for the scripts.
	if stored.Attributes == nil {
		stored.Attributes = []string{}
	}
	if stored.Kinds == nil {
		stored.Kinds = []string{}
	}
	for _, limit := range q.Limits {
		stored.Limits = append(stored.Limits, limit.stored())
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	// A name of its own: workers that start together publish together.
	next := store.Key(queue, "limits:"+rand.Text())
	fields := map[string]string{"*": string(text)}
	for tenant, own := range tenants {
		text, err := json.Marshal(own)
		if err != nil {
			return err
		}
		fields["t:"+throttle.Escape(tenant)] = string(text)
	}
	if err := writeBeside(ctx, client, next, fields); err != nil {
		return err
	}
	return putInForce(ctx, client, queue, next)
}

// published reads the limits in force for a queue; none is no error.
func published(ctx context.Context, client redis.UniversalClient, queue string) (QueueLimits, error) {
	stored, err := readStored(ctx, client, queue)
	if err != nil {
		return QueueLimits{}, err
	}
	q, err := stored.limits()
	if err != nil {
		return QueueLimits{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
	}
	return q, nil
}

func readStored(ctx context.Context, client redis.UniversalClient, queue string) (storedQueue, error) {
	return storedOf(queue, client.HGet(ctx, store.Key(queue, "limits"), "*"))
}

func storedOf(queue string, reply *redis.StringCmd) (storedQueue, error) {
	text, err := reply.Bytes()
	if errors.Is(err, redis.Nil) {
		return storedQueue{Attributes: QueueLimits{}.attributes()}, nil
	}
	if err != nil {
		return storedQueue{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
	}
	var stored storedQueue
	if err := json.Unmarshal(text, &stored); err != nil {
		return storedQueue{}, fmt.Errorf("read the limits of queue %q: %w: %w", queue, errUnreadable, err)
	}
	return stored, nil
}

var errUnreadable = errors.New("what Redis holds cannot be understood; publish the limits again")

// limits is the way back from the stored form.
func (s storedQueue) limits() (QueueLimits, error) {
	q := QueueLimits{Kinds: s.Kinds, MaxBacklog: s.MaxBacklog, MaxQueue: s.MaxQueue}
	for _, stored := range s.Limits {
		limit, err := stored.limit()
		if err != nil {
			return QueueLimits{}, err
		}
		q.Limits = append(q.Limits, limit)
	}
	for kind, text := range s.SendWindows {
		window, err := sendwindow.Parse(text)
		if err != nil {
			return QueueLimits{}, err
		}
		if q.SendWindows == nil {
			q.SendWindows = map[string]sendwindow.Window{}
		}
		q.SendWindows[kind] = window
	}
	return q, nil
}

// windowsAhead is how much of a send window the scripts are told: more than a
// week, after which it comes again.
const windowsAhead = 9 * 24 * time.Hour

// calendars is the windows of a queue's calendar limits around now, and its send
// windows from now on, as JSON for the scripts; "" when it has none.
func (s storedQueue) calendars(now time.Time) (string, error) {
	q, err := s.limits()
	if err != nil {
		return "", err
	}
	windows := map[string][]int64{}
	for _, limit := range q.Limits {
		if limit.Location != nil {
			windows[limit.Name] = limit.Windows(now, 2)
		}
	}
	for _, text := range s.Windows {
		window, err := sendwindow.Parse(text)
		if err != nil {
			return "", err
		}
		windows["w:"+text] = window.Openings(now, now.Add(windowsAhead))
	}
	if len(windows) == 0 {
		return "", nil
	}
	text, err := json.Marshal(windows)
	return string(text), err
}

// routes knows which queue serves a kind. It asks Redis again every few
// seconds, and for a kind that it does not know.
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
		known, err := r.redis.HGetAll(ctx, routesKey).Result()
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

// lookupError reports that Redis did not say which queue serves a kind.
type lookupError struct {
	kind string
	err  error
}

func (e *lookupError) Error() string {
	return fmt.Sprintf("look up the queue of kind %s: %v", check.Quote(e.kind), e.err)
}

func (e *lookupError) Unwrap() error { return e.err }
