package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
)

// liveRuns is the set of this process's runs of one queue's jobs, in all its partitions: a job may move from one to
// another with its tenant.
//
// Other workers may take a living worker for dead if it was suspended or cut off from Redis.
// Only the process itself knows better. It renews the leases of all its runs, never recovers
// a job that it runs, and never starts a job again while it still runs it.
type liveRuns struct {
	mu   sync.Mutex
	runs map[string]*liveRun      // by job id
	late map[string]time.Duration // by job id: when a run that had lost its job ended, on the boot clock
}

// liveIn returns the runs of a queue. All sessions share them.
func (w *Worker) liveIn(queue string) *liveRuns {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live[queue] == nil {
		w.live[queue] = newLiveRuns()
	}
	return w.live[queue]
}

// liveRun is one run of a job, from its handover.
type liveRun struct {
	asynqwire.Run
	home   string // the partition with the job, as far as this process knows
	ended  chan struct{}
	cancel context.CancelFunc
}

func newLiveRuns() *liveRuns {
	return &liveRuns{runs: map[string]*liveRun{}, late: map[string]time.Duration{}}
}

// enter adds a run of a job that is in a partition. asked is when the worker asked for the job, on the boot clock.
// If an earlier run of the job has not ended, enter waits for its end: the job may have been
// recovered while this process was suspended. after reports whether an earlier run ended
// since the job was asked for. leave removes the run; it is nil if the worker stops first.
func (l *liveRuns) enter(home string, what asynqwire.Run, asked time.Duration, cancel context.CancelFunc, stopping <-chan struct{}) (leave func(), after bool) {
	id, run := what.ID, &liveRun{what, home, make(chan struct{}), cancel}
	for {
		l.mu.Lock()
		earlier := l.runs[id]
		if earlier == nil {
			l.runs[id] = run
			after = after || l.late[id] > asked
			l.mu.Unlock()
			return func() { l.leave(id, run) }, after
		}
		earlier.home = home // the job's lease is there, and is renewed while this run waits
		l.mu.Unlock()
		after = true
		select {
		case <-earlier.ended:
		case <-stopping:
			return nil, true
		}
	}
}

func (l *liveRuns) leave(id string, run *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, id)
	close(run.ended)
}

// endedLate records that a run that had lost its job has ended, and that Redis knows it.
// Replies to earlier requests for jobs may hand over the job without knowing of that end.
func (l *liveRuns) endedLate(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := boottime.Now()
	maps.DeleteFunc(l.late, func(_ string, at time.Duration) bool { return now-at > time.Minute })
	l.late[id] = now
}

// cancel cancels the context of a job's run.
func (l *liveRuns) cancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if run := l.runs[id]; run != nil {
		run.cancel()
	}
}

// shown returns the runs in a partition to list in asynq's tools, at most asynqwire.MaxShown.
func (l *liveRuns) shown(home string) []asynqwire.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]asynqwire.Run, 0, min(len(l.runs), asynqwire.MaxShown))
	for _, run := range l.runs {
		if len(all) == asynqwire.MaxShown {
			break
		}
		if run.home == home {
			all = append(all, run.Run)
		}
	}
	return all
}

// any reports whether the process runs jobs of a partition.
func (l *liveRuns) any(home string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, run := range l.runs {
		if run.home == home {
			return true
		}
	}
	return false
}

func (l *liveRuns) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id] != nil
}

// ids returns the ids of the jobs of a partition that the process runs.
func (l *liveRuns) ids(home string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, run := range l.runs {
		if run.home == home {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// asynqLease is the length of a lease, as in asynq.
const asynqLease = 30 * time.Second

// renewals tracks since when this process has renewed its leases without a gap in which
// another worker may have recovered its jobs. Times are on the boot clock.
type renewals struct {
	mu          sync.Mutex
	last, since time.Duration
}

// unbroken is the maximum time between two renewals without a gap. It is less than silence.
const unbroken = 10 * time.Second

// note records that the leases were renewed at a time.
func (r *renewals) note(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last > 0 && at-r.last > unbroken {
		r.since = at
	}
	r.last = at
}

// cover reports whether a job that was this worker's at a time certainly still is.
func (r *renewals) cover(at time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at >= r.since && boottime.Now()-max(r.last, at) <= unbroken
}

// renewLeases adds the commands that renew the leases of all runs in a partition. Leases end by this
// machine's clock, as in asynq. That is safe because they are only compared with earlier
// values of the same lease.
func renewLeases(ctx context.Context, pipe redis.Pipeliner, home string, live *liveRuns) {
	const most = 500 // in one command
	end := float64(time.Now().Add(asynqLease).Unix())
	for ids := range slices.Chunk(live.ids(home), most) {
		entries := make([]redis.Z, len(ids))
		for i, id := range ids {
			entries[i] = redis.Z{Member: id, Score: end}
		}
		pipe.ZAddXX(ctx, asynqwire.Key(home, "lease"), entries...)
	}
}

// heedCancellations cancels the calls that asynq's tools ask to cancel, until ctx is done.
func (w *Worker) heedCancellations(ctx context.Context) {
	cancellations := w.redis.Subscribe(ctx, asynqwire.Cancellations)
	defer cancellations.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case message, open := <-cancellations.Channel():
			if !open {
				return
			}
			w.mu.Lock()
			for _, live := range w.live {
				live.cancel(message.Payload)
			}
			w.mu.Unlock()
		}
	}
}
