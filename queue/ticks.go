package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/cron"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// ticks fires the periodic jobs. Every worker has one, and they do not coordinate:
// periodic_fire.lua enqueues each tick once.
//
// It keeps the schedules in memory, without payloads, in a heap ordered by their next tick.
// While nothing is due, it sends two small commands a second.
type ticks struct {
	redis  redis.UniversalClient
	client *Client
	logger *slog.Logger

	entries tickHeap
	version string // of the entries; see periodic_set.lua
	loaded  bool
	done    int64 // Unix second up to which all ticks were fired
	failing bool

	calendars map[string]*effective.Calendars // by partition, for jobs that are replaced
}

// entry is what ticks needs to know of a periodic job.
type entry struct {
	cron.Schedule
	id, spec, zoneName string
	job                Job   // only its kind, queue and tenant
	since, maxLate     int64 // Unix seconds, seconds

	next    int64 // next tick, Unix seconds
	order   int64 // random, so that workers fire the ticks of a second in different orders
	refused int64 // tick that was rejected and is tried again; 0: none
	strayed int   // how often a tick was sent to a partition that does not have the tenant
}

const (
	logPeriodic = "periodic"
	logTick     = "tick"

	ticksEvery = time.Second
	// ticksGrace is the number of seconds after which ticks count as missed because no
	// worker fired them. Up to then all ticks are fired.
	ticksGrace = 10
)

// Run fires ticks until ctx is done.
func (t *ticks) Run(ctx context.Context) {
	for {
		wait, err := t.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			// It is not known where the round stopped, so load everything again.
			t.loaded, wait = false, ticksEvery
			if !t.failing {
				t.logger.Warn("firing periodic jobs failed; retrying", logkey.Error, err)
			}
		} else if t.failing {
			t.logger.Info("periodic jobs fire again")
		}
		t.failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
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
	if err := t.load(ctx, done, attended); err != nil {
		return 0, err
	}
	var again []*entry
	for len(t.entries) > 0 && t.entries[0].next <= now {
		var due []*entry
		for len(due) < periodicAtATime && len(t.entries) > 0 && t.entries[0].next <= now {
			due = append(due, heap.Pop(&t.entries).(*entry))
		}
		refused, err := t.fire(ctx, due, now, attended)
		if err != nil {
			return 0, err
		}
		again = append(again, refused...)
	}
	t.done = now

	wait := ticksEvery
	if len(t.entries) > 0 {
		wait = min(wait, time.Duration(t.entries[0].next-now)*time.Second-time.Duration(micros)*time.Microsecond)
	}
	for _, e := range again {
		heap.Push(&t.entries, e)
	}
	// Random delays spread the workers, so that fewer of them try the same ticks.
	return max(wait-time.Since(looked), 0) + rand.N(20*time.Millisecond), nil
}

// load reads the entries if they have changed.
func (t *ticks) load(ctx context.Context, done int64, attended bool) error {
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
		from := max(fired, stored.Since)
		if attended {
			// A worker fired ticks until now: older ones were fired or rejected.
			from = max(from, done-ticksGrace)
		}
		found[id] = &entry{
			Schedule: s, id: id, spec: stored.Spec, zoneName: stored.Zone,
			job: Job{Kind: stored.Job.Kind, Queue: stored.Job.Queue, Tenant: stored.Job.Tenant}, since: stored.Since, maxLate: stored.MaxLate,
			next: s.Next(from), order: rand.Int64(),
		}
	})
	if err != nil {
		return err
	}
	t.entries = t.entries[:0]
	for _, e := range found {
		if e.next > 0 {
			t.entries = append(t.entries, e)
		}
	}
	heap.Init(&t.entries)
	t.version, t.loaded = version, true
	return nil
}

// shot is one tick that is being enqueued.
type shot struct {
	*entry
	tick     int64
	home     string // the partition of its job
	overlap  Overlap
	accepted accepted
}

// fire fires one tick of each entry and puts the entries back into the heap with their next
// ticks. It returns the entries whose job was rejected, for a later round.
func (t *ticks) fire(ctx context.Context, due []*entry, now int64, attended bool) (refused []*entry, err error) {
	refuse := func(s shot, err error) {
		if errors.Is(err, errNoPartition) {
			s.strayed++ // the next round tries the other partition of a tenant that moves
		} else if s.refused != s.tick {
			s.refused = s.tick
			t.logger.Warn("a periodic job was rejected; retrying until its next tick",
				logPeriodic, s.id, logTick, time.Unix(s.tick, 0).UTC(), logkey.Error, err)
		}
		s.next = s.tick
		refused = append(refused, s.entry)
	}
	var shots []shot
	began := time.Now()
	for _, e := range due {
		s := shot{entry: e, tick: e.next}
		if !attended || e.refused > 0 || now-s.tick > e.maxLate {
			s.tick = e.Last(e.next-1, now)
		}
		if s.tick == 0 || now-s.tick > e.maxLate {
			t.goOn(e, now)
			continue
		}
		s.home, err = t.client.routes.homeOf(ctx, e.job, began, e.strayed)
		if validation.Is(err) {
			refuse(s, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		shots = append(shots, s)
	}
	if shots, err = t.choose(ctx, shots); err == nil {
		shots, err = t.prepare(ctx, shots, refuse)
	}
	if err != nil {
		return nil, err
	}
	all := batches(shots)
	// Those that wait for a replica are last, so that the others do not wait for them.
	slices.SortStableFunc(all, func(a, b []shot) int {
		return cmp.Compare(a[0].accepted.durability, b[0].accepted.durability) // primary, replicated
	})
	fired := []any{}
	for _, batch := range all {
		results, err := t.enqueue(ctx, batch)
		if err != nil {
			return nil, err
		}
		for i, s := range batch {
			if results[i].Err != nil {
				refuse(s, results[i].Err)
				continue
			}
			fired = append(fired, s.id, s.tick)
			t.goOn(s.entry, s.tick)
		}
	}
	if len(fired) > 0 {
		_, err = t.run(ctx, store.PeriodicMarkScript, []string{periodicFiredKey}, fired...)
	}
	return refused, err
}

// goOn puts an entry back into the heap with its first tick after the given second.
func (t *ticks) goOn(e *entry, after int64) {
	e.refused = 0
	if e.next = e.Schedule.Next(after); e.next > 0 {
		heap.Push(&t.entries, e)
	}
}

// choose fixes the queue of each tick, the same for all workers, and drops ticks that were
// already fired.
func (t *ticks) choose(ctx context.Context, shots []shot) ([]shot, error) {
	if len(shots) == 0 {
		return nil, nil
	}
	var args []any
	for _, s := range shots {
		args = append(args, s.id, s.tick, partition.QueueOf(s.home))
	}
	reply, err := t.run(ctx, store.PeriodicChooseScript, []string{periodicFiredKey}, args...)
	if err != nil {
		return nil, err
	}
	answers := store.Read(reply)
	var left []shot
	for _, s := range shots {
		answer := answers.List()
		queue, after := answer.Text(), answer.Int()
		if err := answer.End(); err != nil {
			return nil, err
		}
		if queue == "" {
			t.goOn(s.entry, max(after, s.tick))
			continue
		}
		if queue != partition.QueueOf(s.home) {
			if s.home, err = t.client.routes.homeIn(ctx, queue, s.job.Tenant, s.strayed); err != nil {
				return nil, err
			}
		}
		left = append(left, s)
	}
	return left, answers.End()
}

// prepare reads the current jobs and encodes them. It drops entries that were removed,
// paused or changed since they were loaded; the next load reads them again.
func (t *ticks) prepare(ctx context.Context, shots []shot, refuse func(shot, error)) ([]shot, error) {
	if len(shots) == 0 {
		return nil, nil
	}
	ids := make([]string, len(shots))
	for i, s := range shots {
		ids[i] = s.id
	}
	asking, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	texts, err := t.redis.HMGet(asking, periodicKey, ids...).Result()
	if err != nil {
		return nil, err
	}
	var ready []shot
	for i, s := range shots {
		text, ok := texts[i].(string)
		if !ok {
			continue
		}
		stored, _, err := decodePeriodic([]byte(text))
		if err != nil || stored.Paused || stored.Spec != s.spec || stored.Zone != s.zoneName || stored.Since != s.since {
			continue
		}
		s.overlap = stored.Overlap
		if err := stored.decrypt(t.client.keys, s.id); err != nil {
			refuse(s, err)
			continue
		}
		s.accepted, err = t.client.accept(ctx, *stored.Job.job(), s.home, time.Now())
		if err != nil {
			refuse(s, err)
			continue
		}
		if err = t.client.routes.locate(ctx, s.job, &s.accepted); errors.Is(err, errNoPartition) {
			refuse(s, err)
			continue
		} else if err != nil {
			return nil, err
		}
		s.accepted.message = asynqwire.AppendHeader(s.accepted.message, asynqwire.HeaderPeriodic, s.id)
		s.accepted.message = asynqwire.AppendHeader(s.accepted.message, asynqwire.HeaderTick, strconv.FormatInt(s.tick, 10))
		ready = append(ready, s)
	}
	return ready, nil
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
	if err := t.client.ready(ctx, home, bytes); errors.Is(err, ErrRedisFull) {
		for i := range results {
			results[i].Err = err
		}
		return results, nil
	} else if err != nil {
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
	if replicated && errors.Is(err, ErrNotReplicated) {
		for i := range results { // the next round finds the ticks decided, and waits again
			results[i].Err = err
		}
		return results, nil
	}
	if err != nil {
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
