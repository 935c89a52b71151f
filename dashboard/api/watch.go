package api

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

const (
	lookTimes  = 4 // readings of finished jobs per second
	maxStreams = 100
	maxBehind  = 16 // messages buffered for a slow client
	maxEvents  = 20 // in one message; the newest
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

// add opens a stream. It returns nil if the server is shutting down.
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
			began := time.Now()
			w.lookAtEvents(ctx)
			if time.Since(began) > lookEvery {
				n = -1 // the overviews are late
			}
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
