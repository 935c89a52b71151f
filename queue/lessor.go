package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
)

// lessor leases the shared limits of a queue in partitions to these, and to a queue its part of budgets. In
// each partition the bucket of such a limit has only what was leased to it (leases.lua). It tells what it has
// and what it could use; the ledger has what is leased to whom; package partition has the rules.
//
// One worker of the queue does all of this, so that no partition asks twice. If two take themselves for
// that one, the ledger is still right: it is replaced only by who read the latest one. So do the workers of
// queues that share a budget.
type lessor struct {
	of     partition.Layout
	worker string // id of this session
	redis  redis.UniversalClient
	clocks map[string]*redisClock // by partition
	limits map[string]*effective.Calendars
	lasts  time.Duration // how long a call may take
	roles  *roles
	seats  []string // hash tags, see package seats
	logger *slog.Logger

	mu     sync.Mutex
	leads  bool
	shared bool          // the queue has shared limits
	alone  bool          // the first partition does not answer, so the others say that
	wanted time.Duration // when a partition last had jobs for one that is not used up, on the boot clock
	stir   chan struct{} // closed when all partitions are to be asked at once
	lag    time.Duration // how long it takes until a partition has what was leased

	learned *time.Duration // by how much the boot clock is ahead of the ledger's, by other clocks; nil: not known

	slow  time.Duration            // between two asks of a partition without jobs; 0: as often as of others
	looks map[string]chan struct{} // by partition: it has jobs again

	asks coalesce.Batcher[[]leaseAsk, leaseAnswers]

	books  map[string]*book // by their key; only asks.Run uses them
	silent seats.Silent     // shared by the books: each tenant has one for a budget
	stored *seats.Register  // the ledger of the queue, as learn reads it
}

// leaseAsk is what a partition's bucket of a limit asks for.
type leaseAsk struct {
	limit  string
	tenant string // escaped; "": all together
	budget bool   // several queues share it
	spec   limitlua.Spec
	id     string // of the bucket
	had    int64  // permits of a quota or a pool
	over   bool   // all of a quota is used up
	partition.Ask
}

// useful reports whether the ledger has something to do for the ask.
func (a *leaseAsk) useful() bool {
	renew := a.spec.Algorithm == "cc" && a.N > 0 || a.spec.Pool && a.N > a.Spent // until the calls end, or have left
	return a.Want > 0 || len(a.Keep) > 0 || a.N != a.had || a.Since > 0 || renew
}

// kept is how long the ledger of a budget is kept after its last change: as long as that can matter, and a day more,
// so that no worker has a book of an expired one.
func (a *leaseAsk) kept() time.Duration {
	window := a.spec.Window
	for i := 1; i < len(a.Calendar); i++ {
		window = max(window, a.Calendar[i]-a.Calendar[i-1])
	}
	return time.Duration(window)*time.Microsecond + 24*time.Hour
}

const (
	idleAsks   = 250 * time.Millisecond // between two asks if no partition had jobs for a second
	noAsks     = time.Second            // the same, without shared limits
	maxLag     = 500 * time.Millisecond // of a slow Redis
	sharedAsks = 5 * time.Millisecond   // how long partitions wait for others, to share a change of the ledger
	unusedBook = 10 * time.Minute       // how long the ledger of a tenant's budget is known after its last use
	lessorLast = 2 * time.Second        // how long a worker leases without taking the role again
)

func newLessor(of partition.Layout, worker string, client redis.UniversalClient, clocks map[string]*redisClock, limits map[string]*effective.Calendars, lasts time.Duration, roles *roles, logger *slog.Logger) *lessor {
	l := &lessor{of: of, worker: worker, redis: client, clocks: clocks, limits: limits, lasts: lasts, roles: roles, seats: seats.Tags(client, of.Queue), logger: logger, stir: make(chan struct{})}
	l.slow, l.looks = slowed(of, 0, slowDispatch), map[string]chan struct{}{}
	for _, home := range of.Names() {
		l.looks[home] = make(chan struct{}, 1)
	}
	l.asks.Run, l.asks.Gap, l.books, l.silent = l.lease, sharedAsks, map[string]*book{}, seats.Silent{}
	l.stored = seats.New(client, worker, of.Queue, store.Key(of.Queue, "ledger"))
	return l
}

// Run leases until ctx is done.
func (l *lessor) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, home := range l.of.Names() {
		all.Go(func() { l.serve(ctx, home) })
	}
	l.repeat(ctx, "cannot take the role of who leases; retrying", l.of.Queue, nil, func() (time.Duration, error) {
		return lessorLast / 2, l.lead(ctx)
	})
	l.resign()
}

// roleOf returns the key of the role in one of the seats of the ledger. The first one that answers has it.
func roleOf(seat string) string { return store.Key(seat, "lessor") }

// resign gives up the role of a worker that stops, and tells the others.
func (l *lessor) resign() {
	l.mu.Lock()
	leads := l.leads
	l.leads = false
	l.mu.Unlock()
	if !leads {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lessorLast) // then the role has expired anyway
	defer cancel()
	var all sync.WaitGroup
	for _, seat := range l.seats {
		all.Go(func() {
			_, _ = store.ResignScript.RunUntilDone(ctx, l.redis, []string{roleOf(seat)}, l.worker, store.WakeChannel(l.of.Queue), store.ToAll)
		})
	}
	all.Wait()
}

// call lets the worker look at once whether it is to lease: another one may have stopped. l may be nil.
func (l *lessor) call() {
	if l == nil {
		return
	}
	for _, seat := range l.seats {
		l.roles.taken(roleOf(seat), 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		l.askAll()
	}
}

// look lets a partition be asked soon: it had no jobs, and now it has. l may be nil.
func (l *lessor) look(home string) {
	if l != nil {
		signal(l.looks[home])
	}
}

// repeat calls fn until ctx is done, each time after the time that it returned, or after look, or when all partitions are
// to be asked. It logs the first of its errors in a row.
func (l *lessor) repeat(ctx context.Context, warning, queue string, look <-chan struct{}, fn func() (time.Duration, error)) {
	failing := false
	for {
		l.mu.Lock()
		stir := l.stir
		l.mu.Unlock()
		wait, err := fn()
		if err != nil && !failing && ctx.Err() == nil {
			l.logger.Warn(warning, logkey.Queue, queue, logkey.Error, err)
		}
		failing = err != nil
		least := min(wait, partition.Every)
		select {
		case <-ctx.Done():
			return
		case <-stir:
			continue
		case <-time.After(least):
		}
		select {
		case <-ctx.Done():
			return
		case <-stir:
		case <-look:
		case <-time.After(wait - least):
		}
	}
}

// askAll lets all partitions be asked at once. l is locked.
func (l *lessor) askAll() {
	close(l.stir)
	l.stir = make(chan struct{})
}

// lead takes or keeps the role of the worker that leases, if no other worker has it.
func (l *lessor) lead(ctx context.Context) error {
	if l.of.N == 1 && !l.limits[l.of.Queue].Leased(ctx) {
		l.led(false)
		return nil
	}
	known, err := l.learn(ctx)
	if !known { // it could lease nothing
		l.led(false)
		return err
	}
	for _, seat := range l.seats {
		if l.roles.left(roleOf(seat)) > 0 {
			l.led(false)
			return nil
		}
		var left time.Duration
		if left, err = l.takeRole(ctx, seat); err == nil {
			if l.led(left == 0); left > 0 {
				l.roles.taken(roleOf(seat), left)
			}
			return nil
		}
	}
	l.led(false)
	return err
}

// keptClocks is how many partitions' clocks are stored beside the ledger: some of them are on other nodes than the first.
const keptClocks = 8

// ahead returns by how much the ledger's clock is ahead of those of some partitions, in µs; nil: it is not known, because
// the node of the first partition, whose clock it is, has not answered yet.
func (l *lessor) ahead() map[string]int64 {
	if _, known := l.clocks[l.of.Queue].offset(); !known {
		return nil
	}
	all := map[string]int64{}
	for _, home := range l.of.Names()[1:min(l.of.N, keptClocks+1)] {
		if by, known := l.clocks[home].ahead(l.clocks[l.of.Queue]); known {
			all[home] = by.Microseconds()
		}
	}
	return all
}

// offset returns by how much the boot clock is ahead of the ledger's.
func (l *lessor) offset() (by time.Duration, known bool) {
	if by, known = l.clocks[l.of.Queue].offset(); known {
		return by, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.learned == nil {
		return 0, false
	}
	return *l.learned, true
}

// sameClock is how much what other clocks say of the ledger's may differ. If it differs by more, one of them was set. Where
// only one answers, it is believed: if that one was set, it is for the ledger as if its own had been.
const sameClock = 50 * time.Millisecond

// learn reports whether the ledger's clock is known. If the node of the first partition has never answered, it computes it
// from the clocks of others and what is stored of these.
func (l *lessor) learn(ctx context.Context) (known bool, err error) {
	if _, known := l.offset(); known {
		return true, nil
	}
	if l.of.N == 1 || slices.ContainsFunc(l.seats, func(seat string) bool { return l.roles.left(roleOf(seat)) > 0 }) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	text, _, err := l.stored.Read(ctx)
	if err != nil {
		return false, err
	}
	stored, err := store.ReadLedgers(text)
	var all []time.Duration
	for home, ahead := range stored.Ahead {
		if clock := l.clocks[home]; clock != nil {
			if by, known := clock.offset(); known {
				all = append(all, by-time.Duration(ahead)*time.Microsecond)
			}
		}
	}
	if len(all) == 0 || slices.Max(all)-slices.Min(all) > sameClock {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.learned = new(slices.Max(all)) // by which it is earliest, so that nothing is leased too early
	return true, nil
}

// takeRole takes the role in a seat, or returns for how long another worker has it.
func (l *lessor) takeRole(ctx context.Context, seat string) (time.Duration, error) {
	most := store.Timeout
	if len(l.seats) > 1 {
		most = lessorLast / 4 // or the role in the next one would run out
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	reply, err := store.WatchScript.RunUntilDone(ctx, l.redis, store.KeysOf(seat, roleOf(seat)), seat, l.worker, lessorLast.Milliseconds())
	left, ok := reply.(int64)
	if err == nil && !ok {
		err = fmt.Errorf("unexpected reply %v", reply)
	}
	return time.Duration(left) * time.Millisecond, err
}

// led records whether this worker leases.
func (l *lessor) led(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leads && !l.leads {
		l.askAll()
	}
	l.leads = leads
}

// serve asks and grants for one partition until ctx is done.
func (l *lessor) serve(ctx context.Context, home string) {
	var restsSince time.Duration // when it was asked, and had no jobs; 0: it had some
	l.repeat(ctx, "cannot lease shared limits to a partition; retrying", home, l.looks[home], func() (time.Duration, error) {
		first := home == l.of.Queue // it says whether there are shared limits
		l.mu.Lock()
		asks := l.leads && (l.shared || first || l.alone)
		l.mu.Unlock()
		if !asks {
			return noAsks, nil
		}
		began := boottime.Now()
		var next time.Duration
		var err error
		if restsSince > 0 && began-restsSince < longestRest {
			next, err = rest(ctx, l.redis, home)
		}
		if next == 0 && err == nil {
			next, err = l.round(ctx, home)
			restsSince = 0
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if restsSince == 0 && l.slow > 0 && next > 0 && !first { // the first partition has the limits and their windows
			restsSince = began
		}
		if first {
			l.alone = err != nil
		}
		wait := partition.Every
		switch {
		case !l.shared:
			wait = noAsks
		case began-l.wanted > time.Second:
			wait = idleAsks
		}
		if l.shared {
			wait = max(wait, min(next, l.slow))
		}
		return max(0, wait-(boottime.Now()-began)), err
	})
}

// noted records what a partition asked for, and reports whether the ledger is to know.
func (l *lessor) noted(home string, shared bool, asks []leaseAsk) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared != shared && (home == l.of.Queue || l.alone && shared) {
		l.shared = shared
		l.askAll()
	}
	// The ledger has its limits and their windows from the first partition, also while that has no jobs.
	useful, wants := home == l.of.Queue && len(asks) > 0, false
	for _, a := range asks {
		wants = wants || a.Want > 0 && !a.over
		useful = useful || a.useful()
	}
	if now := boottime.Now(); wants {
		if now-l.wanted > time.Second {
			l.askAll()
		}
		l.wanted = now
	}
	return useful
}

// round asks a partition's buckets, and grants them what the ledger answers. It returns after how long the partition may
// want something though dispatch announces nothing; 0 if it has jobs, or something of a lease.
func (l *lessor) round(ctx context.Context, home string) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	offset, known := l.offset()
	own, answered := l.clocks[home].offset()
	if home == l.of.Queue {
		own, answered = offset, known // so that it is asked, which shows that its node is away
	}
	if !known || !answered {
		return 0, nil
	}
	shift := own - offset
	asks, shared, next, err := askBuckets(ctx, l.redis, home, l.limits[home], shift)
	if err != nil {
		return 0, err
	}
	for i := range asks {
		if asks[i].spec.Algorithm == "cc" {
			asks[i].spec.Lease = 2 * l.lasts.Microseconds()
		}
	}
	// The ledger of each tenant's budget costs a request of its own.
	asks = slices.DeleteFunc(asks, func(a leaseAsk) bool { return a.budget && !a.useful() })
	if slices.ContainsFunc(asks, func(a leaseAsk) bool { return a.useful() }) {
		next = 0
	}
	if !l.noted(home, shared, asks) {
		return next, nil
	}
	began := boottime.Now()
	defer func() { l.took(boottime.Now() - began) }()
	got, err := l.asks.Do(asks)
	if err != nil {
		return 0, err
	}
	answers := got.all
	for i, a := range asks {
		if answers[i].Version <= a.Version {
			continue
		}
		args := []any{home, a.limit, a.id, answers[i].Version, int64(math.Ceil(1e6 * answers[i].Share)), int64(1e6 * answers[i].Used), a.tenant}
		switch partition.Family(a.spec) {
		case "fw":
			args = append(args, answers[i].N, answers[i].From, answers[i].Until)
		case "pool":
			args = append(args, answers[i].N, answers[i].Until, answers[i].Back)
		case "cc":
			args[4] = answers[i].Fair
			// No call begins that could end after its lease.
			args = append(args, answers[i].N, 1, max(0, answers[i].Until-l.lasts.Microseconds()))
		}
		for _, s := range answers[i].Spans {
			args = append(args, s.Permit, s.Flow, s.Burst, s.From.US, s.From.Units, s.End.US, s.End.Units)
		}
		if _, err := store.GrantScript.Run(ctx, l.redis, store.ScriptKeys(home), args...); err != nil {
			return 0, err
		}
	}
	return next, got.err
}

// rest returns after how long a partition that had no jobs may want something though dispatch announces nothing; 0 if it
// has jobs, or if that time has come.
func rest(ctx context.Context, client redis.UniversalClient, home string) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	reply, err := store.AskIdleScript.Run(ctx, client, store.ScriptKeys(home), home)
	if err != nil {
		return 0, err
	}
	us, ok := reply.(int64)
	if !ok {
		return 0, fmt.Errorf("unexpected reply %v", reply)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// askBuckets returns what the buckets of a partition have and want, whether it has leased limits at all, and after how long
// they may want more though dispatch announces nothing. shift is by how much the ledger's clock is ahead of the partition's.
func askBuckets(ctx context.Context, client redis.UniversalClient, home string, windows *effective.Calendars, shift time.Duration) (asks []leaseAsk, shared bool, next time.Duration, err error) {
	var reply any
	err = windows.Run(ctx, func(calendars string) (err error) {
		reply, err = store.AskScript.Run(ctx, client, store.ScriptKeys(home), home, shift.Microseconds(), partition.Horizon.Microseconds(), calendars)
		return err
	})
	if err != nil {
		return nil, false, 0, err
	}
	return readAsks(reply, home)
}

// took records how long a round took: twice that, because the next one may take longer. It is forgotten
// slowly.
func (l *lessor) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag = min(max(2*d, l.lag*9/10), maxLag)
}

// readAsks decodes the reply of lease_ask.lua.
func readAsks(reply any, home string) (asks []leaseAsk, shared bool, next time.Duration, err error) {
	read := store.Read(reply)
	shared, next = read.Flag(), time.Duration(read.Int())*time.Microsecond
	for read.More() {
		one := read.List()
		a := leaseAsk{limit: one.Text(), tenant: one.Text(), budget: one.Flag(), spec: limitlua.Spec{Pool: one.Flag(), Algorithm: one.Text(), Permit: one.Int(), Flow: one.Int(), Burst: one.Int(), Window: one.Int()}}
		var calendar []int64
		for starts := one.List(); starts.More(); {
			calendar = append(calendar, starts.Int())
		}
		a.id = one.Text()
		a.Ask = partition.Ask{Member: home, Holder: home + ":" + a.id, Version: uint64(one.Int()), Want: one.Int(), Least: one.Int(), Weight: one.Float(), Firsts: one.Int(), Calendar: calendar}
		keep := one.List()
		switch partition.Family(a.spec) {
		case "pool":
			a.N, a.had, a.Spent, a.Back, a.Since, a.At = keep.Int(), keep.Int(), keep.Int(), keep.Int(), keep.Int(), keep.Int()
		case "fw":
			a.N, a.had, a.over = keep.Int(), keep.Int(), keep.Int() == 1
		case "cc":
			a.N, a.had = keep.Int(), keep.Int()
		}
		for keep.More() {
			var s partition.Span
			s.From.US, s.From.Units, s.End.US, s.End.Units = keep.Int(), keep.Int(), keep.Int(), keep.Int()
			a.Keep = append(a.Keep, s)
		}
		if err := one.End(); err != nil {
			return nil, false, 0, err
		}
		asks = append(asks, a)
	}
	return asks, shared, next, nil
}

// leaseAnswers has the answers to the asks of a partition. Those of a ledger that could not be stored are empty,
// and change nothing; err says why.
type leaseAnswers struct {
	all []partition.Answer
	err error
}

// lease answers the asks of partitions. What it leases is stored before anybody is told.
func (l *lessor) lease(batch [][]leaseAsk) ([]leaseAnswers, error) {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	l.mu.Lock()
	lag := l.lag
	l.mu.Unlock()
	// What begins before it is there is of no use, and the next ask takes as long. Another worker may have
	// leased with another lag.
	offset, _ := l.offset()
	now, ahead, clocks := (boottime.Now() - offset + lag).Microseconds(), 2*maxLag.Microseconds(), l.ahead()
	// An older book could take a ledger for lost that has expired.
	maps.DeleteFunc(l.books, func(_ string, b *book) bool { return boottime.Now()-b.used > unusedBook })
	answers := make([]leaseAnswers, len(batch))
	byBook := map[*book][]leaseCall{}
	for i, asks := range batch {
		answers[i].all = make([]partition.Answer, len(asks))
		for j := range asks {
			asks[j].Ahead = lag.Microseconds()
			b := l.book(&asks[j])
			byBook[b] = append(byBook[b], leaseCall{&asks[j], &answers[i].all[j], &answers[i].err})
		}
	}
	// The node of one budget may be away: that holds up no other limit. The queue's own ledger comes first, because the
	// time for all of them is limited.
	var faults []store.Fault
	books := slices.Collect(maps.Keys(byBook))
	if own := slices.IndexFunc(books, func(b *book) bool { return !b.budget }); own > 0 {
		books[0], books[own] = books[own], books[0]
	}
	for _, b := range books {
		all := byBook[b]
		if !b.budget { // the queues that share a budget have different first partitions
			b.clocks = clocks
		}
		err := b.lease(ctx, l.redis, all, now, ahead)
		if err != nil {
			for _, one := range all {
				*one.answer, *one.err = partition.Answer{}, err
			}
		}
		b.used = boottime.Now()
		faults = append(faults, b.newFaults(err)...)
	}
	l.report(faults)
	return answers, nil
}

// report reports what of the ledgers cannot be read, in the faults of the queue.
func (l *lessor) report(faults []store.Fault) {
	l.mu.Lock()
	away := l.alone
	l.mu.Unlock()
	if away {
		return // until the next time
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxLag)
	defer cancel()
	for _, fault := range faults {
		fault.At = l.clocks[l.of.Queue].now()
		_ = store.ReportFault(ctx, l.redis, l.of.Queue, fault) // after an error the same
	}
}

// book returns the book that an ask is for.
func (l *lessor) book(a *leaseAsk) *book {
	home, key := l.of.Queue, store.Key(l.of.Queue, "ledger")
	if a.budget {
		home = "*" + a.limit // no queue has such a name
		key = store.Key(home, "ledger:"+a.tenant)
	}
	b := l.books[key]
	if b == nil {
		b = &book{kept: seats.New(l.redis, l.worker, home, key).Share(l.silent), key: key, told: map[string]time.Duration{}, of: l.of.Queue, budget: a.budget}
		l.books[key] = b
	}
	if a.budget { // there may be one for each of a million tenants
		b.kept.Keep(a.kept())
	}
	return b
}
