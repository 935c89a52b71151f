package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/seats"
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
	for _, r := range NewClient(l.client).EnqueueMany(l.t.Context(), jobs) {
		if r.Err != nil {
			l.t.Fatal(r.Err)
		}
		l.ids = append(l.ids, r.ID)
	}
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
	worker, err := New(Config{Redis: l.options, Queues: []string{"q"}, ShutdownTimeout: time.Second, Observer: l.seen})
	if err != nil {
		l.t.Fatal(err)
	}
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

// TestLessorVanishes: the worker that leases is cut off from Redis for good, without giving up its role. Once that has
// lapsed, another one leases. The quota is used up, and not exceeded by one call. Each job is called once, or waits for the
// next month.
func TestLessorVanishes(t *testing.T) {
	t.Parallel()
	const quota = 300
	server := redistest.Own(t)
	ctx, client := t.Context(), server.Client()
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: time.UTC}
	l := newLeased(t, server, month, sharedLimit(throttle.TokenBucket, 50, 5))
	tenants := l.everywhere(2)
	l.enqueue(quota/4, tenants...) // twice the quota
	leads := func() string { return client.Get(ctx, roleOf("q")).Val() }

	// The part of a worker that leases, so that no call is lost with it.
	var wire redistest.Wire
	options := l.options
	options.Dialer = wire.Dial
	vanishing := redis.NewUniversalClient(options)
	defer vanishing.Close()
	clocks, windows := map[string]*redisClock{}, map[string]*effective.Calendars{}
	for _, home := range l.layout.Names() {
		clocks[home], windows[home] = &redisClock{redis: vanishing, queue: home}, &effective.Calendars{Queue: home, Redis: vanishing}
		if err := clocks[home].start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	first := newLessor(l.layout, "first", vanishing, clocks, windows, time.Minute, newRoles(vanishing, "first"), slog.New(slog.DiscardHandler))
	running, end := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() { first.Run(running) })
	defer ended.Wait()
	defer end()
	until(t, "the first worker leases", func() bool { return leads() == "first" })
	l.options = server.Options()
	l.work()
	l.wait(50)
	if now := leads(); now != "first" {
		t.Fatalf("%q leases, not the first worker", now)
	}
	wire.Cut()
	until(t, "another one leases", func() bool { now := leads(); return now != "first" && now != "" })
	l.wait(50)
	until(t, "the quota is used up", func() bool { return len(l.all()) >= quota })
	until(t, "no job is released any more", func() bool {
		g, err := inspect.New(client).Gauges(ctx, "q")
		if err != nil || g.Active+g.Pending > 0 {
			return false
		}
		return !slices.ContainsFunc(tenants, func(tenant string) bool { return !saysNextMonth(t, l, tenant) })
	})
	called := 0
	for i, id := range l.ids {
		n := l.called.of(id)
		state := client.HGet(ctx, asynqwire.Key(l.layout.Home(tenants[i%len(tenants)]), "t:"+id), "state").Val()
		if n > 1 || n == 1 && state != "" || n == 0 && state != "aggregating" {
			t.Errorf("job %s was called %d times, and is %q", id, n, state)
		}
		called += n
	}
	if n := len(l.all()); n != quota || called != quota {
		t.Errorf("%d calls, of %d jobs; want %d", n, called, quota)
	}
}

// TestDamagedLeases: a shared limit whose bucket or ledger cannot be read is a fault that is reported, not a
// call beyond the limit.
func TestDamagedLeases(t *testing.T) {
	server := redistest.Own(t)
	client, ctx := server.Client(), t.Context()
	quota := limits.Limit{Name: "quota", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10, Period: time.Hour}}
	l := newLeased(t, server, sharedLimit(throttle.LeakyBucket, 20, 0), quota)
	l.enqueue(5, l.of("q", 1)...)
	bucket := store.Key("q", "b:account:")
	for _, text := range []string{
		"l", "l 1 2", "l 1 2 3 4 5 6 x", "l 1 2 3 4 5 6 7 8", "l 99999999999999999999 0 0 0 0 0 0", "l 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0",
		"q", "q 1 2 3 4 5 6 7", "q 1 2 3 4 5 6 7 8 9 10 11 12 13", "q 1 2 3 4 5 6 7 99999999999999999999 9 10 11 12",
	} {
		limit := "account"
		if text[0] == 'q' {
			client.Del(ctx, bucket)
			limit, bucket = "quota", store.Key("q", "b:quota:")
		}
		if err := client.Set(ctx, bucket, text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		asks, err := store.AskScript.Run(ctx, client, store.ScriptKeys("q"), "q", 0, partition.Horizon.Microseconds(), "")
		if err != nil || len(asks.([]any)) != 2 || asks.([]any)[0] != int64(1) {
			t.Errorf("a bucket of %q asks for %v, %v", text, asks, err)
		}
		if _, err := store.GrantScript.Run(ctx, client, store.ScriptKeys("q"), "q", limit, 1, 9, 1, 1, ""); err != nil {
			t.Errorf("a bucket of %q is granted permits: %v", text, err)
		}
		if now := client.Get(ctx, bucket).Val(); now != text {
			t.Errorf("a bucket of %q is %q now", text, now)
		}
		if n := client.Del(ctx, store.Key("q", "faults")).Val(); n != 1 {
			t.Errorf("a bucket of %q is no fault", text)
		}
	}
	client.Del(ctx, bucket)
	bucket = store.Key("q", "b:account:")
	var ledgers []string
	for _, tag := range seats.Tags(client, "q") {
		ledgers = append(ledgers, store.Key(tag, "ledger"))
		client.Set(ctx, store.Key(tag, "ledger"), "1 w 1 7 no json", 0)
	}
	l.work()
	until(t, "the lessor has asked", func() bool { return client.Exists(ctx, bucket).Val() == 1 })
	faulty := func(what string) bool {
		faults, err := inspect.Faults(ctx, client, "q")
		return err == nil && slices.ContainsFunc(faults, func(f inspect.Fault) bool { return f.What == what && time.Since(f.At).Abs() < time.Minute })
	}
	until(t, "it is a fault", func() bool { return faulty(ledgers[0]) })
	for _, ledger := range ledgers {
		if text := client.Get(ctx, ledger).Val(); !strings.HasSuffix(text, " 1 7 no json") || len(l.all()) > 0 {
			t.Errorf("the ledger is %q, and %d calls were made", text, len(l.all()))
		}
	}
	for _, ledger := range ledgers {
		client.Del(ctx, ledger)
	}
	until(t, "all are called", func() bool { return len(l.all()) == 5 })
	if len(ledgers) == 1 {
		return
	}
	client.Set(ctx, ledgers[2], "no ledger", 0)
	l.enqueue(5, l.of("q", 1)...)
	until(t, "all are called beside a copy that cannot be read", func() bool { return len(l.all()) == 10 && faulty(ledgers[2]) })
}

// TestLedgerIsStoredBeforeItIsUsed: no part of a limit is leased twice if two workers lease, if a ledger is
// set back to an older one, or if it is lost.
func TestLedgerIsStoredBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	client, ctx := server.Client(), t.Context()
	l := newLeased(t, server, sharedLimit(throttle.LeakyBucket, 100, 0))
	clock := &redisClock{redis: client, queue: "q"}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	var leased []partition.Span
	holders := 0
	// ask lets a new holder ask a worker for three permits, and returns how many spans it got.
	ask := func(from *lessor, want error) int {
		t.Helper()
		holders++
		a := leaseAsk{limit: "account", spec: limitlua.Spec{Algorithm: "lb", Permit: 10_000, Flow: 1}}
		a.Ask = partition.Ask{Member: "q", Holder: fmt.Sprint(holders), Want: 3, Weight: 1}
		answers, _ := from.lease([][]leaseAsk{{a}})
		err := answers[0].err
		if !errors.Is(err, want) {
			t.Fatalf("%v; want %v", err, want)
		}
		if err != nil {
			return 0
		}
		for _, span := range answers[0].all[0].Spans {
			for _, other := range leased {
				if span.From.US < other.End.US && other.From.US < span.End.US {
					t.Errorf("%+v and %+v overlap", span, other)
				}
			}
			leased = append(leased, span)
		}
		return len(answers[0].all[0].Spans)
	}
	worker := func(id string) *lessor {
		clocks := map[string]*redisClock{}
		for _, home := range l.layout.Names() {
			clocks[home] = clock
		}
		return newLessor(l.layout, id, client, clocks, nil, time.Minute, newRoles(client, id), slog.New(slog.DiscardHandler))
	}
	one, two := worker("one"), worker("two")
	got := ask(one, nil) + ask(two, nil)
	ask(one, seats.ErrTaken)
	got += ask(one, nil)
	old := map[string]string{}
	for _, tag := range seats.Tags(client, "q") {
		old[store.Key(tag, "ledger")] = client.Get(ctx, store.Key(tag, "ledger")).Val()
	}
	setBack := func() {
		for key, text := range old {
			client.Set(ctx, key, text, 0)
		}
	}
	got += ask(one, nil)
	setBack()
	got += ask(one, nil) // it knows the latest
	setBack()
	key := store.Key("q", "ledger")
	one.books[key].ledgers = nil
	ask(one, nil) // nothing that may be leased already
	ask(two, seats.ErrTaken)
	ask(two, nil)
	for key := range old {
		client.Del(ctx, key)
	}
	if one.books[key].ledgers, two.books[key].ledgers = nil, nil; ask(one, nil) > 0 || ask(two, nil) > 0 {
		t.Error("what was leased is not known, and more is leased")
	}
	if got < 3 {
		t.Errorf("%d spans were leased", got)
	}
}

// TestWhatTheLedgerHears: the ledger is told what a partition wants, keeps or gives back, and of nothing else.
func TestWhatTheLedgerHears(t *testing.T) {
	for what, c := range map[string]struct {
		ask  leaseAsk
		want bool
	}{
		"nothing":                   {leaseAsk{}, false},
		"a quota as it was":         {leaseAsk{Ask: partition.Ask{N: 3}, had: 3}, false},
		"less of a quota":           {leaseAsk{Ask: partition.Ask{N: 1}, had: 3}, true},
		"more used than was leased": {leaseAsk{Ask: partition.Ask{N: 4}, had: 3}, true},
		"permits of a rate":         {leaseAsk{Ask: partition.Ask{Keep: []partition.Span{{}}}}, true},
		"jobs":                      {leaseAsk{Ask: partition.Ask{Want: 1}}, true},
	} {
		l := newLessor(partition.Layout{Queue: "q", N: 2}, "w", nil, nil, nil, time.Minute, nil, slog.New(slog.DiscardHandler))
		if got := l.noted("q@2", true, []leaseAsk{c.ask}); got != c.want {
			t.Errorf("%s: %t", what, got)
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

// TestClockOfALedger: a worker that cannot ask the first partition's node for its time has it from what is stored beside the
// ledger and from the other nodes, unless one of their clocks was set since.
func TestClockOfALedger(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	layout := partition.Layout{Queue: "q", N: 4}
	worker := func(id string, ahead map[string]time.Duration) *lessor {
		clocks := map[string]*redisClock{}
		for _, home := range layout.Names() {
			clocks[home] = &redisClock{redis: client, queue: home}
			if by, known := ahead[home]; known {
				now := boottime.Now()
				clocks[home].observe((now + by).Microseconds(), now, now)
			}
		}
		return newLessor(layout, id, client, clocks, nil, time.Minute, newRoles(client, id), slog.New(slog.DiscardHandler))
	}
	first := worker("first", map[string]time.Duration{"q": time.Hour, "q@2": time.Minute, "q@3": 2 * time.Minute, "q@4": 0})
	late := worker("late", map[string]time.Duration{"q@2": time.Minute, "q@3": 2 * time.Minute})
	leases := func(l *lessor) {
		t.Helper()
		a := leaseAsk{limit: "all", spec: limitlua.Spec{Algorithm: "lb", Permit: 10_000, Flow: 1}}
		a.Ask = partition.Ask{Member: "q", Holder: l.worker, Want: 3, Weight: 1}
		answers, err := l.lease([][]leaseAsk{{a}})
		if err != nil || answers[0].err != nil {
			t.Fatal(err, answers[0].err)
		}
	}
	knows := func(l *lessor, want bool) {
		t.Helper()
		known, err := l.learn(ctx)
		if by, _ := l.offset(); known != want || err != nil || known && (by+time.Hour).Abs() > time.Millisecond {
			t.Errorf("the ledger's clock is known: %t, %v, and is %v behind; want %t, and an hour", known, err, -by, want)
		}
	}
	knows(late, false) // there is no ledger
	leases(first)
	knows(late, true)
	leases(late)
	knows(worker("later", map[string]time.Duration{"q@4": 0}), true) // of a clock that the late one does not know, too
	knows(worker("set", map[string]time.Duration{"q@2": time.Minute, "q@4": time.Second}), false)
	knows(worker("alone", nil), false)
}

// TestManyLedgersBesideASilentSeat: a seat that does not answer holds up the leases of many tenants for no longer than
// those of one.
func TestManyLedgersBesideASilentSeat(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	clock := &redisClock{redis: client, queue: "q"}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	client.AddHook(redistest.Silent{Word: seats.Tags(client, "*spend")[2], End: ctx.Done()})
	l := newLessor(partition.Layout{Queue: "q", N: 1}, "w", client, map[string]*redisClock{"q": clock}, nil, time.Minute, newRoles(client, "w"), slog.New(slog.DiscardHandler))
	asks := make([]leaseAsk, 60) // one after the other would take longer than store.Timeout
	for i := range asks {
		asks[i] = leaseAsk{limit: "spend", tenant: fmt.Sprint("t", i), budget: true, spec: limitlua.Spec{Algorithm: "fw", Permit: 1, Burst: 10, Window: time.Hour.Microseconds()}}
		asks[i].Ask = partition.Ask{Member: "q", Holder: "q:1", Want: 1, Weight: 1}
	}
	began := time.Now()
	answers, _ := l.lease([][]leaseAsk{asks})
	if took := time.Since(began); answers[0].err != nil || took > 3*time.Second {
		t.Errorf("after %v: %v", took, answers[0].err)
	}
	for i, a := range answers[0].all {
		if a.N == 0 {
			t.Errorf("%s is leased nothing", asks[i].tenant)
		}
	}
}
