package queue

import (
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
