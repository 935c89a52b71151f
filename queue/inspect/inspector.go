// Package inspect shows the state of queues: why a job waits and when it will go, how
// many jobs of which tenants wait, how a job ended, and which limits are in effect. It
// changes nothing.
package inspect

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/refreshed"
	"github.com/headgate/headgate/queue/internal/store"
)

// Inspector answers questions about queues: why a job waits and when it will go, how many
// jobs of which tenants wait, how a job ended. It changes nothing. [New] makes it.
//
// Forecasts are computed from the state of the lanes. An Inspector reads that at most
// once per second for each queue and shares it among all who ask within that second. If
// reading takes more than 20 ms, the result is kept fifty times as long, up to 10 s, so
// that reading takes at most a fiftieth of the time. For more than 500 lanes the next
// reading is made in the background, and meanwhile the last one is used for up to 10 s
// beyond its time. Changes of pauses, overrides and limits are seen at once, what workers
// serve within a second, and the job or tenant in question is read again for each question:
// the time of that is the time of the answer. Nothing is read while nobody asks.
type Inspector struct {
	redis   redis.UniversalClient
	keys    *encryption.Keys
	serving refreshed.Value[serving]

	mu      sync.Mutex
	queues  map[string]*watched                           // by partition
	layouts map[string]*refreshed.Value[partition.Layout] // by queue
}

// New returns an Inspector that uses the given Redis client, which the caller has to
// close. It is safe for concurrent use. A program should have only one, because readings
// are shared within it.
func New(client redis.UniversalClient) *Inspector {
	return &Inspector{
		redis: client, queues: map[string]*watched{}, layouts: map[string]*refreshed.Value[partition.Layout]{},
		serving: refreshed.Value[serving]{Read: func(ctx context.Context) (serving, error) { return readServing(ctx, client) }},
	}
}

// Decrypt makes the Inspector decrypt payloads and results; see [queue.Client.Encrypt]. It must be called
// before the Inspector is used.
func (in *Inspector) Decrypt(keys *encryption.Keys) *Inspector {
	in.keys = keys
	return in
}

// maxWatched is for how many partitions of queues readings are kept. Callers can also ask about
// queues that do not exist.
const maxWatched = 1000

// watched is what an Inspector keeps about one partition of a queue.
type watched struct {
	forecast renewed[forecast]
	tenants  renewed[tenantList]
	failures failures
	totals   refreshed.Value[Totals]
}

// watch returns what is kept about a partition.
func (in *Inspector) watch(queue string) *watched {
	in.mu.Lock()
	defer in.mu.Unlock()
	if known := in.queues[queue]; known != nil {
		return known
	}
	if len(in.queues) >= maxWatched {
		clear(in.queues)
	}
	w := &watched{forecast: newRenewed[forecast](), tenants: newRenewed[tenantList](), failures: failures{turn: make(chan struct{}, 1)}}
	w.totals.Read = func(ctx context.Context) (Totals, error) { return totalsIn(ctx, in.redis, queue) }
	in.queues[queue] = w
	return w
}

// errChanged reports that limits or pauses were changed since the forecast was read.
var errChanged = errors.New("limits or pauses were changed meanwhile")

// ask calls question with a copy of the forecast of a partition. If the question finds that something
// has changed since, ask calls it again with a new forecast, but at most three times in
// all: providers may pause tenants all the time.
func (in *Inspector) ask(ctx context.Context, queue string, question func(*forecast) error) error {
	return store.Patient(ctx, func() error { return in.askNow(ctx, queue, question) })
}

// askHome calls question with a copy of the forecast of a tenant's partition, as ask does.
func (in *Inspector) askHome(ctx context.Context, queue, tenant string, question func(*forecast) error) error {
	home, err := in.home(ctx, queue, tenant)
	if err != nil {
		return err
	}
	return in.ask(ctx, home, question)
}

func (in *Inspector) askNow(ctx context.Context, queue string, question func(*forecast) error) error {
	w := in.watch(queue)
	var stale *forecast
	for try := 1; ; try++ {
		f, err := in.forecast(ctx, w, queue, stale)
		if err != nil {
			return err
		}
		f.final = try == 3
		if err = question(f); !errors.Is(err, errChanged) || f.final {
			return err
		}
		stale = f.shared
	}
}

// forecast returns a copy of the shared forecast, or of a new one if that is too old. If
// stale is the shared forecast, its caller found that something has changed, and it is
// read again.
func (in *Inspector) forecast(ctx context.Context, w *watched, queue string, stale *forecast) (*forecast, error) {
	r := &w.forecast
	done, err := take(ctx, r.turn)
	if err != nil {
		return nil, err
	}
	defer done()
	if stale != nil && r.last == stale {
		changed, err := stale.onlyPauses(ctx, in.redis)
		if err != nil {
			return nil, err
		}
		r.last = changed // nil: more than pauses changed
	}
	f, fresh, err := r.get(ctx, r.last.late(), func(ctx context.Context, rest func(time.Duration)) (*forecast, error) {
		return readForecast(ctx, in.redis, queue, rest)
	})
	if err != nil {
		return nil, err
	}
	served, err := in.handlers(ctx, queue)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(served, f.served) {
		changed := *f
		changed.served, changed.run = served, &modelRun{}
		f, r.last = &changed, &changed
	}
	own := f.copy()
	own.fresh = fresh
	return own, nil
}

// late returns for how long after its time a forecast is used while the next one is read,
// because reading many lanes takes a while.
func (f *forecast) late() time.Duration {
	if f == nil || len(f.lanes) <= store.MaxKeys {
		return 0
	}
	return maxAge
}

// copy returns a forecast for one question. It shares what was read, and the question may
// change the rest.
func (f *forecast) copy() *forecast {
	own := *f
	own.shared, own.hours, own.seen = f, maps.Clone(f.hours), lookedAt{}
	return &own
}

// onlyPauses returns the forecast with the current pauses; nil if more than pauses
// changed.
func (f *forecast) onlyPauses(ctx context.Context, client redis.UniversalClient) (*forecast, error) {
	pipe := client.Pipeline()
	version := readVersion(ctx, pipe, f.queue)
	pauses := pipe.HScan(ctx, store.Key(f.queue, "pauses"), 0, "", store.MaxKeys)
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	of := versionOf(version.Val())
	if of.limits != f.version.limits {
		return nil, nil
	}
	now := *f
	now.version, now.run = of, &modelRun{}
	var err error
	now.pauses, err = store.RestOfHash(ctx, client, store.Key(f.queue, "pauses"), pauses)
	return &now, err
}

// version changes when operators or providers change pauses or limits.
type version struct{ pauses, limits string }

// readVersion reads the version. It must come before the reads of what it is the version
// of.
func readVersion(ctx context.Context, pipe redis.Pipeliner, queue string) *redis.SliceCmd {
	return pipe.HMGet(ctx, store.Key(queue, "totals"), "pauses", "limits")
}

func versionOf(reply []any) version {
	text := store.Texts(reply)
	return version{text[0], text[1]}
}

// modelRun is the result of the model for all waiting jobs. The model runs once for a
// reading, when it is first needed.
type modelRun struct {
	once    sync.Once
	members []*fluid.Member
	allowed float64 // jobs per second that flow
	err     error
}

// all returns when all waiting jobs go, by the members of the lanes that were read.
func (f *forecast) all() (*modelRun, error) {
	run := f.run
	run.once.Do(func() {
		own := f.copy()
		m, members, err := own.model()
		if run.err = err; err == nil {
			m.Run(nil)
			// Other users of this run do not have the lanes that this question added.
			// These are empty: with added lanes that hold jobs, the run is not shared.
			n := len(members)
			for n > 0 && own.lanes[n-1].added && own.lanes[n-1].jobs <= 0 {
				n--
			}
			run.members, run.allowed = members[:n], m.Allowed
		}
	})
	return run, run.err
}

// with adds these lanes to a forecast, unless they were read already.
func (f *forecast) with(ctx context.Context, client redis.UniversalClient, names ...string) error {
	var missing []string
	for _, name := range names {
		if f.indexOf(name) < 0 && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// What is shared with others is not changed.
	f.lanes, f.buckets, f.texts = slices.Clip(f.lanes), slices.Clip(f.buckets), slices.Clip(f.texts)
	f.laneAt, f.bucketAt, f.beside = maps.Clone(f.laneAt), maps.Clone(f.bucketAt), maps.Clone(f.beside)
	f.limits.Tenants = maps.Clone(f.limits.Tenants)
	from := len(f.lanes)
	if err := f.readLanes(ctx, client, missing, atOnce); err != nil {
		return err
	}
	for i := range f.lanes[from:] {
		l := &f.lanes[from+i]
		l.added = true
		if l.jobs > 0 {
			f.run = &modelRun{} // an empty lane changes nothing
		}
	}
	return nil
}

// Queues returns the queues of a Redis, sorted.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	return store.Queues(ctx, client)
}
