package queue

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/store"
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
	client.Del(ctx, key) // it has expired
	l.books[key].used -= unusedBook + time.Second
	lease("q:later", limitlua.Limit{Period: day, Location: time.UTC})
}
