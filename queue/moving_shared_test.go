package queue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestSharedLimitsChangePartitions: while a queue gets several partitions, and goes back to one, a quota of all its
// tenants is used up, and not exceeded by one call, and no more calls are under way than may be.
func TestSharedLimitsChangePartitions(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const quota, together, each = 600, 5, 60
	m, zone := &moving{server: redistest.Any(t), queue: redistest.Queue(t)}, noon(t)
	publish := func(n int) {
		t.Helper()
		err := operate.Publish(t.Context(), m.server.Client(), limits.Set{Queues: map[string]limits.Queue{m.queue: {Partitions: n, Limits: []limits.Limit{
			{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Period: 24 * time.Hour}, Location: zone},
			{Name: "calls", Algorithm: throttle.Concurrency, Concurrency: together},
			{Name: "rate", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(80), Burst: 10},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	calls, flying, most := map[string]int{}, 0, 0
	work := func() (stop func()) {
		worker := newWorker(t, Config{Redis: m.server.Options(), Queues: []string{m.queue}, Logger: slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelError}))})
		Handle(worker, "call", func(ctx context.Context, _ int) error {
			job, _ := Current(ctx)
			mu.Lock()
			calls[job.ID]++
			flying++
			most = max(most, flying)
			mu.Unlock()
			time.Sleep(50 * time.Millisecond) // so that there are as many under way as may be
			mu.Lock()
			flying--
			mu.Unlock()
			return nil
		})
		return runWorker(t, worker)
	}
	called := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(calls)
	}
	publish(1)
	work()
	stop := work()
	var jobs []Job
	for i := range each * movingTenants {
		jobs = append(jobs, Job{Kind: "call", Queue: m.queue, Tenant: fmt.Sprint("t", i%movingTenants), Payload: i})
	}
	enqueueAll(t, NewClient(m.server.Client()), jobs...)
	for i, n := range []int{4, 1, 3, 1, 2} {
		before := called()
		until(t, "some calls are made", func() bool { n := called(); return n > before+10 || n >= quota })
		publish(n)
		if i == 1 {
			stop()
			work()
		}
		m.moved(t, n)
	}
	until(t, "the quota is used up", func() bool {
		if called() < quota {
			return false
		}
		g, err := inspect.New(m.server.Client()).Gauges(t.Context(), m.queue)
		return err == nil && g.Active+g.Pending == 0
	})
	for id, n := range calls {
		if n > 1 {
			t.Errorf("%s was called %d times", id, n)
		}
	}
	if len(calls) != quota || most != together {
		t.Errorf("%d calls, %d at once; want %d, %d", len(calls), most, quota, together)
	}
	if text := m.log.String(); text != "" {
		t.Errorf("errors of workers:\n%s", text)
	}
}

// TestWhatIsUsedWhenPartitionsChange: what is used of limits when their queue gets a second partition is used there, too,
// and what is leased and not spent when it has one again is not used.
func TestWhatIsUsedWhenPartitionsChange(t *testing.T) {
	t.Parallel()
	all := []limits.Limit{
		{Name: "rate", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Minute}, Burst: 2},
		{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10, Months: 1}, Location: noon(t)},
		{Name: "calls", Algorithm: throttle.Concurrency, Concurrency: 5},
		{Name: "tokens", Unit: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}, Burst: 20},
	}
	r := startRig(t, -1, limitsOf(all...), nil)
	ctx, client := t.Context(), r.server.Client()
	for range 6 {
		r.add(t, func(job *Job) { job.Costs = map[string]int64{"tokens": 3} })
	}
	if n := len(r.release(t, r.dispatcher(), 6)); n != 2 {
		t.Fatalf("%d calls began; want a burst", n)
	}
	bucket := func(limit string) []string {
		return strings.Fields(client.Get(ctx, store.Key(r.queue, "b:"+limit+":")).Val())
	}
	free := bucket("rate")[1] // when the next permit comes
	// tokens checks how many are used, of which one comes back in an hour.
	tokens := func(when string) {
		t.Helper()
		words := bucket("tokens")
		tat, _ := strconv.ParseInt(words[1], 10, 64)
		if n := time.Until(time.UnixMicro(tat)).Hours(); words[0] != "r" || n < 5.9 || n > 6.001 {
			t.Errorf("%s, %.4f tokens are used, in %v; want 6", when, n, words)
		}
	}
	tokens("at first")
	until(t, "the slots of these calls are over", func() bool { // until then they use a part of a token more
		last, _ := strconv.ParseInt(bucket("tokens")[5], 10, 64)
		return client.Time(ctx).Val().UnixMicro() > last
	})
	set := func(n int) limits.Set {
		return limits.Set{
			Queues:  map[string]limits.Queue{r.queue: {Partitions: n, Limits: all}},
			Tenants: map[string]limits.Tenant{"a": {Partition: 1}}, // no call ends here, so no tenant could move
		}
	}
	arrange := func(n int) partition.Layout {
		t.Helper()
		if err := operate.Publish(ctx, client, set(n)); err != nil {
			t.Fatal(err)
		}
		l, err := store.ReadLayout(ctx, client, r.queue)
		if err != nil || l.From == nil {
			t.Fatalf("%+v, %v", l, err)
		}
		return l
	}
	two := arrange(2)
	clock := &redisClock{redis: client, queue: r.queue}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	clocks, windows := map[string]*redisClock{}, map[string]*effective.Calendars{}
	for _, home := range two.Names() {
		clocks[home], windows[home] = clock, &effective.Calendars{Queue: home, Redis: client}
	}
	asks, _, _, err := askBuckets(ctx, client, r.queue, windows[r.queue], 0)
	if err != nil || len(asks) != 4 {
		t.Fatalf("%+v, %v", asks, err)
	}
	used := map[string]int64{"day": 2, "calls": 2, "tokens": 6}
	for _, a := range asks {
		switch {
		case a.limit == "rate" && (len(a.Keep) != 1 || fmt.Sprint(a.Keep[0].End.US) != free):
			t.Errorf("the first ask has the spans %+v; want one that ends at %s", a.Keep, free)
		case a.limit != "rate" && a.N != used[a.limit]:
			t.Errorf("the first ask says that %d of %s are used; want %d", a.N, a.limit, used[a.limit])
		}
	}
	lessor := newLessor(two, "w", client, clocks, windows, time.Minute, newRoles(client, "w"), slog.New(slog.DiscardHandler))
	for range 3 {
		if _, err := lessor.round(ctx, r.queue); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []string{"day", "tokens"} {
		if lease, err := limitlua.ReadLease(strings.Join(bucket(limit), " ")); err != nil || lease.Spent != used[limit] || lease.N <= lease.Spent {
			t.Errorf("%s: %+v, %v; want more than the %d that are spent", limit, lease, err, used[limit])
		}
	}
	if n := len(r.release(t, r.dispatcher(), 6)); n != 2 {
		t.Errorf("%d more calls began, before the rate admits one", n-2)
	}
	move := func(l partition.Layout) {
		(&mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: client, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}
	move(two)
	move(arrange(1))
	if got, err := operate.Compare(ctx, client, set(1)); err != nil || !got[0].Equal() {
		t.Errorf("at the end, the limits are not those that were published: %+v, %v", got, err)
	}
	if rate, day := bucket("rate"), bucket("day"); rate[1] != free || day[3] != "2" || day[0] != "f" {
		t.Errorf("the rate is used until %s, and the quota is %v; want %s, and 2 used", rate[1], day, free)
	}
	tokens("after two changes")
	if left := redistest.Keys(t, client, "headgate:{"+r.queue+"*}:*"); slices.ContainsFunc(left, func(key string) bool {
		return strings.Contains(key, "}:calls:") || strings.Contains(key, "@2}:b:")
	}) {
		t.Errorf("a lease is left: %v", left)
	}

	// Who leased before does not take the ledger for lost.
	book := lessor.books[store.Key(r.queue, "ledger")]
	if err := book.read(ctx, client, r.queue, time.Now().UnixMicro(), 0); err != nil || book.lost > 0 || len(book.ledgers) > 0 {
		t.Errorf("the ledger is lost at %d, or has %d limits, %v", book.lost, len(book.ledgers), err)
	}

	// The same when nobody asks for a lease in between.
	move(arrange(2))
	move(arrange(1))
	if rate, day := bucket("rate"), bucket("day"); rate[1] != free || day[3] != "2" {
		t.Errorf("without an ask the rate is used until %s, and the quota is %v; want %s, and 2 used", rate[1], day, free)
	}
	tokens("without an ask")

	// Permits that are given ahead are of the next window, and the ledger has this one.
	now := client.Time(ctx).Val().UTC()
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	text := limitlua.Window(next.UnixMicro(), next.AddDate(0, 1, 0).UnixMicro(), 3, now.UnixMicro(), now.UnixMicro())
	client.Set(ctx, store.Key(r.queue, "b:day:"), text, time.Hour)
	arrange(2)
	asks, _, _, err = askBuckets(ctx, client, r.queue, windows[r.queue], 0)
	if err != nil || len(asks) != 3 || slices.ContainsFunc(asks, func(a leaseAsk) bool { return a.limit == "day" }) {
		t.Errorf("before its window, a quota asks: %+v, %v", asks, err)
	}
}

// TestOnlyTheFirstPartitionBegins: until the first partition has said what was used of a limit before it was shared, no
// other one gets any of it.
func TestOnlyTheFirstPartitionBegins(t *testing.T) {
	b := &book{of: "q", ledgers: map[string]*store.Ledger{}}
	ask := func(member string, want int64) partition.Answer {
		a := leaseAsk{limit: "day", spec: limitlua.Spec{Algorithm: "fw", Permit: 1, Flow: 1, Burst: 100, Window: 1_000_000}}
		a.Ask = partition.Ask{Member: member, Holder: member + ":1", Want: want, Weight: 1}
		return b.ask(&a, 5_500_000, 0)
	}
	if got := ask("q@2", 3); got.Version > 0 || got.N > 0 {
		t.Errorf("before the first one: %+v", got)
	}
	if ask("q", 0); ask("q@2", 3).N == 0 {
		t.Error("it gets nothing, after the first one asked")
	}
}

// sharedThroughPartitions: the law of a rate of all tenants holds while their queue gets several partitions, and goes
// back to one.
func sharedThroughPartitions(t *testing.T) func(run *pacer.Run) {
	const rate, burst = 50, 5
	server := redistest.Own(t)
	l := newLeased(t, server)
	publish := func(n int) {
		l.layout.N = n
		l.publish(sharedLimit(throttle.TokenBucket, rate, burst))
	}
	arrived := func() {
		t.Helper()
		until(t, "all tenants have arrived", func() bool {
			now, err := store.ReadLayout(t.Context(), l.client, "q")
			return err == nil && now.From == nil
		})
	}
	l.enqueue(30*rate/8, l.everywhere(2)...)
	publish(1)
	l.work()
	arrived()
	for _, n := range []int{4, 1, 3} {
		l.wait(rate)
		publish(n)
		arrived()
	}
	l.wait(rate)
	all := l.all()
	l.end()
	return func(run *pacer.Run) { run.Law("a limit of a queue that changes", all, rate, burst) }
}

// TestBudgetOfAPartitionThatEnds: what a partition had of a budget, and did not use before it ended, is used elsewhere.
func TestBudgetOfAPartitionThatEnds(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	for name, per := range map[string][]string{"of a tenant": {"tenant"}, "of all tenants": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpending(t, limits.Limit{Rate: day, Per: per}, nil)
			who := "t"
			for (partition.Layout{Queue: "ai", N: 3}).Home(who) != "ai@2" {
				who += "t"
			}
			began, ends := make(chan struct{}, 100), make(chan struct{})
			work := func(queue string, places int) {
				worker := newWorker(t, Config{Redis: s.server.Options(), Queues: []string{queue}, Concurrency: places, ShutdownTimeout: time.Second})
				Handle(worker, Kind[int](queue), func(context.Context, int) error {
					began <- struct{}{}
					<-ends
					return nil
				})
				runWorker(t, worker)
			}
			s.add("ai", 30, 100, who)
			work("ai", 4)
			for range 4 {
				<-began
			}
			// It keeps the rest of the budget for the other jobs, which no worker has a place for.
			bucket := "b:spend:"
			if per != nil {
				bucket += who
			}
			until(t, "the partition has more of the budget than calls have begun", func() bool {
				lease, err := limitlua.ReadLease(s.client.Get(t.Context(), store.Key("ai@2", bucket)).Val())
				return err == nil && lease.N > lease.Spent
			})
			q := s.set.Queues["ai"]
			q.Partitions = 1
			s.set.Queues["ai"] = q
			s.put()
			until(t, "the tenant moves", func() bool { return s.client.HGet(t.Context(), store.MovesKey("ai@2"), who).Val() == store.MoveStop })
			close(ends)
			for end := time.Now().Add(hang); len(began) < 26; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d of the other 26 jobs are called in time", len(began))
				}
			}
		})
	}
}
