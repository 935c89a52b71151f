package queue

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// liveRuns is what this process runs of one queue.
//
// Others may take a living worker for dead: it was stopped, or cut off from Redis.
// Only the process itself knows better. It renews the leases of all that it runs,
// never recovers a job of its own, and never begins a job that it still runs.
type liveRuns struct {
	mu   sync.Mutex
	runs map[string]*liveRun // by job id
}

// liveRun is one run of a job, from the moment that asynq hands it out.
type liveRun struct {
	ended  chan struct{}
	leased time.Time // when asynq's own lease was last extended, as asynq knows it
	cancel context.CancelFunc
}

func newLiveRuns() *liveRuns { return &liveRuns{runs: map[string]*liveRun{}} }

// enter notes a run. Where an earlier run of the job has not ended, it waits for
// that: the job may have been recovered while this process was silent. The error
// says that the worker stops.
func (l *liveRuns) enter(ctx context.Context, id string, stopping <-chan struct{}) (run *liveRun, leave func(), err error) {
	run = &liveRun{ended: make(chan struct{}), leased: time.Now(), cancel: func() {}}
	for {
		l.mu.Lock()
		earlier := l.runs[id]
		if earlier == nil {
			l.runs[id] = run
			l.mu.Unlock()
			return run, func() { l.leave(id, run) }, nil
		}
		l.mu.Unlock()
		select {
		case <-earlier.ended:
		case <-stopping:
			return nil, nil, errStopping
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func (l *liveRuns) leave(id string, run *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, id)
	close(run.ended)
}

func (l *liveRuns) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id] != nil
}

func (l *liveRuns) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sortedKeys(l.runs)
}

// extended notes that asynq believes its leases of these jobs to be extended.
func (l *liveRuns) extended(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if run := l.runs[id]; run != nil {
			run.leased = time.Now()
		}
	}
}

// asynqLease is how long asynq's leases last.
const asynqLease = 30 * time.Second

// detach returns the context of a run. It ends with asynq's, as when an operator
// cancels the task or the worker's time to stop is up, but not because asynq's
// lease has run out: the owner on the task decides who may settle it, so a call
// that is under way goes on.
func (l *liveRuns) detach(ctx context.Context, run *liveRun) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(endlessTimeout)
	}
	detached, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	l.mu.Lock()
	run.cancel = cancel
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if time.Since(run.leased) < asynqLease {
			cancel()
		}
	})
	return detached, func() {
		stop()
		cancel()
	}
}

// drain waits for the runs that asynq does not wait for: it has given them up, or cut
// them off when the time to stop was up. When ctx ends all of them are cut off, and have
// [redisTimeout] left to settle what is known of them.
func (l *liveRuns) drain(ctx context.Context) {
	l.mu.Lock()
	runs := slices.Collect(maps.Values(l.runs))
	l.mu.Unlock()
	for _, run := range runs {
		select {
		case <-run.ended:
		case <-ctx.Done():
			l.cutOff(run)
		}
	}
	last := time.After(redisTimeout)
	for _, run := range runs {
		select {
		case <-run.ended:
		case <-last:
			return
		}
	}
}

func (l *liveRuns) cutOff(run *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	run.cancel()
}

// leaseHook answers asynq's extensions of its leases: the worker renews those of
// all that it runs ([heart]). asynq knows its runs by the ids of their jobs alone,
// and would no longer renew a job of which an earlier run has ended.
type leaseHook struct{ live map[string]*liveRuns } // by queue

func (leaseHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h leaseHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		live, ids := h.extends(cmd.Args())
		extension, ok := cmd.(*redis.IntCmd)
		if !ok || live == nil {
			return next(ctx, cmd)
		}
		live.extended(ids)
		extension.SetVal(0)
		return nil
	}
}

func (leaseHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// extends reads ZADD lease XX score id ...
func (h leaseHook) extends(args []any) (live *liveRuns, ids []string) {
	if len(args) < 5 || args[0] != "zadd" || args[2] != "xx" {
		return nil, nil
	}
	key, _ := args[1].(string)
	queue, ok := strings.CutPrefix(strings.TrimSuffix(key, "}:lease"), "asynq:{")
	if !ok || key != asynqKey(queue, "lease") {
		return nil, nil
	}
	for i := 4; i < len(args); i += 2 {
		id, _ := args[i].(string)
		ids = append(ids, id)
	}
	return h.live[queue], ids
}

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
	return at >= r.since && bootTime()-max(r.last, at) <= unbroken
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
		pipe.ZAddXX(ctx, asynqKey(queue, "lease"), entries...)
		ids = ids[n:]
	}
}
