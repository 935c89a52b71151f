package inspect

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

// Unserved is the reason why no worker takes some jobs.
type Unserved struct {
	Queue string
	Kind  string // for which no worker of the queue has a handler; "": no worker serves the queue

	// Unlisted reports that the limits of the queue list other kinds.
	Unlisted bool

	// Away of the Of partitions of the queue do not answer: nobody can take their jobs. An undivided queue
	// has one.
	Away, Of int
}

// String returns the reason as text.
func (u Unserved) String() string {
	if u.Away > 0 && u.Of == 1 {
		return "queue " + u.Queue + " does not answer: its jobs wait, and its figures are those of before"
	}
	if u.Away > 0 {
		return (&AwayError{u.Queue, u.Away, u.Of}).Error() + ": the jobs of their tenants wait, and are not counted here"
	}
	if u.Unlisted {
		return fmt.Sprintf("queue %s is not for kind %s, which its limits do not list", u.Queue, u.Kind)
	}
	if u.Kind == "" {
		return "no worker serves queue " + u.Queue
	}
	return fmt.Sprintf("no worker of queue %s has a handler for kind %s", u.Queue, u.Kind)
}

// Unserved returns why no worker takes jobs of a kind in a queue; nil if a worker does. A
// worker counts until it has been silent for 10 s.
func (in *Inspector) Unserved(ctx context.Context, queue, kind string) (*Unserved, error) {
	served, err := in.handlers(ctx, queue)
	if err != nil {
		return nil, err
	}
	published, err := effective.Published(ctx, in.redis, queue)
	if err != nil {
		return nil, err
	}
	return unserved(queue, rediskey.Escape(kind), served, published.Kinds), nil
}

// UnservedJobs returns how many jobs could go in queues that no worker serves, by queue:
// waiting and released jobs, and those whose time has come. Queues without such jobs are
// left out.
func (in *Inspector) UnservedJobs(ctx context.Context) (map[string]int64, error) {
	fail := func(err error) (map[string]int64, error) { return nil, fmt.Errorf("count unserved jobs: %w", err) }
	names, err := store.Queues(ctx, in.redis)
	if err != nil {
		return fail(err)
	}
	now, err := store.Time(ctx, in.redis, asynqwire.Queues)
	if err != nil {
		return fail(err)
	}
	due := strconv.FormatInt(now.Unix(), 10)
	waiting, others := map[string][]*redis.StringCmd{}, map[string][]*redis.IntCmd{}
	pipe := in.redis.Pipeline()
	for _, name := range names {
		if served, err := in.handlers(ctx, name); err != nil {
			return fail(err)
		} else if !served.none() {
			continue
		}
		l, err := in.layout(ctx, name)
		if err != nil {
			return fail(err)
		}
		for _, home := range l.Names() {
			waiting[name] = append(waiting[name], pipe.HGet(ctx, store.TenantsKey(home), store.WholeQueue))
			others[name] = append(others[name],
				pipe.LLen(ctx, asynqwire.Key(home, "pending")),
				pipe.ZCount(ctx, asynqwire.Key(home, "scheduled"), "-inf", due),
				pipe.ZCount(ctx, asynqwire.Key(home, "retry"), "-inf", due))
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return fail(err)
	}
	all := map[string]int64{}
	for name, texts := range waiting {
		var jobs int64
		for _, text := range texts {
			jobs += store.ReadCounts(text.Val()).Waiting
		}
		for _, n := range others[name] {
			jobs += n.Val()
		}
		if jobs > 0 {
			all[name] = jobs
		}
	}
	return all, nil
}

// handlers are what the workers of a queue have handlers for.
type handlers struct {
	kinds   map[string]bool // escaped; nil: no worker serves the queue
	unknown bool            // what workers report cannot be read: any of them may serve the queue
}

// none reports that no worker serves the queue.
func (h handlers) none() bool { return h.kinds == nil && !h.unknown }

// unserved returns the reason for an escaped kind. listed are the kinds of the queue's limits;
// none means all. The kind "" is not known, and any worker may have a handler for it.
func unserved(queue, kind string, served handlers, listed []string) *Unserved {
	switch {
	case kind != "" && len(listed) > 0 && !slices.Contains(listed, store.Unescape(kind)):
		return &Unserved{Queue: queue, Kind: store.Unescape(kind), Unlisted: true}
	case served.none():
		return &Unserved{Queue: queue}
	case kind != "" && !served.unknown && !served.kinds[kind]:
		return &Unserved{Queue: queue, Kind: store.Unescape(kind)}
	}
	return nil
}

// silentAfter is how long a silent worker counts as serving its queues: it has missed two
// heartbeats then.
const silentAfter = 2 * workers.BeatEvery

// serving is the escaped kinds that workers serve, as they last reported, by queue. All
// queues share it.
type serving map[string]map[string]bool

// handlers returns what workers of a partition's queue have handlers for. Workers report to all
// nodes of a Cluster: while one does not answer, what they reported last counts, so that the queues
// of the others are shown. The error is that of ctx.
func (in *Inspector) handlers(ctx context.Context, queue string) (handlers, error) {
	all, err := in.serving.Get(ctx, readingAge, false)
	if err != nil {
		return handlers{unknown: true}, ctx.Err()
	}
	return handlers{kinds: all[partition.QueueOf(queue)]}, nil
}

func readServing(ctx context.Context, client redis.UniversalClient) (serving, error) {
	now, err := store.Time(ctx, client, workers.ListKey)
	if err != nil {
		return nil, fmt.Errorf("list the workers: %w", err)
	}
	workers, err := workers.List(ctx, client)
	if err != nil {
		return nil, err
	}
	all := serving{}
	for _, w := range workers {
		if now.Sub(w.Seen) > silentAfter {
			continue
		}
		for _, queue := range w.Queues {
			if all[queue] == nil {
				all[queue] = map[string]bool{}
			}
			for _, kind := range w.Kinds {
				all[queue][rediskey.Escape(kind)] = true
			}
		}
	}
	return all, nil
}

// unserved returns why no worker takes the jobs of a lane; nil if a worker does.
func (f *forecast) unserved(l *lane) *Unserved {
	return unserved(partition.QueueOf(f.queue), l.Kind, f.served, f.rules.Kinds)
}

// closedUntil returns when a lane may go again that is paused or that no worker serves,
// in seconds from now; +Inf if somebody has to act first.
func (f *forecast) closedUntil(l *lane) float64 {
	if f.unserved(l) != nil {
		return math.Inf(1)
	}
	return f.pausedUntil(l)
}

// unservedJobs returns why no worker takes some of the waiting jobs, and how many these
// are.
func (f *forecast) unservedJobs(waiting int64) (reasons []Unserved, jobs int64) {
	if f.served.none() {
		return []Unserved{{Queue: partition.QueueOf(f.queue)}}, waiting
	}
	byKind := map[Unserved]float64{}
	for i := range f.lanes {
		l := &f.lanes[i]
		if u := f.unserved(l); u != nil && l.jobs > 0 {
			stands := 1 / f.part
			if l.added {
				stands = 1
			}
			byKind[*u] += float64(l.jobs) * stands
		}
	}
	for _, u := range slices.SortedFunc(maps.Keys(byKind), func(a, b Unserved) int { return strings.Compare(a.Kind, b.Kind) }) {
		reasons = append(reasons, u)
		jobs += int64(byKind[u])
	}
	return reasons, min(jobs, waiting)
}
