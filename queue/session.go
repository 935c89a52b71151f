package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/serving"
	"github.com/headgate/headgate/queue/internal/store"
)

// session is what a worker runs for the partitions that its queues have at a time.
//
// If a queue gets other partitions, another session begins. Only when it has started does the one before stop
// to take jobs, and that one ends with its last call. To Redis they are two workers, each with its own id and
// heartbeat. The process holds no more jobs than before, because all sessions have the places of one worker.
type session struct {
	*Worker
	id     string               // in owner marks, and in the list of workers
	queues []partition.Layout   // all of them
	live   map[string]*liveRuns // by partition: those of its queue
	alone  map[string]bool      // queues whose missing replica was logged

	clocks      map[string]*redisClock // by partition
	roles       *roles
	renewals    *renewals
	dispatchers []*dispatcher
	recoverers  []*recoverer
	movers      []*mover.Mover // of the queues whose tenants move

	parts    sync.WaitGroup
	stop     context.CancelFunc // ends the parts
	running  sync.WaitGroup     // runs of jobs
	base     context.Context    // of all runs
	cutOff   context.CancelFunc // ends base
	stopping chan struct{}      // closed when no new call may be sent
	finished chan struct{}      // closed when nothing can be settled any more
	beating  sync.WaitGroup
	die      context.CancelFunc // ends the heartbeat
}

// session returns a session for queues, which has not started.
func (w *Worker) session(queues []partition.Layout) *session {
	s := &session{
		Worker: w, id: uuid.NewString(), queues: queues, live: map[string]*liveRuns{}, alone: map[string]bool{},
		renewals: &renewals{}, stopping: make(chan struct{}), finished: make(chan struct{}),
	}
	s.roles = newRoles(w.redis, s.id)
	for _, of := range queues {
		for _, home := range of.Names() {
			s.live[home] = w.liveIn(of.Queue)
		}
	}
	return s
}

// homes returns the names of all partitions of the queues.
func (s *session) homes() (names []string) {
	for _, of := range s.queues {
		names = append(names, of.Names()...)
	}
	return names
}

// names returns the names of the queues.
func (s *session) names() []string {
	names := make([]string, len(s.queues))
	for i, queue := range s.queues {
		names[i] = queue.Queue
	}
	return names
}

// start starts the session. After an error nothing of it runs.
func (s *session) start(ctx context.Context) error {
	clocks, each := newClocks(s.redis, s.homes())
	for _, clock := range each {
		if slices.Contains(s.Away(), clock.queue) {
			continue // it will learn the time from the first reply
		}
		if err := clock.start(ctx); err != nil {
			return fmt.Errorf("queue: ask redis for the time: %w", err)
		}
	}
	s.clocks = clocks
	ctx = context.WithoutCancel(ctx)
	s.base, s.cutOff = context.WithCancel(ctx)
	s.prepare()

	// The worker reports that it is alive until its last call is settled.
	alive, die := context.WithCancel(ctx)
	s.die = die
	heart := s.newHeart()
	heart.begin(alive)
	s.beating.Go(func() { heart.Run(alive) })

	background, stop := context.WithCancel(ctx)
	s.stop = stop
	for _, d := range s.dispatchers {
		if d.lessor != nil {
			s.parts.Go(func() { d.lessor.Run(background) })
		}
		s.parts.Go(func() { d.Run(background) })
	}
	s.parts.Go(func() { listen(background, s.redis, s.dispatchers, s.lookSoon) })
	for _, r := range s.recoverers {
		s.parts.Go(func() { r.Run(background) })
	}
	for _, m := range s.movers {
		s.parts.Go(func() { m.Run(background) })
	}
	for _, clock := range each {
		s.parts.Go(func() { clock.Run(background) })
	}
	s.parts.Go(func() { s.roles.Run(background) })
	return nil
}

// end stops the session. Jobs that wait for their slots go back to their lanes with their slots, and calls go
// on until they end or ctx, that of [Worker.Run], is done for ShutdownTimeout.
func (s *session) end(ctx context.Context) {
	s.stop()
	s.parts.Wait()
	close(s.stopping)
	s.finish(ctx)
	for _, r := range s.recoverers {
		if err := r.abandon(); err != nil { // other workers recover them
			s.logger.Warn("cannot give back jobs whose calls go on; other workers recover them", logkey.Queue, r.queue, logkey.Error, err)
		}
	}
	s.die()
	s.beating.Wait()
	s.cutOff()
	close(s.finished)
}

// finish waits for the runs, and cuts them off when ctx is done for ShutdownTimeout. They then have
// [store.Timeout] to settle.
func (s *session) finish(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return
	case <-time.After(s.config.ShutdownTimeout):
	}
	s.cutOff()
	select {
	case <-ended:
	case <-time.After(store.Timeout):
	}
}

// prepare makes the gate, the dispatcher and the recoverer of each partition.
func (s *session) prepare() {
	runs, client := &atomic.Int64{}, NewClient(s.redis).Encrypt(s.config.PayloadKeys)
	client.owed = true
	var escaped []string
	for _, kind := range s.Kinds() {
		escaped = append(escaped, rediskey.Escape(kind))
	}
	kinds := kindList(escaped)
	// No call takes longer than this: it would have been cut off.
	lease := store.Timeout
	for _, h := range s.handlers {
		lease = max(lease, h.timeout+store.Timeout)
	}
	calendars := map[string]*effective.Calendars{}
	for _, of := range s.queues {
		if of.From != nil {
			s.movers = append(s.movers, &mover.Mover{Of: of, Worker: s.id, Longest: lease, Redis: s.redis, Replicated: client.replicas.run, Logger: s.logger})
		}
		for _, name := range of.Names() {
			replans := newReplans()
			limits := &effective.Calendars{Queue: name, Redis: s.redis, Seen: (&kindLog{handlers: s.handlers, logger: s.logger}).look}
			calendars[name] = limits
			pauses, starving := &pauses{}, &starvation{}
			d := &dispatcher{
				queue: name, of: of, worker: s.id, runs: runs, kinds: kinds, redis: s.redis, capacity: s.capacity, observer: s.observer, logger: s.logger,
				limits: limits, clock: s.clocks[name], pauses: pauses, starving: starving, sending: &s.sending,
				roles: s.roles, live: s.live[name], poll: slowed(of, s.poll, slowDispatch), idles: of.N >= manyPartitions, wakes: make(chan struct{}, 1), called: make(chan struct{}, 1), replans: replans, lease: lease,
			}
			if name == of.Queue {
				d.lessor = newLessor(of, s.id, s.redis, s.clocks, calendars, lease, s.roles, s.logger)
			}
			g := (&gate{
				queue: name, of: of, clocks: s.clocks, redis: s.redis, handlers: s.handlers, observer: s.observer, logger: s.logger,
				clock: s.clocks[name], capacity: s.capacity, suspects: s.suspects, sending: &s.sending, client: client, keys: s.config.PayloadKeys, live: s.live[name], renewals: s.renewals,
				limits: limits, pauses: pauses, starving: starving, onWake: d.wake, replans: replans, lease: lease,
				base: s.base, running: &s.running, stopping: s.stopping, ended: s.finished,
			}).init()
			d.hand = g.take
			s.dispatchers = append(s.dispatchers, d)
			s.recoverers = append(s.recoverers, &recoverer{
				queue: name, of: of, worker: s.id, redis: s.redis, live: s.live[name], logger: s.logger,
				chores: chores.New(name, of, s.redis, limits, s.logger), roles: s.roles,
			})
		}
	}
}

// kindList joins kinds into the form in which the scripts look them up.
func kindList(kinds []string) string { return "," + strings.Join(kinds, ",") + "," }

const (
	checkEvery = 10 * time.Second
	changeGap  = time.Second // between two looks at the partitions, while much is announced
)

// lookSoon makes the worker look at the partitions of its queues. It is called when anything is announced for a
// queue, as every change of limits is, so that an idle worker need not ask. What is missed without a connection
// is made up for by the look after the next subscription.
func (w *Worker) lookSoon() { signal(w.announced) }

// follow replaces the session by another one each time that a queue has other partitions, until ctx is done. It
// returns the latest session. It also repeats the check of Redis, whose result is the worker's readiness.
func (w *Worker) follow(ctx context.Context, s *session) *session {
	check := time.NewTicker(w.check)
	defer check.Stop()
	failing := false // the next session cannot start
	for {
		checks := failing
		select {
		case <-ctx.Done():
			return s
		case <-w.announced:
		case <-check.C:
			checks = true
		}
		next, err := s.next(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !failing {
				w.logger.Error("cannot serve the changed partitions of a queue; retrying", logkey.Error, err)
			}
			w.setReady(err)
			w.lookSoon()
		case checks:
			unfit := next.readiness(ctx)
			if unfit != nil && ctx.Err() == nil {
				w.logger.Error("the check of redis failed", logkey.Error, unfit)
			}
			w.setReady(unfit)
		}
		s, failing = next, err != nil
		_ = wait.For(ctx, changeGap)
	}
}

// next starts a session if a queue has other partitions, ends this one in the background, and returns the new
// one. Otherwise, and after an error, it returns this one, which goes on.
func (s *session) next(ctx context.Context) (*session, error) {
	changed := s.changed(ctx)
	if len(changed) == 0 {
		return s, nil
	}
	queues := slices.Clone(s.queues)
	for i, was := range queues {
		if now, ok := changed[was.Queue]; ok {
			queues[i] = now
		}
	}
	next := s.session(queues)
	err := next.readiness(ctx)
	if err == nil {
		err = next.start(ctx)
	}
	if err != nil {
		return s, err
	}
	for queue, now := range changed {
		s.logger.Info("the queue's partitions changed; serving the new ones", logkey.Queue, queue, "partitions", now.N)
	}
	s.ending.Go(func() { s.end(ctx) })
	return next, nil
}

// changed returns the queues that have other partitions than in this session, as they are now. Those that do
// not answer or are without limits, as after a loss of data, have not changed.
func (s *session) changed(ctx context.Context) map[string]partition.Layout {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	// Not in a pipeline: if one node of a Cluster does not answer, all its commands fail.
	fields, errs := fanout.Ask(ctx, store.AwayAfter, s.names(), func(ctx context.Context, name string) ([]any, error) {
		return s.redis.HMGet(ctx, store.Key(name, "limits"), "*", store.PinsField).Result()
	})
	changed := map[string]partition.Layout{}
	for i, was := range s.queues {
		if errs[i] != nil {
			continue
		}
		text := store.Texts(fields[i])
		now, err := store.LayoutOf(was.Queue, text[0], text[1])
		if text[0] != "" && err == nil && !now.Equal(was) {
			changed[was.Queue] = now
		}
	}
	return changed
}

// learn reads which queues the worker serves, and their partitions.
func (w *Worker) learn(ctx context.Context) ([]partition.Layout, error) {
	queues, err := w.served(ctx)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	layouts := make([]partition.Layout, len(queues))
	for i, name := range queues {
		if layouts[i], err = store.ReadLayout(ctx, w.redis, name); err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		}
	}
	return layouts, nil
}

// served returns the queues that the worker is to serve.
func (w *Worker) served(ctx context.Context) ([]string, error) {
	if queues := serving.Queues(ctx); len(queues) > 0 {
		return queues, nil
	}
	if len(w.config.Queues) > 0 {
		return w.config.Queues, nil
	}
	queues, without, err := serving.OfKinds(ctx, w.redis, w.Kinds())
	if err != nil {
		return nil, fmt.Errorf("look up the queues of the kinds: %w", err)
	}
	if len(without) > 0 {
		return nil, fmt.Errorf("no queue has the kind %s: list it in the limits of a queue, or set Config.Queues", check.Quote(without[0]))
	}
	if len(queues) > maxQueues {
		return nil, fmt.Errorf("the kinds with handlers wait in %d queues; a worker serves at most %d: set Config.Queues, and run several workers", len(queues), maxQueues)
	}
	return queues, nil
}
