package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestLessorVanishes: the worker that leases is cut off from Redis for good, without giving up its role. Once that has
// lapsed, another one leases. The quota is used up, and not exceeded by one call. Each job is called once, or waits for the
// next month.
func TestLessorVanishes(t *testing.T) {
	t.Parallel()
	const quota = 300
	server := redistest.Own(t)
	ctx, client := t.Context(), server.Client()
	month := limits.Limit{Name: "month", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: quota, Months: 1}, Location: noon(t)}
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

// TestManyLedgersBesideASilentSeat: a seat that does not answer is waited for once, however many tenants have ledgers.
func TestManyLedgersBesideASilentSeat(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	clock := &redisClock{redis: client, queue: "q"}
	if err := clock.start(ctx); err != nil {
		t.Fatal(err)
	}
	seat, waits := seats.Tags(client, "*spend")[2], atomic.Int64{}
	client.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(fmt.Sprint(cmds), seat) {
			waits.Add(1)
		}
		return send()
	}))
	client.AddHook(redistest.Silent{Word: seat, End: ctx.Done()})
	l := newLessor(partition.Layout{Queue: "q", N: 1}, "w", client, map[string]*redisClock{"q": clock}, nil, time.Minute, newRoles(client, "w"), slog.New(slog.DiscardHandler))
	asks := make([]leaseAsk, 20)
	for i := range asks {
		asks[i] = leaseAsk{limit: "spend", tenant: fmt.Sprint("t", i), budget: true, spec: limitlua.Spec{Algorithm: "fw", Permit: 1, Burst: 10, Window: time.Hour.Microseconds()}}
		asks[i].Ask = partition.Ask{Member: "q", Holder: "q:1", Want: 1, Weight: 1}
	}
	answers, _ := l.lease([][]leaseAsk{asks})
	if n := waits.Load(); answers[0].err != nil || n == 0 || n > 3 { // to read a ledger, and to store it
		t.Errorf("the seat was asked %d times; %v", n, answers[0].err)
	}
	for i, a := range answers[0].all {
		if a.N == 0 {
			t.Errorf("%s is leased nothing", asks[i].tenant)
		}
	}
}
