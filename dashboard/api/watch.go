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
	lookTimes  = 4                // a second, at what has finished
	seldom     = 10 * time.Second // how often it is looked at what limits let go while nobody watches
	maxStreams = 100
	maxBehind  = 16  // messages that a client may be behind
	maxEvents  = 20  // in one message; of more the newest
	readEvents = 500 // at once
	readAudit  = 20
)

// seen is what all queues looked like at a moment: what streams are told, before
// it is cut to what each may see.
type seen struct {
	overviews []inspect.Overview // nil: no news of them
	err       error              // of Redis: the overviews are those of before
	ended     []newSeconds       // seconds that are over
	events    []inspect.Event
	audit     []operate.AuditEntry
}

// watch looks at the queues once a second for all who watch. While nobody does it looks
// at what the history needs: what the queues count, and more seldom, for that is dear,
// at what their limits let go.
type watch struct {
	api     *API
	history *history
	wake    chan struct{} // somebody has begun to watch

	mu      sync.Mutex
	streams map[*stream]struct{}
	ended   bool

	// Of the goroutine of run.
	names   []string
	last    []inspect.Overview
	events  map[string]string    // the newest that was told, by queue
	audited map[string]time.Time // likewise
	allowed map[string]float64   // jobs a second that limits let go, by queue
	modeled time.Time            // when that was looked at
}

// stream is a client that watches.
type stream struct {
	news chan seen // closed when it ends
	slow bool      // it ended because the client did not keep up
}

func newWatch(a *API) *watch {
	return &watch{
		api: a, history: &history{}, wake: make(chan struct{}, 1), streams: map[*stream]struct{}{},
		events: map[string]string{}, audited: map[string]time.Time{},
	}
}

// add begins a stream; nil when there are too many, or the server ends.
func (w *watch) add() *stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || len(w.streams) >= maxStreams {
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

// tell gives news to all streams. One that is full is ended: its client comes
// again, and is told anew.
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

// run looks until ctx is done, and then ends all streams.
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
			n = -1 // it is told at once
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

// lookAtAll is one look, once a second. Without Redis the last one is told again,
// with the error.
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

// before is what was seen last, with why there is nothing newer.
func (w *watch) before(err error) seen {
	news := seen{overviews: w.last, err: err}
	if news.overviews == nil {
		news.overviews = []inspect.Overview{}
	}
	return news
}

// silence tells all who watch that Redis does not answer when a look takes too long:
// the client of a Redis that hangs waits longer than ctx lasts. The answer ends it.
func (w *watch) silence(ctx context.Context) (end func() bool) {
	news := w.before(fmt.Errorf("redis did not answer within %v: %w", lookPatience, context.DeadlineExceeded))
	return context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.tell(news)
		}
	})
}

// lookPatience is how long Redis may take before it is said to be away.
const lookPatience = 3 * time.Second

func (w *watch) totals(ctx context.Context) ([]inspect.Totals, error) {
	names, err := inspect.Queues(ctx, w.api.config.Redis)
	if err != nil {
		return nil, err
	}
	w.names = names
	return inspect.ReadTotals(ctx, w.api.config.Redis, names...)
}

// lookAtEvents tells what has finished since the last time. An error, but for silence, is
// for the next look at all to tell.
func (w *watch) lookAtEvents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	defer w.silence(ctx)()
	var all []inspect.Event
	for _, name := range w.names {
		after, known := w.events[name]
		if !known {
			// What was before somebody watched is not news.
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
		if len(some) == readEvents { // it is fast: what lies between is left out
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

// newAudit is what operators changed since the last time.
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
