package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/cron"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// ticks fires the periodic jobs. Every worker has one, and they do not coordinate:
// periodic_fire.lua enqueues each tick once.
//
// It keeps the schedules in memory, without payloads, in a timetable for each queue.
// While nothing is due, it sends two small commands a second.
type ticks struct {
	redis  redis.UniversalClient
	client *Client
	logger *slog.Logger

	tables  map[string]*timetable // by queue, or by kind of jobs that name no queue
	version string                // of the entries; see periodic_set.lua
	loaded  bool
	done    int64 // Unix second up to which it has looked for ticks that are due
	failing bool
	firing  sync.WaitGroup

	mu        sync.Mutex
	calendars map[string]*effective.Calendars // by partition, for jobs that are replaced
}

// timetable has the entries of one queue, in a heap ordered by their next tick. Timetables are
// fired side by side, so that a queue whose Redis does not answer does not delay the others.
type timetable struct {
	*ticks
	entries tickHeap
	again   []*entry      // whose job was rejected; tried again in the next round
	fired   chan struct{} // closed when the timetable is no longer being fired; nil: it never was
}

func (tt *timetable) idle() bool {
	select {
	case <-tt.fired:
		return true
	default:
		return tt.fired == nil
	}
}

// entry is what ticks needs to know of a periodic job.
type entry struct {
	cron.Schedule
	id, spec, zoneName string
	job                Job   // only its kind, queue and tenant
	since, maxLate     int64 // Unix seconds, seconds

	next    int64 // next tick, Unix seconds
	order   int64 // random, so that workers fire the ticks of a second in different orders
	warned  int64 // tick whose failure was logged; 0: none
	refused bool  // the last tick was rejected
	strayed int   // how often a tick was sent to a partition that does not have the tenant
}

const (
	logPeriodic = "periodic"
	logTick     = "tick"

	ticksEvery = time.Second
	// ticksGrace is the number of seconds after which ticks count as missed because no
	// worker fired them, or their queue did not answer. Up to then all ticks are fired.
	ticksGrace = 10
)

// Run fires ticks until ctx is done.
func (t *ticks) Run(ctx context.Context) {
	defer t.firing.Wait()
	for {
		next, err := t.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// It is not known where the round stopped, so load everything again.
			t.loaded, next = false, ticksEvery
			if !t.failing {
				t.logger.Warn("firing periodic jobs failed; retrying", logkey.Error, err)
			}
		} else if t.failing {
			t.logger.Info("periodic jobs fire again")
		}
		t.failing = err != nil
		if wait.For(ctx, next) != nil {
			return
		}
	}
}

// round fires the due ticks and returns the time until the next round.
func (t *ticks) round(ctx context.Context) (time.Duration, error) {
	reply, err := t.run(ctx, store.PeriodicLookScript, []string{periodicFiredKey}, t.done)
	if err != nil {
		return 0, err
	}
	looked := time.Now()
	look := store.Read(reply)
	now, micros, done := look.Int(), look.Int(), look.Int()
	if err := look.End(); err != nil {
		return 0, err
	}
	attended := done > 0 && now-done <= ticksGrace
	if err := t.load(ctx); err != nil {
		return 0, err
	}
	clock := func() int64 { return now + int64(time.Since(looked)/time.Second) }
	var started []*timetable
	for _, tt := range t.tables {
		if !tt.idle() {
			continue
		}
		for _, e := range tt.again {
			heap.Push(&tt.entries, e)
		}
		tt.again = nil
		if len(tt.entries) > 0 && tt.entries[0].next <= now {
			tt.fired, started = make(chan struct{}), append(started, tt)
			t.firing.Go(func() {
				defer close(tt.fired)
				tt.fireDue(ctx, clock, attended)
			})
		}
	}
	waiting, cancel := context.WithTimeout(ctx, ticksEvery)
	defer cancel()
	for _, tt := range started {
		select {
		case <-tt.fired:
		case <-waiting.Done():
		}
	}
	t.done = now

	next := ticksEvery
	for _, tt := range t.tables {
		if tt.idle() && len(tt.entries) > 0 {
			next = min(next, time.Duration(tt.entries[0].next-now)*time.Second-time.Duration(micros)*time.Microsecond)
		}
	}
	// Random delays spread the workers, so that fewer of them try the same ticks.
	return max(next-time.Since(looked), 0) + rand.N(20*time.Millisecond), nil
}

// load reads the entries if they have changed.
func (t *ticks) load(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, store.Timeout)
	version, err := t.redis.HGet(asking, periodicKey, "").Result()
	cancel()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if t.loaded && version == t.version {
		return nil
	}
	found := map[string]*entry{}
	err = scanPeriodic(ctx, t.redis, func(id string, text []byte, fired int64) {
		stored, s, err := decodePeriodic(text)
		if err != nil {
			t.logger.Warn("a periodic job cannot be read", logPeriodic, id, logkey.Error, err)
			return
		}
		if stored.Paused {
			return
		}
		found[id] = &entry{
			Schedule: s, id: id, spec: stored.Spec, zoneName: stored.Zone,
			job: Job{Kind: stored.Job.Kind, Queue: stored.Job.Queue, Tenant: stored.Job.Tenant}, since: stored.Since, maxLate: stored.MaxLate,
			next: s.Next(max(fired, stored.Since)), order: rand.Int64(),
		}
	})
	if err != nil {
		return err
	}
	tables := map[string]*timetable{}
	for _, e := range found {
		if e.next == 0 {
			continue
		}
		name := cmp.Or(e.job.Queue, e.job.Kind)
		tt := tables[name]
		if tt == nil {
			tt = &timetable{ticks: t}
			if before := t.tables[name]; before != nil {
				tt.fired = before.fired // it may still be under way
			}
			tables[name] = tt
		}
		tt.entries = append(tt.entries, e)
	}
	for _, tt := range tables {
		heap.Init(&tt.entries)
	}
	t.tables = tables
	t.version, t.loaded = version, true
	return nil
}

// shot is one tick that is being enqueued.
type shot struct {
	*entry
	tick     int64
	home     string // the partition of its job
	whole    Job    // with its payload
	overlap  Overlap
	accepted accepted
}

// jobName returns what decides about the place of an entry's job.
func jobName(job *Job) string {
	return rediskey.Escape(job.Kind) + ";" + rediskey.Escape(job.Queue) + ";" + rediskey.Escape(job.Tenant)
}

// fireDue fires all ticks that were due when it began. It may take long, so each chunk asks the clock.
func (tt *timetable) fireDue(ctx context.Context, clock func() int64, attended bool) {
	now := clock()
	for len(tt.entries) > 0 && tt.entries[0].next <= now {
		var due []*entry
		for len(due) < periodicAtATime && len(tt.entries) > 0 && tt.entries[0].next <= now {
			due = append(due, heap.Pop(&tt.entries).(*entry))
		}
		tt.fire(ctx, due, clock(), attended)
	}
}

// fire fires one tick of each entry and puts the entries back into the heap with their next
// ticks, or into again if their job was rejected or their queue did not answer.
func (tt *timetable) fire(ctx context.Context, due []*entry, now int64, attended bool) {
	var shots []shot
	for _, e := range due {
		s := shot{entry: e, tick: e.next}
		if !attended || e.refused || now-s.tick > ticksGrace {
			s.tick = e.Last(e.next-1, now)
		}
		if s.tick == 0 || now-s.tick > e.maxLate {
			tt.goOn(e, now)
			continue
		}
		shots = append(shots, s)
	}
	shots = tt.prepare(ctx, tt.choose(ctx, tt.locate(ctx, shots)))
	all := batches(shots)
	results := make([][]Result, len(all))
	errs := make([]error, len(all))
	var sending sync.WaitGroup
	for i, batch := range all {
		sending.Go(func() { results[i], errs[i] = tt.enqueue(ctx, batch) })
	}
	sending.Wait()
	var fired []shot
	for i, batch := range all {
		for k, s := range batch {
			if err := errs[i]; err != nil {
				tt.refuse(ctx, s, err)
			} else if err := results[i][k].Err; err != nil {
				tt.refuse(ctx, s, err)
			} else {
				fired = append(fired, s)
			}
		}
	}
	tt.mark(ctx, fired)
}

// refuse keeps an entry for the next round.
func (tt *timetable) refuse(ctx context.Context, s shot, err error) {
	if errors.Is(err, errNoPartition) {
		s.strayed++ // the next round tries the other partition of a tenant that moves
	} else if s.refused = s.refused || !passing(err); s.warned != s.tick && ctx.Err() == nil {
		s.warned = s.tick
		tt.logger.Warn("a periodic job could not be enqueued; retrying until its next tick",
			logPeriodic, s.id, logTick, time.Unix(s.tick, 0).UTC(), logkey.Error, err)
	}
	s.next = s.tick
	tt.again = append(tt.again, s.entry)
}

func (tt *timetable) refuseAll(ctx context.Context, shots []shot, err error) {
	for _, s := range shots {
		tt.refuse(ctx, s, err)
	}
}

// goOn puts an entry back into the heap with its first tick after the given second.
func (tt *timetable) goOn(e *entry, after int64) {
	e.refused = false
	if e.next = e.Schedule.Next(after); e.next > 0 {
		heap.Push(&tt.entries, e)
	}
}

// each runs fn for shots, side by side because some queues may not answer, and returns those for which it succeeds.
func (tt *timetable) each(ctx context.Context, shots []shot, fn func(*shot) error) []shot {
	errs := make([]error, len(shots))
	var all sync.WaitGroup
	for i := range shots {
		all.Go(func() { errs[i] = fn(&shots[i]) })
	}
	all.Wait()
	var left []shot
	for i, s := range shots {
		if errs[i] != nil {
			tt.refuse(ctx, s, errs[i])
			continue
		}
		left = append(left, s)
	}
	return left
}

// locate finds the partitions of ticks.
func (tt *timetable) locate(ctx context.Context, shots []shot) []shot {
	began := time.Now()
	return tt.each(ctx, shots, func(s *shot) (err error) {
		s.home, err = tt.client.routes.homeOf(ctx, s.job, began, s.strayed)
		return err
	})
}

// choose fixes the queue of each tick, the same for all workers, and drops ticks that were
// already fired, or tried before the job of their entry was changed.
func (tt *timetable) choose(ctx context.Context, shots []shot) []shot {
	if len(shots) == 0 {
		return nil
	}
	var args []any
	for _, s := range shots {
		args = append(args, s.id, s.tick, partition.QueueOf(s.home), jobName(&s.job))
	}
	reply, err := tt.run(ctx, store.PeriodicChooseScript, []string{periodicFiredKey}, args...)
	if err != nil {
		tt.refuseAll(ctx, shots, err)
		return nil
	}
	answers := store.Read(reply)
	var left []shot
	for _, s := range shots {
		answer := answers.List()
		queue, after := answer.Text(), answer.Int()
		if err := answer.End(); err != nil {
			tt.refuse(ctx, s, err)
			continue
		}
		if queue == "" {
			tt.goOn(s.entry, max(after, s.tick))
			continue
		}
		if queue != partition.QueueOf(s.home) {
			if s.home, err = tt.client.routes.homeIn(ctx, queue, s.job.Tenant, s.strayed); err != nil {
				tt.refuse(ctx, s, err)
				continue
			}
		}
		left = append(left, s)
	}
	return left
}

// prepare reads the current jobs and encodes them. It drops entries that were removed,
// paused or changed since they were loaded; the next load reads them again.
func (tt *timetable) prepare(ctx context.Context, shots []shot) []shot {
	if len(shots) == 0 {
		return nil
	}
	ids := make([]string, len(shots))
	for i, s := range shots {
		ids[i] = s.id
	}
	asking, cancel := context.WithTimeout(ctx, store.Timeout)
	texts, err := tt.redis.HMGet(asking, periodicKey, ids...).Result()
	cancel()
	if err != nil {
		tt.refuseAll(ctx, shots, err)
		return nil
	}
	var current []shot
	for i, s := range shots {
		text, ok := texts[i].(string)
		if !ok {
			continue
		}
		stored, _, err := decodePeriodic([]byte(text))
		if err != nil || stored.Paused || stored.Spec != s.spec || stored.Zone != s.zoneName || stored.Since != s.since {
			continue
		}
		if jobName(stored.Job.job()) != jobName(&s.job) {
			continue // its place was chosen for the job it had
		}
		if err := stored.decrypt(tt.client.keys, s.id); err != nil {
			tt.refuse(ctx, s, err)
			continue
		}
		s.whole, s.overlap = *stored.Job.job(), stored.Overlap
		current = append(current, s)
	}
	return tt.each(ctx, current, func(s *shot) (err error) {
		if s.accepted, err = tt.client.accept(ctx, s.whole, s.home, time.Now()); err != nil {
			return err
		}
		s.accepted.message = asynqwire.AppendHeader(s.accepted.message, asynqwire.HeaderPeriodic, s.id)
		s.accepted.message = asynqwire.AppendHeader(s.accepted.message, asynqwire.HeaderTick, strconv.FormatInt(s.tick, 10))
		return tt.client.routes.locate(ctx, s.job, &s.accepted)
	})
}

// mark notes that ticks were fired. If it is not known whether that was noted, they are tried
// again, and are found fired.
func (tt *timetable) mark(ctx context.Context, fired []shot) {
	if len(fired) == 0 {
		return
	}
	var args []any
	for _, s := range fired {
		args = append(args, s.id, s.tick)
	}
	if _, err := tt.run(ctx, store.PeriodicMarkScript, []string{periodicFiredKey}, args...); err != nil {
		tt.refuseAll(ctx, fired, err)
		return
	}
	for _, s := range fired {
		tt.goOn(s.entry, s.tick)
	}
}

// batches splits ticks by place, and by the maximum size of one request.
func batches(shots []shot) [][]shot {
	var all [][]shot
	open, bytes := map[place]int{}, map[place]int{}
	for _, s := range shots {
		in := s.accepted.place()
		i, ok := open[in]
		if !ok || bytes[in]+s.accepted.size() > maxBatchBytes {
			i, bytes[in] = len(all), 0
			open[in] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], s)
		bytes[in] += s.accepted.size()
	}
	return all
}

// enqueue enqueues or skips ticks of one partition. It is not an error if a tick was already
// enqueued.
func (t *ticks) enqueue(ctx context.Context, batch []shot) ([]Result, error) {
	home, bytes := batch[0].home, 0
	for _, s := range batch {
		bytes += s.accepted.size()
	}
	results := make([]Result, len(batch))
	if err := t.client.ready(ctx, home, bytes); err != nil {
		return nil, err
	}
	args := []any{home, len(batch), ""}
	replaces := false
	for _, s := range batch {
		args = append(args, s.id, s.tick, string(s.overlap))
		replaces = replaces || s.overlap == OverlapReplace
	}
	args = append(args, batch[0].accepted.layout)
	for _, s := range batch {
		args = s.accepted.append(args)
	}
	var reply any
	replicated := batch[0].accepted.durability == limits.Replicated
	fire := func(calendars string) (err error) {
		args[2] = calendars
		if replicated {
			ctx, cancel := context.WithTimeout(ctx, store.Timeout)
			defer cancel()
			reply, err = t.client.replicas.run(ctx, store.PeriodicFireScript, home, args...)
		} else {
			reply, err = t.run(ctx, store.PeriodicFireScript, store.ScriptKeys(home), args...)
		}
		return err
	}
	var err error
	if replaces {
		err = t.calendarsOf(home).Run(ctx, fire)
	} else {
		err = fire("")
	}
	if err != nil { // also if no replica has them: the next round finds the ticks decided, and waits again
		return nil, fmt.Errorf("enqueue in %q: %w", partition.QueueOf(home), err)
	}
	answers, err := answersOf(reply, len(batch))
	if err != nil {
		return nil, fmt.Errorf("enqueue in %q: %w", partition.QueueOf(home), err)
	}
	for i, s := range batch {
		t.client.read(&results[i], answers[i], s.accepted)
	}
	return results, nil
}

func (t *ticks) calendarsOf(queue string) *effective.Calendars {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calendars == nil {
		t.calendars = map[string]*effective.Calendars{}
	}
	if t.calendars[queue] == nil {
		t.calendars[queue] = &effective.Calendars{Queue: queue, Redis: t.redis}
	}
	return t.calendars[queue]
}

// run runs a script with store.Timeout.
func (t *ticks) run(ctx context.Context, script *redisscript.Script, keys []string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	return script.Run(ctx, t.redis, keys, args...)
}

// tickHeap orders entries by their next tick.
type tickHeap []*entry

func (h tickHeap) Len() int      { return len(h) }
func (h tickHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *tickHeap) Push(e any)   { *h = append(*h, e.(*entry)) }
func (h tickHeap) Less(i, j int) bool {
	if h[i].next != h[j].next {
		return h[i].next < h[j].next
	}
	return h[i].order < h[j].order
}

func (h *tickHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
