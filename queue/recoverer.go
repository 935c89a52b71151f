package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

// recoverer takes jobs back from dead workers. Workers renew the leases of all jobs that
// they run every 5 s. If a lease has not changed for 11 s of this process's boot clock, its
// worker is taken for dead. Wall clocks do not matter.
//
// One worker at a time watches a queue: it reads all leases twice a second and does the
// queue's chores. The other workers ask again when its watch would end. If the watcher
// ends, another worker starts to watch within 2.5 s, and starts counting from then.
type recoverer struct {
	queue  string           // the partition
	of     partition.Layout // its queue
	worker string           // id of this session
	redis  redis.UniversalClient
	live   *liveRuns // runs in this process
	logger *slog.Logger
	chores *chores.Chores
	roles  *roles

	seen     map[string]sighting // by job id
	lastLook time.Duration       // boot time of the last look
	swept    time.Duration       // boot time at which it last asked for the chores; 0: never
}

// sighting is a lease, and when it was first seen like this.
type sighting struct {
	lease string
	since time.Duration // boot time
}

const (
	silence   = 11 * time.Second
	lookEvery = 500 * time.Millisecond
	// blind is the maximum time between two looks. After a longer gap counting starts
	// again, because leases may have changed unseen.
	blind = 3 * time.Second
	// watchLasts is how long a watcher keeps the role without another look.
	watchLasts = 2 * time.Second
)

// Run watches until ctx is done.
func (r *recoverer) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.chores.Run(ctx) })
	failing := false
	for ctx.Err() == nil {
		next, err := r.look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.logger.Warn("recovery cannot read leases; retrying", logkey.Queue, r.queue, logkey.Error, err)
		}
		failing = err != nil
		_ = wait.For(ctx, next)
	}
}

// every calls fn at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, fn func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			fn()
		}
	}
}

// look looks for dead workers if this worker watches the queue. It returns the time until
// the next look.
func (r *recoverer) look(ctx context.Context) (time.Duration, error) {
	if left := r.roles.left(r.role()); left > 0 {
		return left, nil
	}
	left, idle, err := r.watch(ctx)
	_, refused := errors.AsType[redis.Error](err)
	watches := err == nil && left == 0
	if refused || left > 0 || idle {
		r.seen = nil
	}
	if refused || left > 0 {
		r.chores.Lost()
	}
	if now := boottime.Now(); watches && (r.swept == 0 || now-r.swept >= slowed(r.of, chores.Every, slowChores)) {
		r.swept = now
		r.chores.Ask()
	}
	if left > 0 {
		r.roles.taken(r.role(), left)
		return left, nil
	}
	if watches && !idle {
		err = r.recoverDead(ctx)
	}
	if err == nil && len(r.seen) == 0 {
		return slowed(r.of, lookEvery, slowLook), nil
	}
	return lookEvery, err
}

func (r *recoverer) role() string { return store.Key(r.queue, "watcher") }

// recoverDead takes the jobs back from dead workers.
func (r *recoverer) recoverDead(ctx context.Context) error {
	asks, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	now, err := asynqwire.Leases(asks, r.redis, r.queue)
	if err != nil {
		return err
	}
	dead := slices.DeleteFunc(r.compare(now, boottime.Now()), r.live.has)
	if len(dead) == 0 {
		return nil
	}
	owners, err := r.owners(asks, dead)
	if err != nil {
		return err
	}
	ended := r.ended(ctx, owners)
	for ids := range slices.Chunk(dead, 50) {
		taken, err := r.takeFrom(ctx, ids, owners, now, ended)
		if err != nil {
			return err
		}
		if taken != int64(0) {
			store.Announce(ctx, r.redis, r.queue)
			r.logger.Warn("jobs of a dead worker are back in their lanes", logkey.Queue, r.queue, "jobs", taken)
		}
	}
	return nil
}

// watch takes or renews the watch. It returns how long another worker has it; 0 means that
// this one has. idle: it has, and no call is under way that could be a dead worker's. A Redis
// that rejects the write rejects renewed leases too. An unchanged lease means nothing then, so
// the caller starts counting again.
func (r *recoverer) watch(ctx context.Context) (left time.Duration, idle bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	reply, err := store.WatchScript.Run(ctx, r.redis, store.KeysOf(r.queue, r.role()), r.queue, r.worker, slowed(r.of, watchLasts, slowWatch).Milliseconds(), 1)
	if err != nil {
		return 0, false, err
	}
	ms, ok := reply.(int64)
	if !ok {
		return 0, false, fmt.Errorf("unexpected reply %v", reply)
	}
	return time.Duration(max(ms, 0)) * time.Millisecond, ms < 0, nil
}

// ended returns which of the workers whose jobs are taken have ended. A worker that still has a heartbeat has not, it
// has only lost its jobs. In a Cluster its key may be on another node than the queue. The jobs do not wait for a node
// that does not answer, and a look that took longer than blind would make the counting start again.
func (r *recoverer) ended(ctx context.Context, owners map[string]string) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, store.AwayAfter)
	defer cancel()
	return workers.Ended(ctx, r.redis, slices.Collect(maps.Values(owners)))
}

// owners returns the owner marks of jobs, by id; "" of a job that has none.
func (r *recoverer) owners(ctx context.Context, ids []string) (map[string]string, error) {
	pipe := r.redis.Pipeline()
	texts := make([]*redis.StringCmd, len(ids))
	for i, id := range ids {
		texts[i] = pipe.HGet(ctx, asynqwire.Key(r.queue, "t:"+id), "hg_owner")
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	owners := make(map[string]string, len(ids))
	for i, text := range texts {
		// The script reports keys that are not tasks.
		if _, answered := errors.AsType[redis.Error](text.Err()); text.Err() != nil && !answered {
			return nil, text.Err()
		}
		owners[ids[i]] = text.Val()
	}
	return owners, nil
}

// takeFrom takes jobs from their owners, except jobs whose lease or owner has changed. ended has the ids of the workers
// that have ended.
func (r *recoverer) takeFrom(ctx context.Context, ids []string, owners, leases map[string]string, ended map[string]bool) (taken any, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	args := []any{r.queue}
	for _, id := range ids {
		args = append(args, id, leases[id], owners[id], ended[workers.Of(owners[id])])
	}
	return store.RecoverScript.Run(ctx, r.redis, store.ScriptKeys(r.queue), args...)
}

// abandon gives back the jobs whose calls this worker no longer waits for because it stops.
// The outcome of these calls is unknown, and they do not count as crashes. Another worker may
// have taken some of these jobs and run them already. They are left alone.
func (r *recoverer) abandon() error {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	for ids := range slices.Chunk(r.live.ids(r.queue), 50) {
		// A heartbeat that renews the leases after they were read makes another try necessary. The
		// next one is 5 s away.
		for try := 1; ; try++ {
			owners, err := r.owners(ctx, ids)
			if err != nil {
				return err
			}
			maps.DeleteFunc(owners, func(_, owner string) bool { return workers.Of(owner) != r.worker })
			if len(owners) == 0 {
				break
			}
			if try > 2 {
				return fmt.Errorf("%d jobs could not be taken back", len(owners))
			}
			leases, err := asynqwire.Leases(ctx, r.redis, r.queue)
			if err != nil {
				return err
			}
			if _, err := r.takeFrom(ctx, slices.Collect(maps.Keys(owners)), owners, leases, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare records which leases have changed, and returns the ids of jobs whose leases have
// not changed for longer than silence.
func (r *recoverer) compare(leases map[string]string, now time.Duration) []string {
	if now-r.lastLook > blind {
		r.seen = nil
	}
	r.lastLook = now
	seen := make(map[string]sighting, len(leases))
	var dead []string
	for id, lease := range leases {
		s, known := r.seen[id]
		if !known || s.lease != lease {
			s = sighting{lease, now}
		}
		seen[id] = s
		if now-s.since > silence {
			dead = append(dead, id)
		}
	}
	r.seen = seen
	return dead
}
