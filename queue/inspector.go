package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Inspector answers what goes on in queues: why a job waits and when it goes,
// what waits of whom, what became of a job. It writes nothing. [NewInspector]
// makes it.
//
// What it forecasts by, which is the state of all lanes, is read at most once a
// second for each queue, and shared by all who ask within that second; where
// reading takes more than 20 ms it is kept fifty times as long, up to 10 s, so that
// reading never takes more than a fiftieth of the time. Pauses, overrides and
// limits that changed are seen at once, and the job that is asked about is looked
// at anew each time. Nothing is read while nobody asks.
type Inspector struct {
	redis   redis.UniversalClient
	serving serving

	mu     sync.Mutex
	queues map[string]*watched
}

// NewInspector makes an Inspector on the given Redis, which stays the caller's to
// close. It is safe for concurrent use; programs want one, for readings are shared
// within it.
func NewInspector(client redis.UniversalClient) *Inspector {
	return &Inspector{redis: client, serving: serving{turn: make(chan struct{}, 1)}, queues: map[string]*watched{}}
}

const (
	readingAge  = time.Second      // for which a reading is shared, at least,
	longestAge  = 10 * time.Second // and at most
	readingPart = 50               // of the time that reading takes

	// mostWatched is of how many queues readings are kept; one that does not exist
	// can be asked about, too.
	mostWatched = 100
)

// watched is what is kept of one queue.
type watched struct {
	turn  chan struct{} // holds one value: who takes it may read, and use the rest
	last  *forecast
	until time.Time // for which last is shared

	scan     tenantScan
	failures failures
}

// watch is what is kept of a queue.
func (in *Inspector) watch(queue string) *watched {
	in.mu.Lock()
	defer in.mu.Unlock()
	if known := in.queues[queue]; known != nil {
		return known
	}
	if len(in.queues) >= mostWatched {
		clear(in.queues)
	}
	turn := func() chan struct{} { return make(chan struct{}, 1) }
	w := &watched{turn: turn(), scan: tenantScan{turn: turn()}, failures: failures{turn: turn()}}
	in.queues[queue] = w
	return w
}

// take waits for a turn, which is given back by the answer.
func take(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
	done, err := take(ctx, w.turn)
	if err != nil {
		return nil, err
	}
	defer done()
	now := time.Now()
	if w.last != nil && now.Before(w.until) {
		if w.last != stale {
			return w.last.copy(), nil
		}
		changed, err := w.last.onlyPauses(ctx, in.redis)
		if err != nil {
			return nil, err
		}
		if changed != nil {
			w.last = changed
			return changed.copy(), nil
		}
	}
	f, err := readForecast(ctx, in.redis, queue)
	if err != nil {
		return nil, err
	}
	if f.kinds, err = in.kindsServed(ctx, queue); err != nil {
		return nil, err
	}
	w.last, w.until = f, now.Add(sharedFor(time.Since(now)))
	fresh := f.copy()
	fresh.fresh = true
	return fresh, nil
}

// sharedFor is how long something is shared that took so long to read.
func sharedFor(took time.Duration) time.Duration {
	return min(max(readingAge, readingPart*took), longestAge)
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
	pauses := pipe.HScan(ctx, key(f.queue, "pauses"), 0, "", mostKeys)
	if err := execute(ctx, pipe); err != nil {
		return nil, err
	}
	of := versionOf(version.Val())
	if of.limits != f.version.limits {
		return nil, nil
	}
	now := *f
	now.version, now.run = of, &modelRun{}
	var err error
	now.pauses, err = restOf(ctx, client, key(f.queue, "pauses"), pauses)
	return &now, err
}

// version is what changes with what operators and providers change.
type version struct{ pauses, limits string }

// readVersion has to come before what it is the version of.
func readVersion(ctx context.Context, pipe redis.Pipeliner, queue string) *redis.SliceCmd {
	return pipe.HMGet(ctx, key(queue, "totals"), "pauses", "limits")
}

func versionOf(reply []any) version {
	text := texts(reply)
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
		fields, cursor, err = client.HScan(ctx, name, cursor, "", mostKeys).Result()
	}
	return nil, fmt.Errorf("read %s: %w", name, err)
}

// modelRun is what the model makes of all that waits: it is run once for a reading,
// when somebody asks.
type modelRun struct {
	once    sync.Once
	members []*member
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
			m.run(nil)
			// Who shares this run does not know what this question added, and that is
			// empty: lanes with jobs have a run of their own.
			n := len(members)
			for n > 0 && own.lanes[n-1].added && own.lanes[n-1].jobs <= 0 {
				n--
			}
			run.members, run.allowed = members[:n], m.allowed
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
	f.laneAt, f.bucketAt, f.backlog = maps.Clone(f.laneAt), maps.Clone(f.bucketAt), maps.Clone(f.backlog)
	f.limits.tenants = maps.Clone(f.limits.tenants)
	from := len(f.lanes)
	if _, err := f.readLanes(ctx, client, missing); err != nil {
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
