package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

const (
	lookTimes  = 4                // readings of finished jobs per second
	seldom     = 10 * time.Second // between readings of the allowed rates while no stream is open
	maxStreams = 100
	maxBehind  = 16  // messages buffered for a slow client
	maxEvents  = 20  // in one message; the newest
	readEvents = 500 // at once
	readAudit  = 20
)

// seen is a reading of all queues: the events for streams, before they are limited to what each
// may see.
type seen struct {
	overviews []inspect.Overview // nil: not read
	err       error              // of Redis: overviews has the previous reading
	ended     []newSeconds       // completed seconds
	events    []inspect.Event
	audit     []operate.AuditEntry
}

// watch reads the queues once a second for all streams. While no stream is open, it reads only
// what the history needs: the totals of the queues and, less often because it is expensive, the
// rates that their limits allow.
type watch struct {
	api     *API
	history *history
	wake    chan struct{} // a stream was opened

	mu      sync.Mutex
	streams map[*stream]struct{}
	ended   bool

	// Used only by the goroutine of run.
	names   []string
	last    []inspect.Overview
	events  map[string]string    // id of the newest event sent, by queue
	audited map[string]time.Time // time of the newest entry sent, by queue
	allowed map[string]float64   // jobs per second that limits allow, by queue
	modeled time.Time            // when allowed was read
}

// stream is an open stream of events.
type stream struct {
	news chan seen // closed when it ends
	slow bool      // closed because the client did not keep up
}

func newWatch(a *API) *watch {
	return &watch{
		api: a, history: &history{}, wake: make(chan struct{}, 1), streams: map[*stream]struct{}{},
		events: map[string]string{}, audited: map[string]time.Time{},
	}
}

// add opens a stream. It returns nil if too many are open or the server is shutting down.
func (w *watch) add() *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	s := &stream{news: make(chan seen, maxBehind)}
	w.streams[s] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return s
}

func (w *watch) remove(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, s)
}

func (w *watch) watched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.streams) > 0
}

// tell sends news to all streams. It closes a stream whose buffer is full; the client then
// reconnects.
func (w *watch) tell(news seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.streams {
		select {
		case s.news <- news:
		default:
			s.slow = true
			close(s.news)
			delete(w.streams, s)
		}
	}
}

// run reads the queues until ctx is done, and then closes all streams.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery / lookTimes)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%lookTimes == 0 {
			w.lookAtAll(ctx)
		} else if w.watched() {
			w.lookAtEvents(ctx)
		}
		select {
		case <-ctx.Done():
			w.end()
			return
		case <-tick.C:
		case <-w.wake:
			n = -1 // read the overviews at once
		}
	}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for s := range w.streams {
		close(s.news)
	}
	clear(w.streams)
}

// lookAtAll reads all queues, once a second. If Redis fails, it sends the previous reading with
// the error.
func (w *watch) lookAtAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	watched := w.watched()
	news := seen{}
	defer w.silence(ctx)()
	totals, err := w.totals(ctx)
	if err == nil {
		if watched || time.Since(w.modeled) >= seldom {
			news.overviews, err = w.overviews(ctx)
		}
		news.ended = w.history.add(totals, w.allowed)
	}
	if err == nil && watched {
		news.audit = w.newAudit(ctx)
	}
	if !watched || ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err != nil {
		news = w.before(err)
	} else {
		w.last = news.overviews
	}
	w.tell(news)
}

// overviews reads all queues at once. Of one that does not answer, as one whose node of a Redis
// Cluster is away, it returns the previous reading. The error is that of all, if none answers.
func (w *watch) overviews(ctx context.Context) ([]inspect.Overview, error) {
	all, allowed := []inspect.Overview{}, map[string]float64{}
	w.allowed, w.modeled = nil, time.Now()
	read, errs := fanout.Ask(ctx, queuePatience, w.names, w.api.inspector.Overview)
	answered := len(w.names) == 0
	for i, name := range w.names {
		if errs[i] == nil {
			all, allowed[name], answered = append(all, read[i]), read[i].Allowed, true
			continue
		}
		before := slices.IndexFunc(w.last, func(o inspect.Overview) bool { return o.Queue == name })
		if before >= 0 && !errors.Is(errs[i], validation.ErrNotFound) {
			o := w.last[before]
			o.Unserved = []inspect.Unserved{{Queue: name, Away: 1, Of: 1}}
			all = append(all, o)
		}
	}
	if !answered {
		return nil, errs[0]
	}
	w.allowed = allowed
	return all, nil
}

// before returns the previous reading with the error that prevented a newer one.
func (w *watch) before(err error) seen {
	news := seen{overviews: w.last, err: err}
	if news.overviews == nil {
		news.overviews = []inspect.Overview{}
	}
	return news
}

// silence reports to all streams that Redis does not answer if ctx times out: the client of a
// Redis that hangs can wait longer than ctx. The caller must call end.
func (w *watch) silence(ctx context.Context) (end func() bool) {
	news := w.before(fmt.Errorf("redis did not answer within %v: %w", lookPatience, context.DeadlineExceeded))
	return context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.tell(news)
		}
	})
}

const (
	// lookPatience is how long Redis may take before it is reported as not answering.
	lookPatience = 3 * time.Second

	// How long a queue may take before its previous reading is shown. All three are shorter than
	// lookPatience.
	totalsPatience = 700 * time.Millisecond
	queuePatience  = 1500 * time.Millisecond
	streamPatience = 500 * time.Millisecond // for its events, and for its audit
)

func (w *watch) totals(ctx context.Context) ([]inspect.Totals, error) {
	names, err := inspect.Queues(ctx, w.api.config.Redis)
	if err != nil {
		return nil, err
	}
	w.names = names
	var all []inspect.Totals
	totals, errs := fanout.Ask(ctx, totalsPatience, names, w.api.inspector.Totals)
	for i, t := range totals {
		if errs[i] == nil {
			all = append(all, t)
		}
	}
	if len(names) > 0 && all == nil {
		return nil, errs[0]
	}
	return all, nil
}

// lookAtEvents sends the jobs that finished since the last call. Errors other than silence are
// left for lookAtAll to report.
func (w *watch) lookAtEvents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	defer w.silence(ctx)()
	var all []inspect.Event
	sent := maps.Clone(w.events) // those who are late still read it
	read, errs := fanout.Ask(ctx, streamPatience, w.names, func(ctx context.Context, name string) ([]inspect.Event, error) {
		return w.newEvents(ctx, name, sent[name])
	})
	for i, name := range w.names {
		if errs[i] != nil {
			continue
		}
		after, known := w.events[name]
		if n := len(read[i]); n > 0 {
			after = read[i][n-1].ID
		}
		if w.events[name] = cmp.Or(after, "0-0"); known {
			all = append(all, read[i]...)
		} // else they are from before the first stream
	}
	if len(all) > 0 {
		w.tell(seen{events: all})
	}
}

// newEvents returns the events of a queue after another one; after "": the newest.
func (w *watch) newEvents(ctx context.Context, queue, after string) ([]inspect.Event, error) {
	if after == "" {
		return inspect.Events(ctx, w.api.config.Redis, queue, "", 1)
	}
	some, err := inspect.Events(ctx, w.api.config.Redis, queue, after, readEvents)
	if len(some) == readEvents { // too many: skip to the newest
		return inspect.Events(ctx, w.api.config.Redis, queue, "", readEvents)
	}
	return some, err
}

// newAudit returns the audit entries since the last call. Those of queues that do not answer come
// later.
func (w *watch) newAudit(ctx context.Context) (all []operate.AuditEntry) {
	read, errs := fanout.Ask(ctx, streamPatience, w.names, func(ctx context.Context, name string) ([]operate.AuditEntry, error) {
		return operate.Audit(ctx, w.api.config.Redis, name, readAudit)
	})
	for i, name := range w.names {
		if errs[i] != nil {
			continue
		}
		entries := read[i]
		last, known := w.audited[name]
		if len(entries) > 0 {
			w.audited[name] = entries[0].At
		} else if !known {
			w.audited[name] = time.Time{}
		}
		if !known {
			continue
		}
		for _, entry := range slices.Backward(entries) {
			if entry.At.After(last) {
				all = append(all, entry)
			}
		}
	}
	return all
}
