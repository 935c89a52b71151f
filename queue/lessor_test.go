package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// leased is a queue in four partitions that share limits, and what its workers called.
type leased struct {
	t       *testing.T
	client  redis.UniversalClient
	options *redis.UniversalOptions
	layout  partition.Layout
	set     limits.Set
	costs   map[string]int64 // of each job
	used    map[string]int64 // what its call says that it used; nil: nothing
	seen    *counter
	ids     []string // of all jobs
	stops   []func() // end its workers
	called  *ledger

	mu      sync.Mutex
	calls   []time.Time
	tenants map[string][]time.Time
}

func newLeased(t *testing.T, server *redistest.Redis, all ...limits.Limit) *leased {
	l := &leased{t: t, client: server.Client(), options: server.Options(), layout: partition.Layout{Queue: "q", N: 4}, seen: newCounter(), called: newLedger(), tenants: map[string][]time.Time{}}
	l.publish(all...)
	return l
}

func (l *leased) publish(all ...limits.Limit) {
	l.set = limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call"}, Partitions: l.layout.N, Limits: all}}}
	if err := operate.Publish(l.t.Context(), l.client, l.set); err != nil {
		l.t.Fatal(err)
	}
}

// weigh gives tenants weights other than 1.
func (l *leased) weigh(weights map[string]float64) {
	l.set.Tenants = map[string]limits.Tenant{}
	for tenant, weight := range weights {
		l.set.Tenants[tenant] = limits.Tenant{Weight: weight}
	}
	if err := operate.Publish(l.t.Context(), l.client, l.set); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leased) weight(tenant string) float64 {
	if t, ok := l.set.Tenants[tenant]; ok {
		return t.Weight
	}
	return 1
}

func (l *leased) enqueue(n int, tenants ...string) {
	var jobs []Job
	for i := range n * len(tenants) {
		jobs = append(jobs, Job{Kind: "call", Queue: "q", Tenant: tenants[i%len(tenants)], Payload: 1, Costs: l.costs})
	}
	l.ids = append(l.ids, enqueueAll(l.t, NewClient(l.client), jobs...)...)
}

// of returns n tenants of a partition.
func (l *leased) of(home string, n int) (tenants []string) {
	for i := 0; len(tenants) < n; i++ {
		if tenant := fmt.Sprint("t", i); l.layout.Home(tenant) == home {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// everywhere returns n tenants of each partition.
func (l *leased) everywhere(n int) (tenants []string) {
	for _, home := range l.layout.Names() {
		tenants = append(tenants, l.of(home, n)...)
	}
	return tenants
}

func (l *leased) work() (stop func()) {
	redistest.Slow(l.t)
	worker := newWorker(l.t, Config{Redis: l.options, Queues: []string{"q"}, ShutdownTimeout: time.Second, Observer: l.seen})
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		now := time.Now()
		job, _ := Current(ctx)
		l.called.begin(job)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, now)
		l.tenants[job.Tenant] = append(l.tenants[job.Tenant], now)
		if l.used != nil {
			return SetActual(ctx, l.used)
		}
		return nil
	})
	stop = runWorker(l.t, worker)
	l.stops = append(l.stops, stop)
	return stop
}

// end lets all jobs end at a higher rate, stops the workers, and checks that each job was called once.
func (l *leased) end() {
	l.t.Helper()
	l.publish(sharedLimit(throttle.LeakyBucket, 300, 0))
	until(l.t, "all jobs are done", func() bool { return l.seen.outcomes(lifecycle.Done) >= len(l.ids) })
	for _, stop := range l.stops {
		stop()
	}
	l.called.once(l.t, l.ids)
}

func (l *leased) all() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// wait returns once n more calls were made, and when the first of them was.
func (l *leased) wait(n int) time.Time {
	l.t.Helper()
	before := len(l.all())
	until(l.t, fmt.Sprint(n, " more calls are made"), func() bool { return len(l.all()) >= before+n })
	return l.all()[before]
}

// since returns the calls after a moment.
func since(calls []time.Time, from time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(calls), func(at time.Time) bool { return at.Before(from) })
}

// sharedLimit is a limit of a rate for all tenants of a queue.
func sharedLimit(algorithm throttle.Algorithm, rate, burst int64) limits.Limit {
	return limits.Limit{Name: "account", Algorithm: algorithm, Rate: throttle.PerSecond(rate), Burst: burst}
}

// TestTimedSharedLimits: what the partitions of a queue do together under a limit that they share.
func TestTimedSharedLimits(t *testing.T) {
	t.Parallel()
	sideBySide(t, map[string]sharedCase{"fair": sharedFairly, "where the jobs are": sharedByNeed, "own limits": sharedBesideOwn, "metered": sharedMetered})
}

// TestTimedSharedLimitsThroughFaults: the same while workers stop, limits change, and a node does not answer.
func TestTimedSharedLimitsThroughFaults(t *testing.T) {
	t.Parallel()
	sideBySide(t, map[string]sharedCase{"changes": sharedThroughChanges, "partitions": sharedThroughPartitions, "a node away": sharedBesideAway(false), "the first node away": sharedBesideAway(true)})
}

// sharedCase makes calls, and returns what judges them.
type sharedCase func(t *testing.T) (judge func(run *pacer.Run))

// sideBySide runs cases at the same time, each with a Redis of its own.
func sideBySide(t *testing.T, cases map[string]sharedCase) {
	t.Helper()
	measured(t, func(t *testing.T, run *pacer.Run) {
		var mu sync.Mutex
		judges := map[string]func(*pacer.Run){}
		t.Run("cases", func(t *testing.T) {
			for name, one := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					judge := one(t)
					mu.Lock()
					defer mu.Unlock()
					judges[name] = judge
				})
			}
		})
		for _, judge := range judges {
			judge(run)
		}
	})
}

// sharedFairly: all partitions together keep the law of a limit and use it, and share it fairly between
// their tenants by weight, whichever partition these are in.
func sharedFairly(t *testing.T) func(run *pacer.Run) {
	const rate = 100
	server := redistest.Own(t)
	l := newLeased(t, server, sharedLimit(throttle.LeakyBucket, rate, 0))
	tenants := l.everywhere(1)
	tenants = append(tenants, l.of("q@2", 5)[1:]...) // one partition has more of them than others
	l.weigh(map[string]float64{tenants[0]: 3, tenants[3]: 2, tenants[4]: 2})
	l.enqueue(120, tenants...)
	l.enqueue(240, tenants[0])
	l.enqueue(120, tenants[3], tenants[4])
	l.work()
	from := l.wait(rate)
	l.wait(10 * rate)
	all := l.all()
	return func(run *pacer.Run) {
		calls := since(all, from)
		run.Used("a limit of four partitions", calls, rate, 0.97)
		run.Law("a limit of four partitions", all, rate, 1)
		weights := 0.0
		for _, tenant := range tenants {
			weights += l.weight(tenant)
		}
		for _, tenant := range tenants {
			n, share := float64(len(since(l.tenants[tenant], from))), float64(len(calls))*l.weight(tenant)/weights
			run.Number("what "+tenant+" got more or less than its share", calls[0], calls[len(calls)-1], max(n/share, share/n)-1, 0.05)
		}
	}
}

// sharedByNeed: a partition that alone has jobs gets all of a limit, and gives it up within a second when
// others have jobs, too.
func sharedByNeed(t *testing.T) func(run *pacer.Run) {
	const rate = 100
	server := redistest.Own(t)
	l := newLeased(t, server, sharedLimit(throttle.LeakyBucket, rate, 0))
	alone, later := l.of("q@3", 1)[0], l.of("q@4", 1)[0]
	l.enqueue(8*rate, alone)
	l.work()
	from := l.wait(rate / 4)
	l.wait(2 * rate)
	came, before := time.Now(), l.all()
	l.enqueue(4*rate, later)
	l.wait(4 * rate)
	all := l.all()
	return func(run *pacer.Run) {
		run.Used("a limit, by one partition", since(before, from), rate, 0.97)
		run.Used("a limit, by two partitions", since(all, came), rate, 0.97)
		second := came.Add(time.Second)
		n, of := float64(len(since(l.tenants[later], second))), float64(len(since(all, second)))
		run.Number("what the second partition got more or less than half", second, all[len(all)-1], max(2*n/of, of/n/2)-1, 0.05)
		run.Law("a limit of one partition, then of two", all, rate, 1)
	}
}

// sharedThroughChanges: the law holds and the limit is used while the worker that leases stops, another one
// takes over, and the limit changes.
func sharedThroughChanges(t *testing.T) func(run *pacer.Run) {
	cluster := redistest.StartCluster(t)
	l := newLeased(t, cluster.Redis(), sharedLimit(throttle.TokenBucket, 100, 5))
	l.enqueue(200, l.everywhere(1)...)
	stop := l.work()
	l.wait(50)
	l.work()
	from := l.wait(25)
	role := l.client.Get(t.Context(), store.Key("q", "lessor")).Val()
	stop()
	l.wait(200)
	if now := l.client.Get(t.Context(), store.Key("q", "lessor")).Val(); now == "" || now == role {
		t.Errorf("worker %q leases, as before: %q", now, role)
	}
	first, lower := l.all(), time.Now()
	l.publish(sharedLimit(throttle.TokenBucket, 50, 5))
	l.wait(125)
	second, higher := l.all(), time.Now()
	l.publish(sharedLimit(throttle.TokenBucket, 150, 5))
	l.wait(300)
	all := l.all()
	l.end()
	return func(run *pacer.Run) {
		run.Used("a limit, while a worker stops", since(first, from), 100, 0.95)
		run.Law("a limit, while a worker stops", first, 100, 5)
		settled := since(second, lower.Add(time.Second))
		run.Law("a lower limit", settled, 50, 5)
		run.Used("a lower limit", settled, 50, 0.97)
		run.Used("a higher limit", since(all, higher.Add(time.Second)), 150, 0.97)
		run.Law("the highest of three limits", all, 150, 5)
	}
}

// sharedBesideOwn: what tenants leave of a shared limit, because their own limits hold them back, goes to
// others, in equal parts to those of their partition and of another one.
func sharedBesideOwn(t *testing.T) func(run *pacer.Run) {
	const rate, own = 100, 5
	server := redistest.Own(t)
	l := newLeased(t, server, sharedLimit(throttle.TokenBucket, rate, 5),
		// A call waits for a lease for a moment. With a burst, a tenant's own limit makes up for that.
		limits.Limit{Name: "tenant", Per: []string{"tenant"}, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(own), Burst: 3})
	held, free := l.of("q@2", 7)[1:], []string{l.of("q@2", 1)[0], l.of("q@3", 1)[0]}
	faster := throttle.PerSecond(2 * rate)
	l.set.Tenants = map[string]limits.Tenant{}
	for _, tenant := range free {
		l.set.Tenants[tenant] = limits.Tenant{Limits: map[string]map[string]limits.Change{"q": {"tenant": {Rate: &faster}}}}
	}
	if err := operate.Publish(t.Context(), l.client, l.set); err != nil {
		t.Fatal(err)
	}
	l.enqueue(100, held...)
	l.enqueue(6*rate, free...)
	l.work()
	from := l.wait(rate)
	l.wait(5 * rate)
	all := l.all()
	return func(run *pacer.Run) {
		run.Used("a limit beside own limits", since(all, from), rate, 0.97)
		run.Law("a limit beside own limits", all, rate, 5)
		for _, tenant := range held {
			run.Law("a tenant's own limit", l.tenants[tenant], own, 3)
			run.Used("a tenant's own limit", since(l.tenants[tenant], from), own, 0.95)
		}
		n, of := float64(len(since(l.tenants[free[0]], from))), float64(len(since(l.tenants[free[1]], from)))
		run.Number("what a tenant gets more or less than one alone in its partition", from, all[len(all)-1], max(n/of, of/n)-1, 0.1)
	}
}

// sharedMetered: partitions share tokens, of which each call takes twice as many as it uses, by their tenants.
func sharedMetered(t *testing.T) func(run *pacer.Run) {
	const rate, takes, uses, burst = 1000, 20, 10, 500
	server := redistest.Own(t)
	l := newLeased(t, server, limits.Limit{Name: "tokens", Unit: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Burst: burst})
	l.costs, l.used = map[string]int64{"tokens": takes}, map[string]int64{"tokens": uses}
	tenants := l.everywhere(1)
	tenants = append(tenants, l.of("q@2", 4)[1:]...)
	l.enqueue(120, tenants...)
	l.work()
	l.wait(burst/uses + rate/uses) // the burst
	from := l.wait(rate / uses)
	l.wait(5 * rate / uses)
	all := l.all()
	return func(run *pacer.Run) {
		calls := since(all, from)
		run.Used("a metered limit of four partitions", calls, rate/uses, 0.97)
		run.Law("a metered limit of four partitions", all, rate/uses, burst/uses)
		share := float64(len(calls)) / float64(len(tenants))
		for _, tenant := range tenants {
			n := float64(len(since(l.tenants[tenant], from)))
			run.Number("what "+tenant+" got more or less of a metered limit than its share", calls[0], calls[len(calls)-1], max(n/share, share/n)-1, 0.05)
		}
	}
}

// sharedBesideAway: what a partition would have got, whose node does not answer, goes to the others, also if it is the
// first one, and with it a seat of the ledger.
func sharedBesideAway(first bool) sharedCase {
	return func(t *testing.T) func(run *pacer.Run) {
		const rate = 100
		cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
		l := newLeased(t, cluster.Redis(), sharedLimit(throttle.LeakyBucket, rate, 0))
		node := func(home string) *redistest.Server { return cluster.Owner(cluster.Slot(store.Key(home, "waiting"))) }
		away := node("q")
		for _, home := range l.layout.Names() {
			if n := node(home); !first && n != node("q") {
				away = n
			}
		}
		l.enqueue(500, l.everywhere(1)...)
		l.work()
		l.wait(rate)
		away.Pause()
		gone := time.Now()
		l.wait(8 * rate) // longer than a request to the node can take
		meanwhile := l.all()
		away.Resume()
		l.wait(rate)
		all := l.all()
		l.end()
		return func(run *pacer.Run) {
			run.Used("a limit, by those whose node is there", since(meanwhile, gone.Add(time.Second)), rate, 0.97)
			run.Law("a limit, while a node is away and after", all, rate, 1)
		}
	}
}

// TestLeaseIsLookedForAgain: a partition to which nothing of a shared rate was leased looks again as soon as a slot could be
// given: the announcement of a lease may get lost.
func TestLeaseIsLookedForAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	l := newLeased(t, server, sharedBy(100))
	l.enqueue(2, l.of("q@2", 5)...)
	r := &rig{server: server, queue: "q@2"}
	a, err := r.dispatcher().ask(t.Context(), 10, 1)
	if err != nil || len(a.jobs) != 0 || a.again <= 0 || a.again > store.Horizon+time.Millisecond {
		t.Errorf("%d jobs go, and it looks again after %v, %v", len(a.jobs), a.again, err)
	}
}
