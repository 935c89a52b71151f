package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/chores"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// receiver takes the place of the provider and records when each call arrives.
type receiver struct {
	mu    sync.Mutex
	calls map[string][]time.Time // by tenant
	jobs  map[string]int         // by job id
	total int
	want  int
	full  chan struct{}
}

func newReceiver(want int) *receiver {
	return &receiver{calls: map[string][]time.Time{}, jobs: map[string]int{}, want: want, full: make(chan struct{})}
}

func (r *receiver) take(ctx context.Context) {
	now := time.Now()
	job, _ := Current(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[job.Tenant] = append(r.calls[job.Tenant], now)
	r.jobs[job.ID]++
	if r.total++; r.total == r.want {
		close(r.full)
	}
}

func (r *receiver) handle(ctx context.Context, _ json.RawMessage) error {
	r.take(ctx)
	return nil
}

// wait blocks until all wanted calls have come.
func (r *receiver) wait(t *testing.T) {
	t.Helper()
	select {
	case <-r.full:
	case <-time.After(hang):
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Fatalf("%d of %d calls after %v", r.total, r.want, hang)
	}
}

// hang is how long a test waits for what must happen. How soon it must is for the tests that are measured.
const hang = time.Minute

func (r *receiver) all() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Time
	for _, calls := range r.calls {
		all = append(all, calls...)
	}
	return all
}

// counter is an observer that counts, with a method to wait for a count.
type counter struct {
	NoObserver
	mu      sync.Mutex
	changed *sync.Cond
	n       map[string]int
	gatings []Gating
	calls   []Called
	rounds  []Round

	dispatched func(Round) // is called with each round; nil: nothing
}

func newCounter() *counter {
	c := &counter{n: map[string]int{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *counter) count(what string) {
	c.mu.Lock()
	c.n[what]++
	c.mu.Unlock()
	c.changed.Broadcast()
}

func (c *counter) Gated(_ string, g Gating) {
	c.mu.Lock()
	c.gatings = append(c.gatings, g)
	c.mu.Unlock()
	c.count(g.Decision)
}

func (c *counter) Called(_ string, call Called) {
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	c.count("called")
}

func (c *counter) Dispatched(_ string, round Round) {
	c.mu.Lock()
	c.rounds = append(c.rounds, round)
	c.mu.Unlock()
	if c.dispatched != nil {
		c.dispatched(round)
	}
	c.count("round")
}

func (c *counter) Finished(_, _ string, outcome lifecycle.Outcome) { c.count(string(outcome)) }

func (c *counter) RoundTrip(trip RoundTrip) { c.count("to redis: " + trip.Command) }
func (c *counter) outcomes(outcome lifecycle.Outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[string(outcome)]
}

// wait blocks until a count has been reached.
func (c *counter) wait(t *testing.T, what string, n int) {
	t.Helper()
	given := time.AfterFunc(hang, c.changed.Broadcast)
	defer given.Stop()
	end := time.Now().Add(hang)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n[what] < n {
		if time.Now().After(end) {
			t.Fatalf("%s: %d of %d after %v; all: %v", what, c.n[what], n, hang, c.n)
		}
		c.changed.Wait()
	}
}

// rig is a worker with its own queue and a receiver.
type rig struct {
	*receiver
	queue  string
	client *Client
	server *redistest.Redis
	worker *Worker
	stop   func()
	seen   *counter
	answer func(context.Context, Running) error // of the handler; nil: success

	retriesIn time.Duration // how long a failed job waits for its next try; 0: as by default
}

func startRig(t *testing.T, want int, set limits.Set, edit func(*Config)) *rig {
	t.Helper()
	return startRigAt(t, redistest.Any(t), want, set, edit)
}

func startRigAt(t *testing.T, server *redistest.Redis, want int, set limits.Set, edit func(*Config)) *rig {
	t.Helper()
	r := &rig{receiver: newReceiver(want), server: server, queue: redistest.Queue(t), client: NewClient(server.Client())}
	r.client.direct.pickup = directNear // a direct call that misses its slot may lose a permit
	set.Queues = map[string]limits.Queue{r.queue: set.Queues[""]}
	for tenant, own := range set.Tenants {
		if changes, ok := own.Limits[""]; ok {
			own.Limits = map[string]map[string]limits.Change{r.queue: changes}
			set.Tenants[tenant] = own
		}
	}
	if err := operate.Publish(t.Context(), server.Client(), set); err != nil {
		t.Fatal(err)
	}
	// Redis has the script, so the reply that a test loses is not NOSCRIPT.
	if _, err := store.SettleScript.Run(t.Context(), server.Client(), store.ScriptKeys(r.queue), r.queue, "none", 0, "2026-01-01", 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		client := server.Client()
		faults, err := inspect.Faults(context.Background(), client, r.queue)
		t.Logf("faults of the scripts: %+v, %v", faults, err)
		left := redistest.Keys(t, client, asynqwire.Key(r.queue, "t:*"))
		for _, key := range left[:min(len(left), 5)] {
			job := client.HGetAll(context.Background(), key).Val()
			delete(job, "msg")
			t.Logf("one of %d jobs that are left: %s %v", len(left), key, job)
		}
	})
	r.makeWorker(t, edit)
	return r
}

// newWorker returns a worker with a configuration that has to be valid.
func newWorker(t testing.TB, c Config) *Worker {
	t.Helper()
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (r *rig) makeWorker(t *testing.T, edit func(*Config)) {
	t.Helper()
	config := Config{Redis: r.server.Options(), Queues: []string{r.queue}}
	if edit != nil {
		edit(&config)
	}
	r.seen = newCounter()
	config.Observer = r.seen
	worker := newWorker(t, config)
	worker.poll = slowestDispatch // tests wait for rounds
	r.worker = worker
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		r.take(ctx)
		if r.answer != nil {
			job, _ := Current(ctx)
			return r.answer(ctx, job)
		}
		return nil
	}, Backoff(func(attempt int) time.Duration {
		if r.retriesIn > 0 {
			return r.retriesIn
		}
		return defaultBackoff(attempt)
	}))
}

// retryNow lets a job be due that waits for its next try.
func (r *rig) retryNow(t *testing.T, id string) {
	t.Helper()
	client := r.server.Client()
	if err := client.ZAddXX(t.Context(), asynqwire.Key(r.queue, "retry"), zOf(id, float64(time.Now().Unix()))).Err(); err != nil {
		t.Fatal(err)
	}
	store.Announce(t.Context(), client, r.queue)
}

// beside returns another worker on the same queue with the same receiver.
func (r *rig) beside(t *testing.T, edit func(*Config)) *rig {
	t.Helper()
	other := &rig{receiver: r.receiver, queue: r.queue, client: r.client, server: r.server, answer: r.answer}
	other.makeWorker(t, edit)
	return other
}

// served makes the queue look served by a worker that takes no jobs.
func (r *rig) served(t *testing.T) {
	t.Helper()
	redistest.Serve(r.server.Client(), r.queue, "call")
}

// run starts the worker; it is stopped at the end of the test.
func (r *rig) run(t *testing.T) {
	redistest.Slow(t)
	r.stop = runWorker(t, r.worker)
}

// runWorker runs a worker until stop, or until the test ends.
func runWorker(t testing.TB, w *Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// enqueueAll enqueues jobs in their order, each of which has to be accepted, and returns their ids.
func enqueueAll(t testing.TB, c *Client, jobs ...Job) (ids []string) {
	t.Helper()
	for _, result := range c.EnqueueMany(t.Context(), jobs) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		ids = append(ids, result.ID)
	}
	return ids
}

func (r *rig) enqueue(t *testing.T, tenant string, n int) {
	t.Helper()
	enqueueAll(t, r.client, slices.Repeat([]Job{{Kind: "call", Queue: r.queue, Tenant: tenant, Payload: json.RawMessage(`{}`)}}, n)...)
}

func perTenant(rate int64) limits.Limit {
	return limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Per: []string{"tenant"}}
}

func sharedBy(rate int64) limits.Limit {
	return limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(rate)}
}

func limitsOf(set ...limits.Limit) limits.Set {
	return limits.Set{Queues: map[string]limits.Queue{"": {Limits: set}}}
}

// states counts a queue's tasks by asynq's states, as its Inspector sees them.
func (r *rig) states(t *testing.T) map[string]int {
	t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	info, err := inspector.GetQueueInfo(r.queue)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]int{
		"aggregating": info.Aggregating, "pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled,
		"retry": info.Retry, "archived": info.Archived, "completed": info.Completed,
	}
}

// archived returns the reasons of the archived jobs, by id.
func (r *rig) archived(t *testing.T) map[string]string {
	t.Helper()
	tasks, err := asynq.NewInspectorFromRedisClient(r.server.Client()).ListArchivedTasks(r.queue, asynq.PageSize(1000))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, task := range tasks {
		reasons[task.ID] = task.LastErr
	}
	return reasons
}

// add enqueues one job for tenant a and returns its id.
func (r *rig) add(t *testing.T, edit func(*Job)) string {
	t.Helper()
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}
	if edit != nil {
		edit(&job)
	}
	receipt, err := r.client.Enqueue(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return receipt.ID
}

// dispatcher returns a dispatcher of jobs of the kind call, without a worker, for tests that release jobs themselves.
func (r *rig) dispatcher() *dispatcher {
	client := r.server.Client()
	return &dispatcher{
		queue: r.queue, worker: "w", kinds: ",call,", runs: &atomic.Int64{}, hand: func([]handed) {}, redis: client, capacity: newCapacity(100), observer: NoObserver{},
		limits: &effective.Calendars{Queue: r.queue, Redis: client}, clock: &redisClock{}, pauses: &pauses{}, starving: &starvation{}, live: newLiveRuns(), roles: newRoles(client, "w"), sending: &atomic.Int64{}, poll: slowestDispatch, wakes: make(chan struct{}, 1), called: make(chan struct{}, 1), replans: newReplans(), logger: discardLogger(),
	}
}

// chores returns the chores without a worker, for tests that do them themselves.
func (r *rig) chores() *chores.Chores {
	client := r.server.Client()
	return chores.New(r.queue, partition.Layout{Queue: r.queue, N: 1}, client, &effective.Calendars{Queue: r.queue, Redis: client}, discardLogger())
}

// release makes rounds with the given room while there is more to do at once. It returns the
// ids of all jobs released so far, in order.
func (r *rig) release(t *testing.T, d *dispatcher, room int64) []string {
	t.Helper()
	active := func() int64 { return r.server.Client().LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val() }
	for before := active(); ; {
		wait, err := d.round(t.Context(), room-(active()-before))
		if err != nil {
			t.Fatal(err)
		}
		if wait > 0 || active()-before >= room {
			break
		}
	}
	ids := r.server.Client().LRange(t.Context(), asynqwire.Key(r.queue, "active"), 0, -1).Val()
	slices.Reverse(ids)
	return ids
}

func zOf(id string, score float64) redis.Z { return redis.Z{Member: id, Score: score} }

// parseSlot reads hg_slot: earliest and latest moment, µs.
func parseSlot(t *testing.T, slot string) (e, c int64) {
	t.Helper()
	var position int64
	if _, err := fmt.Sscan(slot, &e, &c, &position); err != nil {
		t.Fatalf("slot %q: %v", slot, err)
	}
	return e, c
}

func sameSlot(t *testing.T, a, b string) bool {
	t.Helper()
	e1, c1 := parseSlot(t, a)
	e2, c2 := parseSlot(t, b)
	return e1 == e2 && c1 == c2
}

// ledger counts calls by job, and the maximum at a time.
type ledger struct {
	mu        sync.Mutex
	calls     map[string]int
	now, most int
}

func newLedger() *ledger { return &ledger{calls: map[string]int{}} }

// begin returns how often the job was called.
func (l *ledger) begin(job Running) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if job.Tenant == "a" {
		l.now++
		l.most = max(l.most, l.now)
	}
	l.calls[job.ID]++
	return l.calls[job.ID]
}

func (l *ledger) end(job Running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if job.Tenant == "a" {
		l.now--
	}
}

// all returns how many jobs were called.
func (l *ledger) all() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

func (l *ledger) of(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[id]
}

// once checks that each of these jobs was called once, and no other job.
func (l *ledger) once(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		if n := l.of(id); n != 1 {
			t.Errorf("job %s was called %d times; want once", id, n)
		}
	}
	if n := l.all(); n != len(ids) {
		t.Errorf("%d jobs were called; want the %d that were enqueued", n, len(ids))
	}
}
