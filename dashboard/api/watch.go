package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
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
		news.audit, err = w.newAudit(ctx)
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

func (w *watch) overviews(ctx context.Context) ([]inspect.Overview, error) {
	all, allowed := []inspect.Overview{}, map[string]float64{}
	w.allowed, w.modeled = nil, time.Now()
	for _, name := range w.names {
		o, err := w.api.inspector.Overview(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		allowed[name] = o.Allowed
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

// lookPatience is how long Redis may take before it is reported as not answering.
const lookPatience = 3 * time.Second

func (w *watch) totals(ctx context.Context) ([]inspect.Totals, error) {
	names, err := inspect.Queues(ctx, w.api.config.Redis)
	if err != nil {
		return nil, err
	}
	w.names = names
	return inspect.ReadTotals(ctx, w.api.config.Redis, names...)
}

// lookAtEvents sends the jobs that finished since the last call. Errors other than silence are
// left for lookAtAll to report.
func (w *watch) lookAtEvents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	defer w.silence(ctx)()
	var all []inspect.Event
	for _, name := range w.names {
		after, known := w.events[name]
		if !known {
			// Events from before the first stream are not sent.
			newest, err := inspect.Events(ctx, w.api.config.Redis, name, "", 1)
			if err != nil {
				return
			}
			if w.events[name] = "0-0"; len(newest) > 0 {
				w.events[name] = newest[0].ID
			}
			continue
		}
		some, err := inspect.Events(ctx, w.api.config.Redis, name, after, readEvents)
		if err != nil {
			return
		}
		if len(some) == readEvents { // too many: skip to the newest
			if some, err = inspect.Events(ctx, w.api.config.Redis, name, "", readEvents); err != nil {
				return
			}
		}
		if len(some) > 0 {
			w.events[name] = some[len(some)-1].ID
			all = append(all, some...)
		}
	}
	if len(all) > 0 {
		w.tell(seen{events: all})
	}
}

// newAudit returns the audit entries since the last call.
func (w *watch) newAudit(ctx context.Context) ([]operate.AuditEntry, error) {
	var all []operate.AuditEntry
	for _, name := range w.names {
		entries, err := operate.Audit(ctx, w.api.config.Redis, name, readAudit)
		if err != nil {
			return nil, err
		}
		last, known := w.audited[name]
		if len(entries) > 0 {
			w.audited[name] = entries[0].At
		} else if !known {
			w.audited[name] = time.Time{}
		}
		if !known {
			continue
		}
		for i := len(entries) - 1; i >= 0; i-- {
			if entries[i].At.After(last) {
				all = append(all, entries[i])
			}
		}
	}
	return all, nil
}
