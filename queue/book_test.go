package queue

import (
	"context"
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
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestCalendarOutlivesItsLessor: another worker leases a quota of calendar months while the first partition, which alone
// says when these begin, is away, and never more than the quota.
func TestCalendarOutlivesItsLessor(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	layout := partition.Layout{Queue: "q", N: 2}
	clock := &redisClock{redis: client, queue: "q"}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	const quota = 10
	month := limitlua.Limit{Algorithm: "fixed_window", Count: quota, Months: 1, Location: time.UTC}
	leased := int64(0)
	// ask lets a partition ask a worker for permits, as another holder each time.
	ask := func(l *lessor, home, holder string, want int64, now time.Time) {
		t.Helper()
		a := leaseAsk{limit: "month", spec: month.Spec(true, partition.Horizon)}
		a.Ask = partition.Ask{Member: home, Holder: home + ":" + holder, Weight: 1, Calendar: month.Windows(now, 2)}
		for range 4 { // at first, a newcomer gets a part
			a.Want = want - a.N
			answers, err := l.lease([][]leaseAsk{{a}})
			if err != nil || answers[0].err != nil {
				t.Fatal(err, answers[0].err)
			}
			answer := answers[0].all[0]
			leased += answer.N - a.N
			a.N, a.had, a.Version = answer.N, answer.N, answer.Version
			time.Sleep(partition.Every)
		}
	}
	worker := func(id string) *lessor {
		clocks := map[string]*redisClock{"q": clock, "q@2": clock}
		return newLessor(layout, id, client, clocks, nil, time.Minute, newRoles(client, id), slog.New(slog.DiscardHandler))
	}
	now, err := store.Time(ctx, client, store.Key("q", "limits"))
	if err != nil {
		t.Fatal(err)
	}
	ask(worker("one"), "q", "1", 0, now) // it has no jobs
	two := worker("two")
	for i, holder := range []string{"1", "2", "3"} {
		ask(two, "q@2", holder, 3, now)
		if want := int64(3 * (i + 1)); leased != want {
			t.Errorf("%d permits are leased; want %d", leased, want)
		}
	}
	two.books[store.Key("q", "ledger")].ledgers = nil  // as after an error of Redis
	ask(two, "q@2", "4", quota, now.AddDate(0, -6, 0)) // whose calendar may be another one
	if leased != quota {
		t.Errorf("%d permits of a quota of %d are leased", leased, quota)
	}
}

// TestLedgerOfATenantIsKept: the ledger of a tenant's budget is kept as long as its window can last, and a day more. A
// tenant that comes back after that has a whole budget.
func TestLedgerOfATenantIsKept(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	clock := &redisClock{redis: client, queue: "q"}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	now, err := store.Time(ctx, client, store.Key("q", "limits"))
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	l := newLessor(partition.Layout{Queue: "q", N: 1}, "w", client, map[string]*redisClock{"q": clock}, nil, time.Minute, newRoles(client, "w"), slog.New(slog.DiscardHandler))
	key := store.Key("*spend", "ledger:acme")
	lease := func(holder string, budget limitlua.Limit) {
		t.Helper()
		budget.Algorithm, budget.Count = "fixed_window", 10
		a := leaseAsk{limit: "spend", tenant: "acme", budget: true, spec: budget.Spec(true, partition.Horizon)}
		a.Ask = partition.Ask{Member: "q", Holder: holder, Want: 1, Weight: 1, Calendar: budget.Windows(now, 2)}
		answers, err := l.lease([][]leaseAsk{{a}})
		if err != nil || answers[0].err != nil || answers[0].all[0].N != 1 {
			t.Fatalf("%+v, %v; want one permit", answers, err)
		}
	}
	for i, c := range []struct {
		budget      limitlua.Limit
		least, most time.Duration
	}{
		{limitlua.Limit{Period: time.Hour}, day + time.Hour - time.Minute, day + time.Hour},
		{limitlua.Limit{Period: day, Location: time.UTC}, 2*day - time.Minute, 2 * day},
		{limitlua.Limit{Months: 1, Location: time.UTC}, 32*day - time.Minute, 32 * day},   // of three months, one has 31 days
		{limitlua.Limit{Period: day, Location: time.UTC}, 32*day - time.Minute, 32 * day}, // another queue may have the month still
	} {
		lease(fmt.Sprint("q:", i), c.budget)
		if left := client.PTTL(ctx, key).Val(); left < c.least || left > c.most {
			t.Errorf("the ledger of %+v expires in %v; want %v", c.budget, left, c.most)
		}
	}
	if text := client.Get(ctx, key).Val(); !strings.Contains(text, `"clocks":{"q":`) {
		t.Errorf("the ledger does not know by the clock of which queue it was asked: %s", text)
	}
	client.Del(ctx, key) // it has expired
	l.books[key].used -= unusedBook + time.Second
	lease("q:later", limitlua.Limit{Period: day, Location: time.UTC})
}

// ledgersAsked is a hook that notes of which ledgers a worker asks the seats.
type ledgersAsked struct {
	mu  sync.Mutex
	all []string
}

func (l *ledgersAsked) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	for _, arg := range cmd.Args() {
		if _, ledger, ok := strings.Cut(fmt.Sprint(arg), "}:ledger"); ok {
			l.mu.Lock()
			l.all = append(l.all, ledger)
			l.mu.Unlock()
		}
	}
	return next(ctx, cmd)
}

// since returns the ledgers since the last call.
func (l *ledgersAsked) since() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, l.all = l.all, nil
	return all
}

// TestLedgersThatAreAsked: only ledgers of which somebody wants or gives back something cost a request, and the queue's
// own one comes first, so that no budget whose node is away keeps it waiting.
func TestLedgersThatAreAsked(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	s.limit(sharedLimit(throttle.LeakyBucket, 100, 0), "ai") // its partitions share it
	asked := &ledgersAsked{}
	s.client.AddHook(redistest.OnCommand(asked.on))
	layout := partition.Layout{Queue: "ai", N: 3}
	tenants := []string{}
	for i := 0; len(tenants) < 8; i++ {
		if tenant := fmt.Sprint("t", i); layout.Home(tenant) == "ai" {
			tenants = append(tenants, tenant)
		}
	}
	clocks, windows := map[string]*redisClock{}, map[string]*effective.Calendars{}
	for _, home := range layout.Names() {
		clocks[home], windows[home] = &redisClock{redis: s.client, queue: home}, &effective.Calendars{Queue: home, Redis: s.client}
		if err := clocks[home].start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l := newLessor(layout, "w", s.client, clocks, windows, time.Minute, newRoles(s.client, "w"), slog.New(slog.DiscardHandler))
	// round asks for all tenants, of which some have jobs that lack permits, and returns the ledgers that were asked.
	round := func(lack ...string) []string {
		t.Helper()
		for _, tenant := range tenants {
			metered := store.Key("ai", "metered:spend:"+tenant)
			s.client.Del(t.Context(), metered)
			if slices.Contains(lack, tenant) {
				s.add("ai", 1, 100, tenant)
				s.client.SAdd(t.Context(), metered, tenant+";kind=ai")
			}
			s.client.ZAdd(t.Context(), store.Key("ai", "leases:spend"), redis.Z{Score: 1, Member: tenant})
		}
		asked.since()
		if _, err := l.round(t.Context(), "ai"); err != nil {
			t.Fatal(err)
		}
		return asked.since()
	}
	all := round(tenants...)
	if missing := slices.DeleteFunc(slices.Clone(tenants), func(tenant string) bool { return slices.Contains(all, ":"+tenant) }); len(missing) > 0 || all[0] != "" {
		t.Errorf("asked were %q; want that of the queue, and then those of all tenants, not without %s", all, missing)
	}
	all = round(tenants[3])
	others := slices.DeleteFunc(slices.Clone(all), func(ledger string) bool { return ledger == "" || ledger == ":"+tenants[3] })
	if len(others) > 0 || !slices.Contains(all, ":"+tenants[3]) {
		t.Errorf("asked were %q; want those of the queue and of %s", all, tenants[3])
	}
}
