package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// moving is a queue whose number of partitions changes while jobs come and go.
type moving struct {
	server *redistest.Redis
	queue  string

	log logtest.Buffer // errors of workers

	mu      sync.Mutex
	calls   map[string][]int // by tenant, in order
	flying  map[string]int   // calls in flight, by tenant
	wrong   []string
	workers []func() // stop each
}

const (
	movingTenants = 24
	movingQuota   = 100
	movingJobs    = 130 // of each tenant: more than its quota
)

func (m *moving) publish(t *testing.T, n int) {
	t.Helper()
	err := operate.Publish(t.Context(), m.server.Client(), limits.Set{Queues: map[string]limits.Queue{m.queue: {Partitions: n, Limits: []limits.Limit{
		{Name: "quota", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: movingQuota, Period: 24 * time.Hour}, Per: []string{"tenant"}},
		{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
}

// work starts a worker.
func (m *moving) work(t *testing.T) {
	t.Helper()
	worker := newWorker(t, Config{Redis: m.server.Options(), Queues: []string{m.queue}, Logger: slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelError}))})
	Handle(worker, "call", func(ctx context.Context, i int) error {
		job, _ := Current(ctx)
		m.mu.Lock()
		if m.flying[job.Tenant]++; m.flying[job.Tenant] > 1 {
			m.wrong = append(m.wrong, fmt.Sprintf("two calls of %s at once", job.Tenant))
		}
		m.calls[job.Tenant] = append(m.calls[job.Tenant], i)
		m.mu.Unlock()
		time.Sleep(rand.N(3 * time.Millisecond))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.flying[job.Tenant]--
		return nil
	})
	m.workers = append(m.workers, runWorker(t, worker))
	until(t, "ready", func() bool { return worker.Ready() == nil })
}

// replace stops the oldest worker and starts another one.
func (m *moving) replace(t *testing.T) {
	t.Helper()
	m.work(t)
	stop := m.workers[0]
	m.workers = m.workers[1:]
	stop()
}

// produce enqueues the jobs of all tenants in their order, each of them twice, until done is closed; then the
// rest at once.
func (m *moving) produce(t *testing.T, done <-chan struct{}) {
	client := NewClient(m.server.Client())
	for i := range movingJobs {
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		defer cancel()
		var jobs []Job
		for tenant := range movingTenants {
			jobs = append(jobs, Job{Kind: "call", Queue: m.queue, Tenant: fmt.Sprint("t", tenant), Payload: i, Key: fmt.Sprint(i)})
		}
		for range 2 {
			for n, result := range client.EnqueueMany(ctx, jobs) {
				if result.Err != nil {
					t.Errorf("job %d of %s: %v", i, jobs[n].Tenant, result.Err)
				}
			}
		}
		select {
		case <-done:
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// moved waits until no tenant moves any more.
func (m *moving) moved(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprintf("in %d partitions", n), func() bool {
		l, err := store.ReadLayout(t.Context(), m.server.Client(), m.queue)
		if err != nil {
			t.Fatal(err)
		}
		return l.From == nil && l.N == n
	})
}

// used reports whether every tenant has used its quota and no call is in flight. A permit that is taken is not used
// yet: it may be of a job that a worker gave back with its slot.
func (m *moving) used(t *testing.T) bool {
	m.mu.Lock()
	calls := 0
	for _, of := range m.calls {
		calls += len(of)
	}
	m.mu.Unlock()
	if calls < movingTenants*movingQuota {
		return false
	}
	g, err := inspect.New(m.server.Client()).Gauges(t.Context(), m.queue)
	return err == nil && g.Active == 0 && g.Pending == 0 && g.Waiting+g.Completed == movingTenants*movingJobs
}

// TestPartitionsChangeUnderLoad: while jobs are enqueued and called, a queue gets more and fewer partitions, and
// the workers that move its tenants are replaced. Each job is called once, or waits; each tenant has its jobs
// called in their order and one at a time, and no more of them than its quota, which is used up.
func TestPartitionsChangeUnderLoad(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	m := &moving{server: redistest.Any(t), queue: redistest.Queue(t), calls: map[string][]int{}, flying: map[string]int{}}
	m.publish(t, 1)
	m.work(t)
	m.work(t)
	done, produced := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(produced)
		m.produce(t, done)
	}()
	for i, n := range []int{4, 2, 7, 3, 1, 2} {
		m.publish(t, n)
		if i%2 == 0 {
			m.replace(t) // in the middle of the change
		}
		m.moved(t, n)
	}
	close(done)
	<-produced
	client := m.server.Client()
	until(t, "used up", func() bool { return m.used(t) })
	for _, stop := range m.workers {
		stop()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range m.wrong {
		t.Error(text)
	}
	in := inspect.New(client)
	for tenant, calls := range m.calls {
		for i, n := range calls {
			if n != i {
				t.Errorf("%s: call %d is of job %d: %v", tenant, i, n, calls)
				break
			}
		}
		page, err := in.ListJobs(t.Context(), m.queue, inspect.JobQuery{State: lifecycle.StateWaiting, Tenant: tenant, Limit: 100})
		if err != nil || len(calls) != movingQuota || len(calls)+len(page.Jobs) != movingJobs {
			t.Errorf("%s: %d calls, and %d jobs wait, %v", tenant, len(calls), len(page.Jobs), err)
		}
	}
	if r, err := NewClient(client).Result(t.Context(), m.queue, "t0:0"); err != nil || r.State != lifecycle.StateCompleted {
		t.Errorf("%+v, %v", r, err)
	}
	if text := m.log.String(); text != "" {
		t.Errorf("errors of workers:\n%s", text)
	}
	expires := regexp.MustCompile(`:(answers|handed|lead|watcher|audit|vtime|limits|processed|failed)`)
	for _, tag := range []string{"headgate", "asynq"} {
		for _, key := range redistest.Keys(t, client, tag+":{"+m.queue+"@[3-9]}:*") {
			if !expires.MatchString(key) {
				t.Errorf("%s is left of a partition that the queue has no more", key)
			}
		}
	}
}

// TestJobsOfATenantThatMoves: a tenant takes jobs in one of its two partitions at a time, and none while its jobs
// are on their way.
func TestJobsOfATenantThatMoves(t *testing.T) {
	t.Parallel()
	m := &moving{server: redistest.Any(t), queue: redistest.Queue(t)}
	m.publish(t, 1)
	m.publish(t, 2)
	client, ctx := m.server.Client(), t.Context()
	l, err := store.ReadLayout(ctx, client, m.queue)
	if err != nil || l.From == nil {
		t.Fatalf("%+v, %v", l, err)
	}
	if o, err := inspect.New(client).Overview(ctx, m.queue); err != nil || o.Moving == nil || *o.Moving != (inspect.Moving{Queue: m.queue, From: 1, To: 2}) {
		t.Errorf("the overview says %v, %v", o.Moving, err)
	}
	tenant := tenantOf(partition.Layout{Queue: m.queue, N: 2}, l.Name(2))
	stays := tenantOf(partition.Layout{Queue: m.queue, N: 2}, m.queue)
	for _, c := range []struct {
		what      string
		old, next map[string]string // the states in the two partitions
		in        string            // which of them takes jobs
	}{
		{"it has not moved", nil, nil, "old"},
		{"it stops", map[string]string{tenant: "stop"}, nil, "old"},
		{"it is to come", map[string]string{tenant: "stop"}, map[string]string{tenant: "comes x"}, "old"},
		{"it has left", map[string]string{tenant: "left x"}, map[string]string{tenant: "comes x"}, ""},
		{"it has arrived", map[string]string{tenant: "left x"}, map[string]string{tenant: "here"}, "next"},
		{"it is gone", map[string]string{tenant: "gone"}, map[string]string{tenant: "here"}, "next"},
		{"nobody knew it", map[string]string{"*": l.Sum()}, nil, ""},
		{"an earlier change", map[string]string{"*": "~earlier"}, nil, "old"},
		{"it stops late", map[string]string{tenant: "stop", "*": l.Sum()}, nil, ""},
	} {
		for i, states := range []map[string]string{c.old, c.next} {
			client.Del(ctx, store.MovesKey(l.Name(i+1)))
			for tenant, state := range states {
				client.HSet(ctx, store.MovesKey(l.Name(i+1)), tenant, state)
			}
		}
		enqueue := func(tenant string, try int) error {
			c := NewClient(client)
			r := c.enqueueOne(ctx, Job{Kind: "call", Queue: m.queue, Tenant: tenant, Payload: c}, try)
			if r.Err == nil && r.State != lifecycle.StateWaiting || r.Err != nil && !errors.Is(r.Err, errNoPartition) {
				t.Errorf("%+v", r)
			}
			return r.Err
		}
		for try, name := range []string{"old", "next"} {
			if err := enqueue(tenant, try); (err == nil) != (c.in == name) {
				t.Errorf("%s: a job for its %s partition: %v", c.what, name, err)
			}
			if err := enqueue(stays, try); err != nil {
				t.Errorf("%s: a job of a tenant that stays: %v", c.what, err)
			}
		}
		if strings.HasPrefix(c.old[tenant], "left") || c.in == "" {
			continue // who asks for its partition waits
		}
		home, _, err := store.HomeOf(ctx, client, l, tenant)
		if want := map[string]string{"next": l.Name(2)}[c.in]; err != nil || home != cmp.Or(want, m.queue) {
			t.Errorf("%s: it is in %s, %v", c.what, home, err)
		}
	}
}

// TestSlotOfAJobThatMoves: a job that waits with a slot, because its worker stopped, gives the slot's permits back before
// it moves.
func TestSlotOfAJobThatMoves(t *testing.T) {
	t.Parallel()
	day := limits.Limit{Name: "day", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 5, Period: 24 * time.Hour}, Per: []string{"tenant"}}
	r := startRig(t, -1, limitsOf(perTenant(20), day), nil)
	ctx, client := t.Context(), r.server.Client()
	id := r.add(t, nil)
	r.release(t, r.dispatcher(), 1)
	r.giveBack(t, id)
	if _, latest := parseSlot(t, r.field(t, id, "hg_slot")); latest == 0 {
		t.Fatal("it has no slot")
	}
	err := operate.Publish(ctx, client, limits.Set{
		Queues:  map[string]limits.Queue{r.queue: {Partitions: 2, Limits: []limits.Limit{perTenant(20), day}}},
		Tenants: map[string]limits.Tenant{"a": {Partition: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.ReadLayout(ctx, client, r.queue)
	if err != nil || l.From == nil {
		t.Fatalf("%+v, %v", l, err)
	}
	(&mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: client, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	slot := client.HGet(ctx, asynqwire.Key(l.Name(2), "t:"+id), "hg_slot").Val()
	if n := client.LLen(ctx, store.Key(l.Name(2), "b:day:a")).Val(); n > 1 || !strings.HasPrefix(slot, "0 0 ") {
		t.Errorf("it has the slot %q, and a log of %d entries; want that without a permit", slot, n)
	}
}

// TestDirectCallsOfATenantThatMoves: direct calls in flight hold their places also after their tenant has moved, and
// are renewed and released where it is then.
func TestDirectCallsOfATenantThatMoves(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(inFlight(2, "tenant"), perHour("hour", 2)), nil)
	ctx, client := t.Context(), r.server.Client()
	calls := make([]*Permit, 2)
	for i := range calls {
		var err error
		if calls[i], err = r.client.Take(ctx, r.call("a")); err != nil {
			t.Fatal(err)
		}
		defer calls[i].stop()
	}
	for i, n := range []int{2, 1} { // there, and back to a partition that knows the calls
		err := operate.Publish(ctx, client, limits.Set{
			Queues:  map[string]limits.Queue{r.queue: {Partitions: 2, Limits: []limits.Limit{inFlight(2, "tenant"), perHour("hour", 2)}}},
			Tenants: map[string]limits.Tenant{"a": {Partition: n}},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := store.ReadLayout(ctx, client, r.queue)
		if err != nil || l.From == nil {
			t.Fatalf("%+v, %v", l, err)
		}
		(&mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: client, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		if n, refused := r.takes(t, r.call("a")); n != 0 || refused.Reason != ParkedByConcurrency {
			t.Errorf("%d calls beside two of two, then %+v", n, refused)
		}
		home := l.Name(n)
		places := store.Key(home, "permits:x:a")
		ends := client.ZScore(ctx, places, calls[i].id).Val()
		if _, err := calls[i].end(ctx, "renew", fmt.Sprint(time.Hour.Microseconds())); err != nil {
			t.Fatal(err)
		}
		if later := client.ZScore(ctx, places, calls[i].id).Val(); ends == 0 || later <= ends || client.TTL(ctx, places).Val() < 59*time.Minute {
			t.Errorf("renewed in %s, a place of until %.0f ends at %.0f", home, ends, later)
		}
	}
	if err := calls[0].Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := r.client.Wait(ctx, r.call("a"), time.Minute)
	if err != nil {
		t.Fatalf("in the place of a call that was cancelled: %v", err)
	}
	p.stop()
}

// TestManyJobsOfATenantThatArrives: jobs that are enqueued together keep their order, whenever their tenant arrives.
func TestManyJobsOfATenantThatArrives(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := &moving{server: server.Redis(), queue: "q"}
	m.publish(t, 1)
	m.publish(t, 2)
	client, ctx := server.Client(), t.Context()
	layout := partition.Layout{Queue: "q", N: 2}
	tenant := tenantOf(layout, "q@2")
	client.HSet(ctx, store.MovesKey("q"), tenant, "left x")
	client.HSet(ctx, store.MovesKey("q@2"), tenant, "comes x")
	other := redis.NewClient(client.Options())
	defer other.Close()
	var once sync.Once // the tenant arrives after a request with its jobs was refused where it arrives
	other.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") && len(args) > 5 && args[5] == "q@2" {
			once.Do(func() { client.HSet(ctx, store.MovesKey("q@2"), tenant, store.MoveHere) })
		}
		return err
	}))
	var jobs []Job
	for i := range 3 * maxBatch {
		jobs = append(jobs, Job{Kind: "call", Queue: "q", Tenant: tenant, Key: fmt.Sprint(i)})
	}
	for i, result := range NewClient(other).EnqueueMany(ctx, jobs) {
		if result.Err != nil {
			t.Fatalf("job %d: %v", i, result.Err)
		}
	}
	ids := client.ZRange(ctx, asynqwire.Key("q@2", "g:"+tenant+";kind=call"), 0, -1).Val()
	for i := range jobs {
		if i >= len(ids) || ids[i] != fmt.Sprintf("%s:%d", tenant, i) {
			t.Fatalf("job %d of %d is not in its place: %v", i, len(ids), ids)
		}
	}
}
