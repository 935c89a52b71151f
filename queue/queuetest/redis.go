package queuetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/serving"
	"github.com/headgate/headgate/queue/internal/store"
)

// Only this file of the package uses keys of Redis.

// tasks returns the jobs that are not done, of one kind or, for "", of all.
func (q *Queue) tasks(kind string) []*asynq.TaskInfo {
	q.t.Helper()
	ctx, cancel := timeout()
	defer cancel()
	names, err := store.AllPartitions(ctx, q.Redis)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	homes := map[string][]string{} // by queue
	for _, name := range names {
		homes[partition.QueueOf(name)] = append(homes[partition.QueueOf(name)], name)
	}
	var all []*asynq.TaskInfo
	for _, name := range slices.Sorted(maps.Keys(homes)) {
		jobs, err := q.jobs(ctx, homes[name])
		if err != nil {
			q.t.Fatalf("queuetest: jobs of queue %s: %v", name, err)
		}
		for _, job := range jobs {
			task, err := q.inspector.GetTaskInfo(job.home, job.id)
			if errors.Is(err, asynq.ErrTaskNotFound) {
				continue
			}
			if err != nil {
				q.t.Fatalf("queuetest: job %s of queue %s: %v", job.id, name, err)
			}
			task.Queue = name
			if kind == "" || task.Type == kind {
				all = append(all, task)
			}
		}
	}
	return all
}

// stored is a job in a partition.
type stored struct {
	home, id string
	score    float64
}

// jobs returns a queue's jobs in the order in which they may go.
func (q *Queue) jobs(ctx context.Context, homes []string) ([]stored, error) {
	var taken, waiting, later []stored
	for _, home := range homes {
		for _, list := range []string{"active", "pending"} {
			ids, err := q.Redis.LRange(ctx, asynqwire.Key(home, list), 0, -1).Result()
			if err != nil {
				return nil, err
			}
			for _, id := range slices.Backward(ids) { // jobs are taken from the right
				taken = append(taken, stored{home: home, id: id})
			}
		}
		lanes, err := q.Redis.SMembers(ctx, asynqwire.Key(home, "groups")).Result()
		if err != nil {
			return nil, err
		}
		add := func(to *[]stored, set string, period float64) error {
			jobs, err := q.Redis.ZRangeWithScores(ctx, asynqwire.Key(home, set), 0, -1).Result()
			for _, job := range jobs {
				*to = append(*to, stored{home, fmt.Sprint(job.Member), math.Mod(job.Score, period)})
			}
			return err
		}
		for _, lane := range lanes {
			if err := add(&waiting, "g:"+lane, store.BandScores); err != nil {
				return nil, err
			}
		}
		for _, set := range []string{"scheduled", "retry"} {
			if err := add(&later, set, math.Inf(1)); err != nil {
				return nil, err
			}
		}
	}
	byScore := func(a, b stored) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.id, b.id)) }
	slices.SortFunc(waiting, byScore)
	slices.SortFunc(later, byScore)
	return slices.Concat(taken, waiting, later), nil
}

// serve determines the served queues: handlers or limits may have been added.
func (q *Queue) serve() error {
	ctx, cancel := timeout()
	defer cancel()
	queues, _, err := serving.OfKinds(ctx, q.Redis, q.Worker.Kinds())
	if err != nil {
		return fmt.Errorf("look up the queues of the kinds: %w", err)
	}
	q.served = slices.Compact(slices.Sorted(slices.Values(append(queues, q.queues...))))
	return nil
}

// state is the state of the served queues at one moment.
type state struct {
	working bool // the worker holds jobs, or is about to
	due     bool // jobs may go soon
}

func (q *Queue) state() (state, error) {
	ctx, cancel := timeout()
	defer cancel()
	names, err := q.partitions(ctx, q.served...)
	if err != nil {
		return state{}, err
	}
	var all state
	for _, name := range names {
		pipe := q.Redis.TxPipeline() // otherwise a job that moves between two sets could be missed
		clock := pipe.Time(ctx)
		pending, active := pipe.LLen(ctx, asynqwire.Key(name, "pending")), pipe.LLen(ctx, asynqwire.Key(name, "active"))
		ready := pipe.ZCard(ctx, store.Key(name, "ready"))
		first := map[*redis.ZSliceCmd]time.Duration{ // with the unit of its scores
			pipe.ZRangeWithScores(ctx, asynqwire.Key(name, "scheduled"), 0, 0): time.Second,
			pipe.ZRangeWithScores(ctx, asynqwire.Key(name, "retry"), 0, 0):     time.Second,
			pipe.ZRangeWithScores(ctx, store.Key(name, "waiting"), 0, 0):       time.Microsecond,
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return state{}, fmt.Errorf("look at queue %s: %w", name, err)
		}
		all.working = all.working || pending.Val()+active.Val() > 0
		all.due = all.due || ready.Val() > 0
		for set, unit := range first {
			soon := clock.Val()
			if unit == time.Microsecond {
				soon = soon.Add(patience)
			}
			if jobs := set.Val(); len(jobs) > 0 && jobs[0].Score <= float64(soon.UnixMicro()/unit.Microseconds()) {
				all.due = true
			}
		}
	}
	return all, nil
}

// While a Drain runs, the times of jobs that are not due yet are this many seconds later.
const heldBack = 1e10

// hold keeps a queue's jobs for later from becoming due. It is called after each round of
// dispatch, so that only jobs go that were due when they were first seen.
func (q *Queue) hold(name string) error {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	return q.shift([]string{name}, "("+now, fmt.Sprintf("(%.0f", heldBack), heldBack)
}

// release undoes hold.
func (q *Queue) release() error {
	return q.shift(q.served, fmt.Sprintf("%.0f", heldBack), "+inf", -heldBack)
}

// shift adds seconds to the times of queues' jobs for later that are between from and
// to.
func (q *Queue) shift(queues []string, from, to string, seconds float64) error {
	ctx, cancel := timeout()
	defer cancel()
	names, err := q.partitions(ctx, queues...)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, set := range []string{"scheduled", "retry"} {
			if err := q.shiftSet(ctx, asynqwire.Key(name, set), from, to, seconds); err != nil {
				return fmt.Errorf("jobs for later in queue %s: %w", name, err)
			}
		}
	}
	return nil
}

func (q *Queue) shiftSet(ctx context.Context, key, from, to string, seconds float64) error {
	jobs, err := q.Redis.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: from, Max: to}).Result()
	if err != nil || len(jobs) == 0 {
		return err
	}
	for i := range jobs {
		jobs[i].Score += seconds
	}
	return q.Redis.ZAddXX(ctx, key, jobs...).Err() // XX: jobs that ran meanwhile must not come back
}

// partitions returns the names of the partitions of queues.
func (q *Queue) partitions(ctx context.Context, queues ...string) (names []string, err error) {
	layouts, err := store.ReadLayouts(ctx, q.Redis, queues...)
	for _, l := range layouts {
		names = append(names, l.Names()...)
	}
	return names, err
}

// advance brings forward by d everything that waits for a time.
func (q *Queue) advance(d time.Duration) error {
	ctx, cancel := timeout()
	defer cancel()
	names, err := store.AllPartitions(ctx, q.Redis)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, set := range []struct {
			key  string
			unit time.Duration // of its scores
		}{{asynqwire.Key(name, "scheduled"), time.Second}, {asynqwire.Key(name, "retry"), time.Second}, {store.Key(name, "waiting"), time.Microsecond}, {store.Key(name, "pause_ends"), time.Microsecond}} {
			members, err := q.Redis.ZRangeWithScores(ctx, set.key, 0, -1).Result()
			if err != nil {
				return err
			}
			for i := range members {
				members[i].Score -= math.Ceil(float64(d) / float64(set.unit))
				// Times are rounded up to the second: what is due within the second is
				// due now.
				if now := float64(time.Now().Unix()); set.unit == time.Second && members[i].Score <= now+1 {
					members[i].Score = now
				}
			}
			if len(members) == 0 {
				continue
			}
			if err := q.Redis.ZAdd(ctx, set.key, members...).Err(); err != nil {
				return err
			}
		}
		pauses, err := q.Redis.HGetAll(ctx, store.Key(name, "pauses")).Result()
		if err != nil {
			return err
		}
		for scope, pause := range pauses {
			until, _, _ := strings.Cut(pause, " ")
			micros, err := strconv.ParseInt(until, 10, 64)
			if err != nil {
				return fmt.Errorf("pause of %s: %w", scope, err)
			}
			moved := strconv.FormatInt(micros-d.Microseconds(), 10) + strings.TrimPrefix(pause, until)
			if err := q.Redis.HSet(ctx, store.Key(name, "pauses"), scope, moved).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
