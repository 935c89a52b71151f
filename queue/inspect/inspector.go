// Package inspect tells what goes on in queues: why a job waits and when it goes, what tenants
// have waiting, what became of a job, which limits are in effect. It writes nothing.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
)

// Inspector answers what goes on in queues: why a job waits and when it goes,
// what waits of whom, what became of a job. It writes nothing. [New]
// makes it.
//
// What it forecasts by, which is the state of the lanes, is read at most once a
// second for each queue, and shared by all who ask within that second; where
// reading takes more than 20 ms it is kept fifty times as long, up to 10 s, so that
// reading never takes more than a fiftieth of the time. Of more than 500 lanes the
// next reading is made in the background, and meanwhile all are answered by the last
// one, for up to 10 s after its time. Pauses, overrides and limits that changed are seen at
// once, and the job or tenant that is asked about is looked at anew each time: that is
// the moment of the answer. Nothing is read while nobody asks.
type Inspector struct {
	redis   redis.UniversalClient
	serving renewed[serving]

	mu     sync.Mutex
	queues map[string]*watched
}

// New makes an Inspector on the given Redis, which stays the caller's to
// close. It is safe for concurrent use; programs want one, for readings are shared
// within it.
func New(client redis.UniversalClient) *Inspector {
	return &Inspector{redis: client, serving: newRenewed[serving](), queues: map[string]*watched{}}
}

// maxWatched is of how many queues readings are kept; one that does not exist can be
// asked about, too.
const maxWatched = 100

// watched is what is kept of one queue.
type watched struct {
	forecast renewed[forecast]
	tenants  renewed[tenantList]
	failures failures
}

// watch is what is kept of a queue.
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
	in.queues[queue] = w
	return w
}

// errChanged: limits or pauses were changed since the forecast was read.
var errChanged = errors.New("limits or pauses were changed meanwhile")

// ask answers a question by a copy of the forecast that is its own. One that finds
// that something changed since is asked again by a new one, but not for ever:
// providers may pause tenants all the time.
func (in *Inspector) ask(ctx context.Context, queue string, question func(*forecast) error) error {
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

// forecast is the one that is shared, or a new one where that is too old. One that
// is stale as its user found is read anew.
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
		return in.readForecast(ctx, queue, rest)
	})
	if err != nil {
		return nil, err
	}
	own := f.copy()
	own.fresh = fresh
	return own, nil
}

// readForecast reads a forecast with what workers serve.
func (in *Inspector) readForecast(ctx context.Context, queue string, rest func(time.Duration)) (*forecast, error) {
	f, err := readForecast(ctx, in.redis, queue, rest)
	if err != nil {
		return nil, err
	}
	f.kinds, err = in.kindsServed(ctx, queue)
	return f, err
}

// late is for how long after its time a forecast is used while the next one is read: to
// read many lanes takes a while.
func (f *forecast) late() time.Duration {
	if f == nil || len(f.lanes) <= store.MaxKeys {
		return 0
	}
	return maxAge
}

// copy is a forecast for one question: it shares what was read, and may change
// what questions change.
func (f *forecast) copy() *forecast {
	own := *f
	own.shared, own.hours, own.seen = f, maps.Clone(f.hours), lookedAt{}
	return &own
}

// onlyPauses is the forecast under the pauses of now; nil where more than pauses
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
	now.pauses, err = restOf(ctx, client, store.Key(f.queue, "pauses"), pauses)
	return &now, err
}

// version is what changes with what operators and providers change.
type version struct{ pauses, limits string }

// readVersion has to come before what it is the version of.
func readVersion(ctx context.Context, pipe redis.Pipeliner, queue string) *redis.SliceCmd {
	return pipe.HMGet(ctx, store.Key(queue, "totals"), "pauses", "limits")
}

func versionOf(reply []any) version {
	text := store.Texts(reply)
	return version{text[0], text[1]}
}

// restOf is a hash whose first piece was read.
func restOf(ctx context.Context, client redis.UniversalClient, name string, first *redis.ScanCmd) (map[string]string, error) {
	fields, cursor, err := first.Result()
	all := make(map[string]string, len(fields)/2)
	for err == nil {
		for i := 0; i+1 < len(fields); i += 2 {
			all[fields[i]] = fields[i+1]
		}
		if cursor == 0 {
			return all, nil
		}
		fields, cursor, err = client.HScan(ctx, name, cursor, "", store.MaxKeys).Result()
	}
	return nil, fmt.Errorf("read %s: %w", name, err)
}

// modelRun is what the model makes of all that waits: it is run once for a reading,
// when somebody asks.
type modelRun struct {
	once    sync.Once
	members []*fluid.Member
	allowed float64 // jobs a second that flow
	err     error
}

// all is when all goes that waits, by the members of the lanes that were read.
func (f *forecast) all() (*modelRun, error) {
	run := f.run
	run.once.Do(func() {
		own := f.copy()
		m, members, err := own.model()
		if run.err = err; err == nil {
			m.Run(nil)
			// Who shares this run does not know what this question added, and that is
			// empty: lanes with jobs have a run of their own.
			n := len(members)
			for n > 0 && own.lanes[n-1].added && own.lanes[n-1].jobs <= 0 {
				n--
			}
			run.members, run.allowed = members[:n], m.Allowed
		}
	})
	return run, run.err
}

// with makes a forecast look at these lanes, too, beside those that were drawn.
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
	// What others read is not touched.
	f.lanes, f.buckets, f.texts = slices.Clip(f.lanes), slices.Clip(f.buckets), slices.Clip(f.texts)
	f.laneAt, f.bucketAt = maps.Clone(f.laneAt), maps.Clone(f.bucketAt)
	f.limits.Tenants = maps.Clone(f.limits.Tenants)
	from := len(f.lanes)
	if err := f.readLanes(ctx, client, missing, atOnce); err != nil {
		return err
	}
	for i := range f.lanes[from:] {
		l := &f.lanes[from+i]
		l.added = true
		if l.jobs > 0 {
			f.run = &modelRun{} // an empty one changes nothing
		}
	}
	return nil
}

// Queues lists the queues of a Redis, sorted.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	return store.Queues(ctx, client)
}
