package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/workers"
)

// repartition gives the queue n partitions, and announces it as every change of limits is announced. Jobs do not
// move.
func (r *rig) repartition(t *testing.T, n int) partition.Layout {
	t.Helper()
	ctx, client, layout := t.Context(), r.server.Client(), partition.Layout{Queue: r.queue, N: n}
	stored, err := effective.ReadQueue(ctx, client, r.queue)
	if err != nil {
		t.Fatal(err)
	}
	was := partition.Layout{Queue: r.queue, N: max(stored.Partitions, 1)}
	stored.Partitions = n
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if err := asynqwire.RegisterQueues(ctx, client, layout.Names()...); err != nil {
		t.Fatal(err)
	}
	for _, home := range slices.Backward(layout.Names()) {
		key := store.Key(home, "limits")
		if err := client.HSet(ctx, key, "*", text, store.SumField, layout.Sum()).Err(); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			client.HDel(ctx, key, store.SumField)
		}
	}
	for _, home := range was.Names()[min(n, was.N):] {
		client.Del(ctx, store.Key(home, "limits")) // so that no producer enqueues there
	}
	store.Announce(ctx, client, r.queue)
	return layout
}

// tenantOf returns a tenant of a partition.
func tenantOf(l partition.Layout, home string) string {
	for i := 0; ; i++ {
		if tenant := fmt.Sprint("t", i); l.Home(tenant) == home {
			return tenant
		}
	}
}

// addTo enqueues a job of a tenant of each of these partitions, and returns the ids.
func (r *rig) addTo(t *testing.T, l partition.Layout, homes ...string) (ids []string) {
	t.Helper()
	for _, home := range homes {
		ids = append(ids, r.add(t, func(job *Job) { job.Tenant = tenantOf(l, home) }))
	}
	return ids
}

// sessions returns the partitions of the worker's sessions, by id.
func (r *rig) sessions(t *testing.T) map[string][]string {
	t.Helper()
	all, err := asynq.NewInspectorFromRedisClient(r.server.Client()).Servers()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, s := range all {
		if homes := slices.Sorted(maps.Keys(s.Queues)); slices.Contains(homes, r.queue) {
			found[s.ID] = homes
		}
	}
	return found
}

// allOf waits for the calls of jobs, each once, in any order.
func allOf(t *testing.T, called <-chan string, ids ...string) {
	t.Helper()
	var got []string
	for range ids {
		select {
		case id := <-called:
			got = append(got, id)
		case <-time.After(time.Minute):
			t.Fatalf("%v were called; want %v", got, ids)
		}
	}
	slices.Sort(got)
	if slices.Sort(ids); !slices.Equal(got, ids) {
		t.Fatalf("%v were called; want %v", got, ids)
	}
}

// TestWorkerFollowsPartitions: a worker whose queue gets other partitions soon serves these, and stays ready. A call
// that is in flight meanwhile goes on, however short the timeout of a stop, and its job stays with the worker.
func TestWorkerFollowsPartitions(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]int{"divided": {1, 2}, "undivided": {2, 1}, "divided twice": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logged := &logtest.Buffer{}
			r := startRig(t, -1, limitsOf(perTenant(1000)), func(c *Config) {
				c.ShutdownTimeout, c.Logger = time.Nanosecond, slog.New(slog.NewTextHandler(logged, nil))
			})
			r.worker.check = time.Hour // it is the announcement that it follows
			before := r.repartition(t, changes[0])
			home := before.Name(before.N)
			called, ends, long := make(chan string), make(chan struct{}), r.addTo(t, before, home)[0]
			r.answer = func(ctx context.Context, job Running) error {
				called <- job.ID
				if job.ID != long {
					return nil
				}
				select {
				case <-ends:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			r.run(t)
			allOf(t, called, long)
			served := func(layouts ...partition.Layout) bool {
				if err := r.worker.Ready(); err != nil {
					t.Fatal(err)
				}
				var want [][]string
				for _, l := range layouts {
					want = append(want, l.Names())
				}
				slices.SortFunc(want, slices.Compare)
				return slices.EqualFunc(slices.SortedFunc(maps.Values(r.sessions(t)), slices.Compare), want, slices.Equal)
			}
			jobs, now := 1, before
			for _, n := range changes[1:] {
				now = r.repartition(t, n)
				until(t, "served by the first and a new session", func() bool { return served(before, now) })
				allOf(t, called, r.addTo(t, now, now.Names()...)...)
				jobs += n
				says := fmt.Sprintf(`msg="the queue's partitions changed; serving the new ones" queue=%s partitions=%d`, r.queue, n)
				if logs := strings.Count(logged.String(), says); logs != 1 {
					t.Errorf("logged %d times: %s\n%s", logs, says, logged)
				}
			}
			owner := workers.Of(r.server.Client().HGet(t.Context(), asynqwire.Key(home, "t:"+long), "hg_owner").Val())
			if !slices.Equal(r.sessions(t)[owner], before.Names()) {
				t.Errorf("the job in flight is of %q; want the first session of %v", owner, r.sessions(t))
			}
			close(ends)
			r.seen.wait(t, string(lifecycle.Done), jobs)
			until(t, "served by the last session alone", func() bool { return served(now) })
			if n := r.jobs[long]; n != 1 {
				t.Errorf("the job in flight was called %d times", n)
			}
		})
	}
}

// TestChangeKnowsCallsInFlight: a job that is called is not called again by the next session, even if another worker
// has taken it for abandoned.
func TestChangeKnowsCallsInFlight(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(1000)), nil)
	two := partition.Layout{Queue: r.queue, N: 2}
	id := r.addTo(t, two, r.queue)[0]
	called, ends := make(chan string, 2), make(chan struct{})
	r.answer = func(_ context.Context, job Running) error {
		called <- job.ID
		<-ends
		return nil
	}
	r.run(t)
	allOf(t, called, id)
	r.repartition(t, 2)
	until(t, "served by two sessions", func() bool { return len(r.sessions(t)) == 2 })
	r.takeOver(t, id)
	until(t, "handed to the new session", func() bool {
		return len(r.sessions(t)[workers.Of(r.field(t, id, "hg_owner"))]) == 2
	})
	close(ends)
	until(t, "ended", func() bool { return r.server.Client().Exists(t.Context(), asynqwire.Key(r.queue, "t:"+id)).Val() == 0 })
	r.stop()
	if n := r.jobs[id]; n != 1 {
		t.Errorf("it was called %d times", n)
	}
}

// TestStopAfterAChange: a worker that stops waits for the calls of all its sessions.
func TestStopAfterAChange(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(perTenant(1000)), nil)
	id := r.add(t, nil)
	called, ends := make(chan string, 1), make(chan struct{})
	r.answer = func(_ context.Context, job Running) error {
		called <- job.ID
		<-ends
		return nil
	}
	r.run(t)
	allOf(t, called, id)
	r.repartition(t, 2)
	until(t, "served by two sessions", func() bool { return len(r.sessions(t)) == 2 })
	stopped := make(chan struct{})
	go func() {
		r.stop()
		close(stopped)
	}()
	until(t, "the second session has ended", func() bool { return len(r.sessions(t)) == 1 })
	select {
	case <-stopped:
		t.Error("Run returned during a call of the first session")
	case <-time.After(100 * time.Millisecond):
	}
	close(ends)
	<-stopped
	if n := r.seen.outcomes(lifecycle.Done); n != 1 {
		t.Errorf("%d calls ended well; want 1", n)
	}
}

// TestChangeGivesBackWhatIsHeld: jobs that wait for their slots when their queue gets other partitions are each
// called once.
func TestChangeGivesBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	const jobs = 200
	r := startRig(t, jobs, limitsOf(perTenant(100)), nil)
	two := partition.Layout{Queue: r.queue, N: 2}
	r.enqueue(t, tenantOf(two, r.queue), jobs) // in the first partition before and after
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), jobs/5)
	r.repartition(t, 2)
	until(t, "it serves both", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(r.sessions(t))), func(homes []string) bool { return len(homes) == 2 })
	})
	r.receiver.wait(t)
	r.seen.wait(t, string(lifecycle.Done), jobs)
	r.stop()
	for id, calls := range r.jobs {
		if calls != 1 {
			t.Errorf("job %s was called %d times", id, calls)
		}
	}
	if !slices.ContainsFunc(r.seen.gatings, func(g Gating) bool { return g.Reason == ParkedByStop }) {
		t.Error("no job waited for its slot at the changes")
	}
}

// TestChangeKeepsConcurrency: a worker never holds more jobs than it may, also while calls go on from before its
// queue got other partitions.
func TestChangeKeepsConcurrency(t *testing.T) {
	t.Parallel()
	const most, more = 3, 6
	r := startRig(t, 2+more, limitsOf(perTenant(1000)), func(c *Config) { c.Concurrency = most })
	var mu sync.Mutex
	var now, highest int
	called, ends := make(chan string, 2+more), make(chan struct{})
	r.answer = func(_ context.Context, job Running) error {
		mu.Lock()
		now++
		highest = max(highest, now)
		mu.Unlock()
		called <- job.ID
		<-ends
		mu.Lock()
		now--
		mu.Unlock()
		return nil
	}
	r.run(t)
	ids := []string{r.add(t, nil), r.add(t, nil)}
	allOf(t, called, ids...)
	two := r.repartition(t, 2)
	until(t, "served by two sessions", func() bool { return len(r.sessions(t)) == 2 })
	for range more / 2 {
		r.addTo(t, two, two.Names()...)
	}
	<-called // of the second session
	r.seen.mu.Lock()
	rounds := r.seen.n["round"]
	r.seen.mu.Unlock()
	r.seen.wait(t, "round", rounds+20)
	close(ends)
	r.receiver.wait(t)
	r.stop()
	if highest > most {
		t.Errorf("%d calls at once; want at most %d", highest, most)
	}
	for _, round := range r.seen.rounds {
		if round.Held > most {
			t.Errorf("it holds %d jobs; want at most %d", round.Held, most)
		}
	}
}

// TestChangeThatCannotBeFollowed: while the partitions that a queue got cannot be served, the worker is not ready,
// and serves those that it had. It tries again until it can.
func TestChangeThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	logged := &logtest.Buffer{}
	r := startRigAt(t, redistest.Start(t).Redis(), -1, limitsOf(perTenant(1000)), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	called := make(chan string, 2)
	r.answer = func(_ context.Context, job Running) error {
		called <- job.ID
		return nil
	}
	two := partition.Layout{Queue: r.queue, N: 2}
	aggregates := asynqwire.Key(two.Name(2), "aggregation_sets")
	r.server.Client().SAdd(t.Context(), aggregates, "x")
	r.worker.check = time.Hour // it is the announcement that it follows
	r.run(t)
	until(t, "ready", func() bool { return r.worker.Ready() == nil }) // after a check, of two commands
	r.repartition(t, 2)
	r.seen.wait(t, "to redis: info", 2+2*2)
	until(t, "not ready", func() bool { return r.worker.Ready() != nil })
	if err := r.worker.Ready(); !strings.Contains(err.Error(), "an asynq server aggregates the groups of queue") {
		t.Error(err)
	}
	allOf(t, called, r.addTo(t, two, r.queue)...)
	r.server.Client().Del(t.Context(), aggregates)
	allOf(t, called, r.addTo(t, two, two.Name(2))...)
	until(t, "ready", func() bool { return r.worker.Ready() == nil })
	if n := strings.Count(logged.String(), "cannot serve the changed partitions"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged)
	}
}

// TestStoppedDispatcherHoldsNoPlaces: a dispatcher that stops gives back the places that it had reserved for the
// jobs of a reply that was lost. Another session may have them.
func TestStoppedDispatcherHoldsNoPlaces(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	d, wire, _ := r.unheardRounds(t)
	wire.LoseReply(store.DispatchScript.Hash())
	if _, err := d.round(t.Context(), d.room()); err == nil || d.capacity.taken.Load() == 0 {
		t.Fatalf("%v, and %d places are taken; want a lost reply", err, d.capacity.taken.Load())
	}
	wire.Cut()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	d.Run(ctx)
	if n := d.capacity.taken.Load(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
