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

// liveRuns is what this process runs of one queue.
//
// Others may take a living worker for dead: it was stopped, or cut off from Redis.
// Only the process itself knows better. It renews the leases of all that it runs,
// never recovers a job of its own, and never begins a job that it still runs.
type liveRuns struct {
	mu   sync.Mutex
	runs map[string]*liveRun      // by job id
	late map[string]time.Duration // when runs ended late whose job was another's, by job id
}

// liveRun is one run of a job, from the moment that it was handed over.
type liveRun struct {
	asynqwire.Run
	ended  chan struct{}
	cancel context.CancelFunc
}

func newLiveRuns() *liveRuns {
	return &liveRuns{runs: map[string]*liveRun{}, late: map[string]time.Duration{}}
}

// enter notes a run, of a job that was asked for at a time. Where an earlier run of it has
// not ended, it waits for that: the job may have been recovered while this process was
// silent. after is whether an earlier run ended since the job was asked for. leave is nil
// where the worker stops meanwhile.
func (l *liveRuns) enter(what asynqwire.Run, asked time.Duration, cancel context.CancelFunc, stopping <-chan struct{}) (leave func(), after bool) {
	id, run := what.ID, &liveRun{what, make(chan struct{}), cancel}
	for {
		l.mu.Lock()
		earlier := l.runs[id]
		if earlier == nil {
			l.runs[id] = run
			after = after || l.late[id] > asked
			l.mu.Unlock()
			return func() { l.leave(id, run) }, after
		}
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

// endedLate notes that Redis knows the end of a run whose job was another's. An answer to
// who asked for jobs before may bring it and not know that.
func (l *liveRuns) endedLate(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := boottime.Now()
	maps.DeleteFunc(l.late, func(_ string, at time.Duration) bool { return now-at > time.Minute })
	l.late[id] = now
}

// cancel ends the context of a run, as asynq's tools ask for.
func (l *liveRuns) cancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if run := l.runs[id]; run != nil {
		run.cancel()
	}
}

// shown is what asynq's tools are shown of the runs, of many only some.
func (l *liveRuns) shown() []asynqwire.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]asynqwire.Run, 0, min(len(l.runs), asynqwire.MaxShown))
	for _, run := range l.runs {
		if len(all) == asynqwire.MaxShown {
			break
		}
		all = append(all, run.Run)
	}
	return all
}

// any is whether the process runs jobs of the queue.
func (l *liveRuns) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs) > 0
}

func (l *liveRuns) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id] != nil
}

func (l *liveRuns) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.runs))
}

// asynqLease is how long asynq's leases last.
const asynqLease = 30 * time.Second

// renewals says since when this process has renewed its leases without a gap in
// which another worker may have taken its jobs. It goes by the boot clock.
type renewals struct {
	mu          sync.Mutex
	last, since time.Duration
}

// unbroken is how far apart renewals may be: less than [silence].
const unbroken = 10 * time.Second

// note says that leases were renewed at a time.
func (r *renewals) note(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last > 0 && at-r.last > unbroken {
		r.since = at
	}
	r.last = at
}

// cover reports whether a job that was this worker's at a time has been so since.
func (r *renewals) cover(at time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at >= r.since && boottime.Now()-max(r.last, at) <= unbroken
}

// renewLeases adds the commands that renew the leases of all runs. Their ends are
// by this machine's clock, as asynq writes them; nobody compares them with another.
func renewLeases(ctx context.Context, pipe redis.Pipeliner, queue string, live *liveRuns) {
	const most = 500 // in one command
	end := float64(time.Now().Add(asynqLease).Unix())
	ids := live.ids()
	for len(ids) > 0 {
		n := min(len(ids), most)
		entries := make([]redis.Z, n)
		for i, id := range ids[:n] {
			entries[i] = redis.Z{Member: id, Score: end}
		}
		pipe.ZAddXX(ctx, asynqwire.Key(queue, "lease"), entries...)
		ids = ids[n:]
	}
}

// heedCancellations ends the calls that asynq's tools cancel, until ctx is done.
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
			for _, live := range w.live {
				live.cancel(message.Payload)
			}
		}
	}
}
