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

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// spending is several queues that share a budget, and what their workers called.
type spending struct {
	t      *testing.T
	client redis.UniversalClient
	server *redistest.Redis
	zone   *time.Location
	queues []string
	set    limits.Set
	ends   chan struct{} // if not nil, each call of email waits for it, and costs a tenth of its estimate

	mu    sync.Mutex
	calls map[string][]string // by tenant: the queue of each call
}

var spendingQueues = []string{"ai", "email", "payment"}

// newSpending publishes a budget of cents of a day for three queues, one of them in partitions.
func newSpending(t *testing.T, budget limits.Limit, changes map[string]limits.Change) *spending {
	s := &spending{t: t, server: redistest.Own(t), zone: noon(t), queues: spendingQueues, calls: map[string][]string{}}
	s.client = s.server.Client()
	s.publish(budget, changes)
	return s
}

func (s *spending) publish(budget limits.Limit, changes map[string]limits.Change) {
	budget.Name, budget.Algorithm, budget.Location, budget.Unit, budget.Queues = "spend", throttle.FixedWindow, s.zone, "cents", s.queues
	set := limits.Set{Queues: map[string]limits.Queue{}, Tenants: map[string]limits.Tenant{}}
	for i, name := range s.queues {
		q := limits.Queue{Kinds: []string{name}, Limits: []limits.Limit{budget}}
		if i == 0 {
			q.Partitions = 3
		}
		set.Queues[name] = q
		for tenant, change := range changes {
			if set.Tenants[tenant].Limits == nil {
				set.Tenants[tenant] = limits.Tenant{Limits: map[string]map[string]limits.Change{}}
			}
			set.Tenants[tenant].Limits[name] = map[string]limits.Change{"spend": change}
		}
	}
	s.set = set
	s.put()
}

// put puts the set in force.
func (s *spending) put() {
	s.t.Helper()
	if err := operate.Publish(s.t.Context(), s.client, s.set); err != nil {
		s.t.Fatal(err)
	}
}

// limit gives queues one more limit.
func (s *spending) limit(limit limits.Limit, queues ...string) {
	for _, name := range queues {
		q := s.set.Queues[name]
		q.Limits = append(q.Limits, limit)
		s.set.Queues[name] = q
	}
	s.put()
}

// enqueue adds n jobs of each tenant to each queue, with their cost.
func (s *spending) enqueue(n int, cents int64, tenants ...string) (last Receipt) {
	for _, name := range s.queues {
		for _, tenant := range tenants {
			last = s.add(name, n, cents, tenant)
		}
	}
	return last
}

// add adds n jobs of acme, or of another tenant, to a queue.
func (s *spending) add(queue string, n int, cents int64, tenant ...string) (last Receipt) {
	var jobs []Job
	for range n {
		job := Job{Kind: queue, Tenant: append(tenant, "acme")[0], Payload: 1}
		if cents > 0 {
			job.Costs = map[string]int64{"cents": cents}
		}
		jobs = append(jobs, job)
	}
	for _, r := range NewClient(s.client).EnqueueMany(s.t.Context(), jobs) {
		if r.Err != nil {
			s.t.Fatal(r.Err)
		}
		last = r.Receipt
	}
	return last
}

// work runs a worker for each queue, each in a process of its own in production.
func (s *spending) work() {
	for _, name := range s.queues {
		worker := newWorker(s.t, Config{Redis: s.server.Options(), Queues: []string{name}, ShutdownTimeout: time.Second})
		Handle(worker, Kind[json.RawMessage](name), func(ctx context.Context, _ json.RawMessage) error {
			job, _ := Current(ctx)
			s.mu.Lock()
			s.calls[job.Tenant] = append(s.calls[job.Tenant], name)
			s.mu.Unlock()
			if s.ends == nil || name != "email" {
				return nil
			}
			<-s.ends
			return SetActual(ctx, map[string]int64{"cents": 10})
		})
		runWorker(s.t, worker)
	}
}

func (s *spending) called(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls[tenant])
}

func (s *spending) all() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, calls := range s.calls {
		n += len(calls)
	}
	return n
}

var day = throttle.Rate{Count: 3000, Period: 24 * time.Hour}

// TestBudgetOfQueues: three queues use all of a budget, and not one cent more, and each says which limit holds it.
func TestBudgetOfQueues(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newSpending(t, limits.Limit{Rate: day}, nil)
	s.work()
	last := s.enqueue(20, 100, "acme", "globex")
	until(t, "the budget is used up", func() bool { return s.all() >= 30 })
	in := inspect.New(s.client)
	until(t, "the next day is said", func() bool {
		e, err := in.Explain(t.Context(), last.Queue, last.ID)
		if err != nil {
			t.Fatal(err)
		}
		return e.HeldBy != nil && e.HeldBy.Limit == "spend" && e.At.In(s.zone).Day() != time.Now().In(s.zone).Day()
	})
	day := day
	day.Count = 5000
	s.publish(limits.Limit{Rate: day}, nil)
	until(t, "a higher budget is used up", func() bool { return s.all() >= 50 })
	s.quiet(50)
}

// quiet waits until each queue has been asked what it wants, and checks that no more calls were made.
func (s *spending) quiet(calls int) {
	s.t.Helper()
	until(s.t, "all is released", func() bool {
		for _, name := range s.queues {
			if n := s.client.LLen(s.t.Context(), "asynq:{"+name+"}:pending").Val() + s.client.LLen(s.t.Context(), "asynq:{"+name+"}:active").Val(); n > 0 {
				return false
			}
		}
		return true
	})
	if n := s.all(); n != calls {
		s.t.Errorf("%d calls, want %d", n, calls)
	}
}

// TestTenantBudgets: each tenant has the budget for itself in all queues together, and one that differs has its
// own. Jobs that cost nothing of it go on.
func TestTenantBudgets(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	double := day
	double.Count *= 2
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, map[string]limits.Change{"globex": {Rate: &double}})
	s.work()
	last := s.enqueue(25, 100, "acme", "globex", "hooli")
	until(t, "the budgets are used up", func() bool {
		return s.called("acme") >= 30 && s.called("globex") >= 60 && s.called("hooli") >= 30
	})
	in := inspect.New(s.client)
	until(t, "the next day is said", func() bool {
		e, err := in.Explain(t.Context(), last.Queue, last.ID)
		if err != nil {
			t.Fatal(err)
		}
		return e.HeldBy != nil && e.HeldBy.Limit == "spend" && e.At.In(s.zone).Day() != time.Now().In(s.zone).Day()
	})
	if _, err := NewClient(s.client).Enqueue(t.Context(), Job{Kind: "email", Tenant: "free", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	until(t, "a job without cost is called", func() bool { return s.called("free") == 1 })
	s.quiet(121)
}

// TestBudgetIsWhereJobsGo: a queue that cannot use a tenant's budget, because the tenant's own limit holds its jobs
// back, or because they are gone, keeps it from no other queue.
func TestBudgetIsWhereJobsGo(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	s.limit(limits.Limit{Name: "slow", Per: []string{"tenant"}, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}}, "email")
	s.work()
	s.add("email", 100, 100)
	until(t, "the first is called", func() bool { return s.called("acme") == 1 })
	s.add("payment", 29, 100)
	until(t, "the rest of the budget is used", func() bool { return s.called("acme") == 30 })
	if err := s.client.Del(t.Context(), store.Key("email", "b:slow:acme")).Err(); err != nil { // an hour later
		t.Fatal(err)
	}
	s.quiet(30)
}

// TestQuietTenantGivesBack: what is leased of a tenant's budget, and turns out not to be needed when there are no
// jobs any more, is given back, and nobody asks for the tenant any more.
func TestQuietTenantGivesBack(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	s.ends = make(chan struct{})
	s.work()
	s.add("email", 5, 100)
	until(t, "they are called", func() bool { return s.called("acme") == 5 })
	quiet := func() bool { return s.client.ZCard(t.Context(), store.Key("email", "leases:spend")).Val() == 0 }
	until(t, "nobody asks any more", quiet)
	close(s.ends) // each cost 10 of the 100 that it was given
	s.add("payment", 29, 100)
	until(t, "another queue has the rest", func() bool { return s.called("acme") == 34 })
	until(t, "nobody asks again", quiet)
}

// TestTwoBudgets: a job that counts in two budgets of its tenant goes when it has its part of both, and a tenant that
// has used up one of them keeps nothing of the other.
func TestTwoBudgets(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	month := limits.Limit{
		Name: "month", Per: []string{"tenant"}, Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10, Months: 1}, Location: s.zone,
		Queues: []string{"email", "payment"},
	}
	s.limit(month, month.Queues...)
	s.work()
	s.add("email", 12, 100)
	until(t, "the month's budget is used up", func() bool { return s.called("acme") == 10 })
	s.add("ai", 20, 100)
	until(t, "the rest of the day's budget is used elsewhere", func() bool { return s.called("acme") == 30 })
	s.quiet(30)
}

// TestDamagedBudget: a budget whose ledger cannot be read holds its own jobs, and no other limit.
func TestDamagedBudget(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	s.limit(sharedLimit(throttle.LeakyBucket, 100, 0), "ai") // its partitions share it
	for _, tag := range seats.Tags(s.client, "*spend") {
		if err := s.client.Set(t.Context(), store.Key(tag, "ledger:acme"), "1 {", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s.work()
	s.add("ai", 3, 100)
	s.add("ai", 5, 0, "free")
	until(t, "what costs nothing is called", func() bool { return s.called("free") == 5 })
	if n := s.called("acme"); n != 0 {
		t.Errorf("%d calls of a budget that cannot be read", n)
	}
	until(t, "it is a fault of the queue", func() bool {
		faults, err := inspect.Faults(t.Context(), s.client, "ai")
		return err == nil && slices.ContainsFunc(faults, func(f inspect.Fault) bool { return f.What == store.Key("*spend", "ledger:acme") })
	})
	for _, tag := range seats.Tags(s.client, "*spend") {
		s.client.Del(t.Context(), store.Key(tag, "ledger:acme"))
	}
	until(t, "the others are called, once it is mended", func() bool { return s.called("acme") == 3 })
}

// TestOverrideOfABudget: an operator cannot change a budget in one of its queues.
func TestOverrideOfABudget(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	err := operate.SetOverride(t.Context(), s.client, "email", "acme", "spend", operate.Override{Change: limits.Change{Rate: &day}, Actor: "anna", Reason: "test"})
	if want := `override of limit "spend": several queues share this budget, and an override is of one: change it in the limits file`; fmt.Sprint(err) != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestPartOfABudgetIsKept: a tenant keeps its permits of a budget while another limit holds its jobs. If they wait for
// the budget, it keeps what they take.
func TestPartOfABudgetIsKept(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day, Per: []string{"tenant"}}, nil)
	const home, had = "payment", 300
	windows := &effective.Calendars{Queue: home, Redis: s.client}
	ask := func() leaseAsk {
		t.Helper()
		s.client.ZAdd(t.Context(), store.Key(home, "leases:spend"), redis.Z{Score: 1, Member: "acme"})
		asks, shared, _, err := askBuckets(t.Context(), s.client, home, windows, 0)
		if err != nil || !shared || len(asks) != 1 {
			t.Fatalf("%+v, %v, %v", asks, shared, err)
		}
		return asks[0]
	}
	s.add(home, 2, 100)
	id := ask().id
	now, err := store.Time(t.Context(), s.client, store.Key(home, "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	begins := now.Truncate(day.Period)
	granted, err := store.GrantScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, "spend", id, 1, 1_000_000, 0, "acme", had, begins.UnixMicro(), begins.Add(day.Period).UnixMicro())
	if err != nil || granted != int64(1) {
		t.Fatalf("%v, %v", granted, err)
	}
	if a := ask(); a.had != had || a.N != had || a.Want != 0 {
		t.Errorf("of %d permits that no job lacks, %d are kept and %d more asked for: %+v", had, a.N, a.Want, a)
	}
	s.client.SAdd(t.Context(), store.Key(home, "metered:spend:acme"), "acme;kind="+home) // its lane lacks permits
	if a := ask(); a.N != 200 || a.Want != 0 {
		t.Errorf("of %d permits, %d are kept for two jobs that take 100: %+v", had, a.N, a)
	}
}

// TestNextOfABudget: a tenant that lacks permits of a budget gets some at once, as long as not all of it is used up.
func TestNextOfABudget(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day}, nil)
	s.zone = nil // the scripts get no calendar
	s.publish(limits.Limit{Rate: day}, nil)
	const home = "payment"
	id := s.add(home, 2, 100).ID
	for _, used := range []int{0, 1_000_000} {
		want := used == 0
		now, err := store.Time(t.Context(), s.client, store.Key(home, "waiting"))
		if err != nil {
			t.Fatal(err)
		}
		asks, _, _, err := askBuckets(t.Context(), s.client, home, &effective.Calendars{Queue: home, Redis: s.client}, 0)
		if err != nil || len(asks) != 1 {
			t.Fatalf("%+v, %v", asks, err)
		}
		begins := now.Truncate(day.Period)
		if _, err := store.GrantScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, "spend", asks[0].id, used+1, 1_000_000, used, "", 0, begins.UnixMicro(), begins.Add(day.Period).UnixMicro()); err != nil {
			t.Fatal(err)
		}
		reply, err := store.ExplainScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, "", "acme;kind="+home, id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		read := reply.([]any)
		limit := read[4].([]any)[0].([]any)
		if at := limit[3] == read[0]; at != want {
			t.Errorf("with %d millionths of the budget used, %v admits a job at %v; it is %v", used, limit[0], limit[3], read[0])
		}
	}
}

// TestPausedQueueLeasesNothing: a queue that asynq's tools paused asks for no permits of a shared limit; and an answer to
// a bucket that is not there any more is none.
func TestPausedQueueLeasesNothing(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day}, nil)
	s.zone = nil // the scripts get no calendar
	s.publish(limits.Limit{Rate: day}, nil)
	const home = "payment"
	s.add(home, 2, 100)
	// The lane is ready once it was dispatched to, as only the budget holds it.
	s.client.ZRem(t.Context(), store.Key(home, "waiting"), "acme;kind="+home)
	s.client.ZAdd(t.Context(), store.Key(home, "ready"), redis.Z{Score: 0, Member: "acme;kind=" + home})
	ask := func() (want int64, id string) {
		t.Helper()
		reply, err := store.AskScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, 0, time.Second.Microseconds(), "")
		if err != nil {
			t.Fatal(err)
		}
		asks, _, _, err := readAsks(reply, home)
		if err != nil || len(asks) != 1 {
			t.Fatalf("%+v, %v", asks, err)
		}
		return asks[0].Want, asks[0].id
	}
	want, id := ask()
	if want != 200 {
		t.Errorf("two jobs that take 100 ask for %d", want)
	}
	s.client.Set(t.Context(), asynqwire.Key(home, "paused"), "1", 0)
	if want, _ := ask(); want != 0 {
		t.Errorf("a paused queue asks for %d", want)
	}
	for holder, granted := range map[string]int64{"12345": 0, id: 1} {
		got, err := store.GrantScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, "spend", holder, 1, 1_000_000, 0, "", 300, 0, store.Endless)
		if err != nil || got != granted {
			t.Errorf("an answer to bucket %s: %v, %v; want %d", holder, got, err, granted)
		}
	}
}
