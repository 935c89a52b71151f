package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

// recoverer takes jobs back from workers that are gone. Workers renew the leases of
// all that they run every 5 s, so one whose lease has not moved for 11 s of this
// process's own clock belongs to a dead worker, whatever anybody's wall clock says.
//
// One worker watches a queue at a time, as it reads all leases twice a second, and does
// the queue's chores. The others ask again when its watch would end. When it ends, another
// one begins to watch within 2.5 s, and counts anew.
type recoverer struct {
	queue  string
	worker string // this process
	redis  redis.UniversalClient
	live   *liveRuns // what this process runs
	logger *slog.Logger
	chores *chores.Chores
	roles  *roles

	seen     map[string]sighting
	lastLook time.Duration // boot time of the last look
	swept    time.Duration // boot time at which the chores were due the last time; 0: never
}

// sighting is a lease as it was when it last changed.
type sighting struct {
	lease string
	since time.Duration // boot time
}

const (
	silence   = 11 * time.Second
	lookEvery = 500 * time.Millisecond
	// After a gap in looking, leases may have moved unseen: counting starts anew.
	blind = 3 * time.Second
	// watchLasts is for how long a watcher that looks no more keeps others from it.
	watchLasts = 2 * time.Second
)

// Run watches until ctx is done.
func (r *recoverer) Run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.chores.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		wait, err := r.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			r.logger.Warn("recovery cannot look at leases; it goes on trying", logkey.Queue, r.queue, logkey.Error, err)
		}
		failing = err != nil
		timer.Reset(wait)
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

// look looks for dead workers if it is for this one to do so, and says when to look again.
func (r *recoverer) look(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if left := r.roles.left(r.role()); left > 0 {
		return left, nil
	}
	left, err := r.watch(ctx)
	_, refused := errors.AsType[redis.Error](err)
	watches := err == nil && left == 0
	if refused || left > 0 {
		r.seen = nil
	}
	// A full Redis refuses the watch, not the chores, which make room.
	if now := boottime.Now(); (watches || refused) && (r.swept == 0 || now-r.swept >= chores.Every) {
		r.swept = now
		r.chores.Ask()
	}
	if left > 0 {
		r.roles.taken(r.role(), left)
		return left, nil
	}
	if watches {
		err = r.recoverDead(ctx)
	}
	return lookEvery, err
}

func (r *recoverer) role() string { return store.Key(r.queue, "watcher") }

// recoverDead takes the jobs of dead workers.
func (r *recoverer) recoverDead(ctx context.Context) error {
	now, err := asynqwire.Leases(ctx, r.redis, r.queue)
	if err != nil {
		return err
	}
	dead := slices.DeleteFunc(r.compare(now, boottime.Now()), r.live.has)
	for ids := range slices.Chunk(dead, 50) {
		taken, err := r.recover(ctx, ids, now)
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

// watch takes the watch, and is for how long another worker has it; 0: this one has. A Redis
// that refuses the write refuses to renew leases, too: no silence says anything then, so
// counting starts anew.
func (r *recoverer) watch(ctx context.Context) (time.Duration, error) {
	reply, err := store.WatchScript.Run(ctx, r.redis, []string{r.role()}, r.queue, r.worker, watchLasts.Milliseconds())
	if err != nil {
		return 0, err
	}
	left, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply %v", reply)
	}
	return time.Duration(left) * time.Millisecond, nil
}

// recover takes silent jobs from their workers. A worker that still beats has lost
// sight of the job; one that does not has ended, as far as anybody can tell.
func (r *recoverer) recover(ctx context.Context, ids []string, leases map[string]string) (taken any, err error) {
	pipe := r.redis.Pipeline()
	texts := make([]*redis.StringCmd, len(ids))
	for i, id := range ids {
		texts[i] = pipe.HGet(ctx, asynqwire.Key(r.queue, "t:"+id), "hg_owner")
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	owners := make([]string, len(ids))
	for i, text := range texts {
		// What is no task is left to the script, which reports it.
		if _, answered := errors.AsType[redis.Error](text.Err()); text.Err() != nil && !answered {
			return 0, text.Err()
		}
		owners[i] = text.Val()
	}
	ended := workers.Ended(ctx, r.redis, owners)
	args := []any{r.queue}
	for i, id := range ids {
		gone := 0
		if ended[workers.Of(owners[i])] {
			gone = 1
		}
		args = append(args, id, leases[id], owners[i], gone)
	}
	return store.RecoverScript.Run(ctx, r.redis, store.ScriptKeys(r.queue), args...)
}

// abandon gives back the jobs whose calls this worker, which ends, does not wait for any
// more. Nobody knows what comes of them, and they are no crash.
func (r *recoverer) abandon() error {
	ids := r.live.ids()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	now, err := asynqwire.Leases(ctx, r.redis, r.queue)
	if err != nil {
		return err
	}
	for ids := range slices.Chunk(ids, 50) {
		if _, err := r.recover(ctx, ids, now); err != nil {
			return err
		}
	}
	return nil
}

// compare notes what has moved and returns the ids of what has been silent.
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
