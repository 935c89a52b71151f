package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

const (
	readEvents = 500 // of a queue at once
	readAudit  = 20
	seldom     = 10 * time.Second // between readings of the allowed rates while no stream is open

	// lookPatience is how long Redis may take before it is reported as not answering.
	lookPatience = 3 * time.Second

	// How long a queue may take before its previous reading is shown. Together they are shorter than
	// lookPatience.
	totalsPatience = 700 * time.Millisecond
	queuePatience  = 1500 * time.Millisecond
	auditPatience  = 500 * time.Millisecond

	eventsPatience = 2 * time.Second // longer than a queue waits for the events of its partitions
)

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
		news.ended = w.history.add(w.names, totals, w.allowed)
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
	w.modeled = time.Now()
	read, errs := fanout.Ask(ctx, queuePatience, w.names, w.api.inspector.Overview)
	answered := len(w.names) == 0
	for i, name := range w.names {
		if errs[i] == nil {
			all, allowed[name], answered = append(all, read[i]), read[i].Allowed, true
			continue
		}
		if errors.Is(errs[i], validation.ErrNotFound) {
			continue
		}
		allowed[name] = w.allowed[name]
		if before := slices.IndexFunc(w.last, func(o inspect.Overview) bool { return o.Queue == name }); before >= 0 {
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
	read, errs := fanout.Ask(ctx, eventsPatience, w.names, func(ctx context.Context, name string) ([]inspect.Event, error) {
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

// newAudit returns the audit entries since the last call, also those about API keys, which are of no
// queue. Those of queues that do not answer come later.
func (w *watch) newAudit(ctx context.Context) (all []operate.AuditEntry) {
	names := slices.Concat(w.names, []string{""})
	read, errs := fanout.Ask(ctx, auditPatience, names, func(ctx context.Context, name string) ([]operate.AuditEntry, error) {
		return operate.Audit(ctx, w.api.config.Redis, name, readAudit)
	})
	for i, name := range names {
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
