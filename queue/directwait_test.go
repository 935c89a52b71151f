package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestWaitForAPlace: a call that waits goes when a place is free.
func TestWaitForAPlace(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	first, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := r.client.Wait(t.Context(), r.call("a"), 50*time.Millisecond); !errors.As(err, &refused) || refused.RetryAfter != 0 || refused.Reason != ParkedByConcurrency {
		t.Errorf("a call went beside it: %v", err)
	}
	second := make(chan error, 1)
	go func() {
		p, err := r.client.Wait(t.Context(), r.call("a"), hang)
		if err == nil {
			err = p.Release(t.Context())
		}
		second <- err
	}()
	r.inLine(t, "permits:one:", 1)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// inLine waits until so many direct calls stand in the line of a bucket. The limits have refused them then.
func (r *rig) inLine(t *testing.T, bucket string, n int) {
	t.Helper()
	in := r.client.direct.in(r.client.redis, r.queue)
	until(t, "calls in line", func() bool {
		in.lines.mu.Lock()
		defer in.lines.mu.Unlock()
		line := in.lines.all[store.Key(r.queue, bucket)]
		return line != nil && line.waiting == n
	})
}

// TestTimedWaitingCalls: many callers that wait for one limit go at its rate.
func TestTimedWaitingCalls(t *testing.T) {
	t.Parallel()
	const rate = 50
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, 0, limitsOf(sharedBy(rate)), nil)
		var mu sync.Mutex
		var calls []time.Time
		var all sync.WaitGroup
		for range 25 {
			all.Go(func() {
				if _, err := r.client.Wait(t.Context(), r.call("a"), hang); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, time.Now())
			})
		}
		all.Wait()
		run.Law("calls", calls, rate, 1)
	})
}

// TestWaitAfterItsContext: a call whose context has ended does not go.
func TestWaitAfterItsContext(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(sharedBy(50)), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.client.Wait(ended, r.call("a"), hang); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// TestCallsWaitForTheirOwnLimitFirst: a call that its own limit holds takes no slot ahead of the line of a limit that
// all share: what comes before that would be nobody's.
func TestCallsWaitForTheirOwnLimitFirst(t *testing.T) {
	t.Parallel()
	own := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 60 * time.Millisecond}, Per: []string{"tenant"}}
	r := startRig(t, 0, limitsOf(sharedBy(1000), own), nil)
	in := r.client.direct.in(r.client.redis, r.queue)
	if err := in.clock.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := r.client.prepare(t.Context(), r.call("a"), time.Now(), &retry{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine the next call may come only when its own limit admits it.
	var refused *refusal
	until(t, "a call that is refused", func() bool {
		if _, refused, err = r.client.ask(t.Context(), a, in, time.Millisecond, directNear, &observed{}); err != nil {
			t.Fatal(err)
		}
		return refused != nil
	})
	if refused.RetryAfter > directNear || refused.Limit != "tenant" || refused.again < refused.RetryAfter-2*time.Millisecond || refused.again >= refused.RetryAfter {
		t.Errorf("it asks again in %v, for a slot in %v of limit %s", refused.again, refused.RetryAfter, refused.Limit)
	}
}

// TestCallsStandInLine: of the calls of a process that wait for the same bucket only the first one asks, and the
// others come after it in their order. Calls of another bucket do not wait for them, nor do those that do not wait.
func TestCallsStandInLine(t *testing.T) {
	t.Parallel()
	often := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 300 * time.Millisecond}, Per: []string{"tenant"}}
	r := startRig(t, 0, limitsOf(often), nil)
	in := r.client.direct.in(r.client.redis, r.queue)
	line := store.Key(r.queue, "b:tenant:a")
	take := func(tenant string) error {
		_, err := r.client.Take(t.Context(), r.call(tenant))
		return err
	}
	if err := take("a"); err != nil {
		t.Fatal(err)
	}
	leave := in.lines.enter(t.Context(), line)
	waits := make(chan error, 1)
	go func() {
		_, err := r.client.Wait(t.Context(), r.call("a"), hang)
		waits <- err
	}()
	r.inLine(t, "b:tenant:a", 2)
	if _, err := r.client.Wait(t.Context(), r.call("b"), hang); err != nil {
		t.Errorf("a call of another tenant: %v", err)
	}
	until(t, "a permit for a call that does not wait", func() bool { return take("a") == nil })
	select {
	case err := <-waits:
		t.Errorf("the call in line was made: %v", err)
	default:
	}
	leave()
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if len(in.lines.all) != 0 {
		t.Errorf("%d lines are kept", len(in.lines.all))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	leave = in.lines.enter(t.Context(), line)
	in.lines.enter(ended, line)() // it does not become the first one
	leave()
	if len(in.lines.all) != 0 {
		t.Errorf("%d lines are kept after one gave up", len(in.lines.all))
	}
}

// TestCallsAreAccountedLate: a call that may leave until a moment is accounted at that moment.
func TestCallsAreAccountedLate(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(limits.Limit{Name: "slow", Algorithm: throttle.LeakyBucket, Rate: throttle.Rate{Count: 1, Period: time.Hour}}), nil)
	p, err := r.client.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, refused := r.takes(t, r.call("a"))
	now, err := store.Time(t.Context(), r.client.redis, store.Key(r.queue, "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	// The next one goes an hour after the last moment of the first.
	if next := now.Add(refused.RetryAfter).UnixMicro(); next < p.slot.latestMicros+time.Hour.Microseconds() {
		t.Errorf("the next call goes %v too early", time.Duration(p.slot.latestMicros+time.Hour.Microseconds()-next)*time.Microsecond)
	}
	if lasts := p.slot.latest - p.slot.earliest; lasts < directNear-late || lasts > directNear+late {
		t.Errorf("the slot lasts %v", lasts)
	}
}

// TestMissedDirectCalls: a call whose slot was over when it came gets another one, with more time.
func TestMissedDirectCalls(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 20)), nil)
	in := &directIn{clock: &redisClock{}}
	for ends, want := range map[time.Duration]bool{time.Hour: true, -time.Hour: false} {
		over := boottime.Now() + ends
		p := &Permit{slot: slot{earliest: boottime.Now() - time.Second, latest: over, latestMicros: over.Microseconds()}}
		if got := p.hold(t.Context(), in); got != want {
			t.Errorf("a slot that ends in %v is good: %v", ends, got)
		}
	}
	options := r.server.Options()
	options.Dialer = dialSlowScripts(10 * time.Millisecond) // more than the first slots last
	redisClient := redis.NewUniversalClient(options)
	defer redisClient.Close()
	slow := NewClient(redisClient)
	slow.direct.pickup = time.Millisecond
	if _, err := slow.Wait(t.Context(), r.call("a"), hang); err != nil {
		t.Errorf("a call whose first slots were over when they came: %v", err)
	}
}

// TestClockIsAskedAgain: a clock that nobody runs asks Redis at first, and when it was not asked for longer than
// it can be right.
func TestClockIsAskedAgain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	c := &redisClock{redis: client, queue: r.queue}
	const mark = time.Duration(-1 << 62)
	for step, want := range []bool{true, false, true} {
		if step == 2 {
			c.since -= 3 * clockWindow
		}
		c.least = mark
		if err := c.ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if asked := c.least != mark; asked != want {
			t.Errorf("step %d: it asked: %v", step, asked)
		}
	}
	if now, err := store.Time(t.Context(), client, store.Key(r.queue, "waiting")); err != nil || c.now().Sub(now).Abs() > time.Minute {
		t.Errorf("it says %v and Redis %v, %v", c.now(), now, err)
	}
}

// TestSilentRedisHoldsNoCallLong: while Redis does not answer, each of many calls ends after its longest wait and one
// timeout of Redis, whatever the others do.
func TestSilentRedisHoldsNoCallLong(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), 0, limitsOf(), nil)
	if _, err := r.client.Take(t.Context(), r.call("a")); err != nil { // which reads what calls need
		t.Fatal(err)
	}
	clock := r.client.direct.in(r.client.redis, r.queue).clock
	clock.mu.Lock()
	clock.since -= 3 * clockWindow // as after a while without calls
	clock.mu.Unlock()
	server.Pause()
	defer server.Resume()
	const maxWait = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 3*(maxWait+store.Timeout))
	defer cancel()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = r.client.Take(ctx, r.call("a"))
			} else {
				_, err = r.client.Wait(ctx, r.call("a"), maxWait)
			}
			if err == nil || ctx.Err() != nil {
				t.Errorf("call %d ended late: %v", i, err)
			}
		})
	}
	all.Wait()
}

// TestCallThatGivesUpStopsNoOther: calls that come while Redis is asked for its time wait for that answer, also after
// the one that asked has gone.
func TestCallThatGivesUpStopsNoOther(t *testing.T) {
	t.Parallel()
	client := redis.NewUniversalClient(redistest.Shared(t).Options())
	t.Cleanup(func() { _ = client.Close() })
	times := &heldAnswers{command: "time", asked: make(chan struct{}, 2*firstSamples), answer: make(chan struct{})}
	client.AddHook(redistest.OnCommand(times.on))
	c := &redisClock{redis: client, queue: redistest.Queue(t)}
	ctx, giveUp := context.WithCancel(t.Context())
	first, rest := make(chan error, 1), make(chan error, 10)
	go func() { first <- c.ready(ctx) }()
	<-times.asked
	for range cap(rest) {
		go func() { rest <- c.ready(t.Context()) }()
	}
	giveUp()
	select {
	case err := <-first:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the call that gave up: %v", err)
		}
	case <-time.After(hang):
		t.Error("the call that gave up waits for the answer")
	}
	close(times.answer)
	for range cap(rest) {
		if err := <-rest; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	}
}

// TestCallsBesideCalendarsThatDoNotCome: while the calendars of a queue cannot be read, a call that ends needs none of
// them, and one that waits for them ends with its context.
func TestCallsBesideCalendarsThatDoNotCome(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(limits.Limit{Name: "two", Algorithm: throttle.Concurrency, Concurrency: 2}), nil)
	client := redis.NewUniversalClient(r.server.Options())
	t.Cleanup(func() { _ = client.Close() })
	calls := NewClient(client)
	p, err := calls.Take(t.Context(), r.call("a"))
	if err != nil {
		t.Fatal(err)
	}
	calls.direct.expireCalendars()
	reads := &heldAnswers{command: "hget", asked: make(chan struct{}, 10), answer: make(chan struct{})}
	defer close(reads.answer)
	client.AddHook(redistest.OnCommand(reads.on))
	started := func(do func() error) <-chan error {
		done := make(chan error, 1)
		go func() { done <- do() }()
		return done
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	take := started(func() error { _, err := calls.Take(ctx, r.call("a")); return err })
	<-reads.asked
	release := started(func() error { return p.Release(context.Background()) })
	renew := started(func() error { _, err := p.end(context.Background(), "renew", "1"); return err })
	for what, done := range map[string]<-chan error{"Release": release, "a renewal": renew} {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(hang):
			t.Fatalf("%s waits for the calendars", what)
		}
	}
	giveUp()
	select {
	case err := <-take:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the call that gave up: %v", err)
		}
	case <-time.After(hang):
		t.Error("the call that gave up waits for the calendars")
	}
}

// TestSilentRedisHoldsNoEndLong: calls that end while Redis does not answer do not wait for each other.
func TestSilentRedisHoldsNoEndLong(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const n = 20
	server := redistest.Start(t)
	r := startRigAt(t, server.Redis(), 0, limitsOf(limits.Limit{Name: "all", Algorithm: throttle.Concurrency, Concurrency: n}), nil)
	var permits []*Permit
	for range n {
		p, err := r.client.Take(t.Context(), r.call("a"))
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, p)
	}
	r.client.direct.expireCalendars()
	server.Pause()
	defer server.Resume()
	began := time.Now()
	var all sync.WaitGroup
	for i, p := range permits {
		all.Go(func() {
			end := p.Release
			if i%2 == 0 { // this needs calendars
				end = func(ctx context.Context) error { return p.Settle(ctx, map[string]int64{"tokens": 1}) }
			}
			if err := end(t.Context()); err == nil {
				t.Errorf("call %d has ended without Redis", i)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > 4*store.Timeout { // one after the other they would take 50 s or more
		t.Errorf("%d calls took %v to end", n, took)
	}
}

// expireCalendars makes all calls read calendars again.
func (d *direct) expireCalendars() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.known)
}

// heldAnswers is a hook that holds the answers to a command.
type heldAnswers struct {
	command       string
	asked, answer chan struct{}
}

func (h *heldAnswers) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == h.command {
		h.asked <- struct{}{}
		<-h.answer
	}
	return next(ctx, cmd)
}

// TestPauseThatIsNearlyOver: a call may have a slot right after a pause, and waits for that under a limit whose line is
// empty.
func TestPauseThatIsNearlyOver(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(sharedBy(1000)), nil)
	if _, err := r.client.Wait(t.Context(), r.call("a"), hang); err != nil { // which reads what calls need
		t.Fatal(err)
	}
	r.client.direct.pickup = time.Millisecond
	client, key := r.server.Client(), store.Key(r.queue, "waiting")
	redisTime := func() time.Time {
		now, err := store.Time(t.Context(), client, key)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	waited := 0
	for end := time.Now().Add(hang); waited < 10; { // the rest come when the pause is over
		if time.Now().After(end) {
			t.Fatalf("only %d calls came during a pause", waited)
		}
		pause, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, redisTime().Add(directNear-5*time.Millisecond), ann)
		if err != nil {
			continue // it was over before it began
		}
		if redisTime().Before(pause.Until) {
			waited++
		}
		if _, err := r.client.Wait(t.Context(), r.call("a"), hang); err != nil {
			t.Fatal(err)
		}
		if now := redisTime(); now.Before(pause.Until) {
			t.Errorf("a call went %v before the end of the pause", pause.Until.Sub(now))
		}
	}
}

// TestWaitEndsInAPause: a call is refused when its longest wait is over, also during a pause without an end.
func TestWaitEndsInAPause(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100)), nil)
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	least := time.Hour // of several: a busy machine may hold up some
	for range 5 {
		began := time.Now()
		var refused *RefusedError
		if _, err := r.client.Wait(t.Context(), r.call("a"), 20*time.Millisecond); !errors.As(err, &refused) || refused.Reason != ParkedByPause {
			t.Fatalf("a call during a pause: %v", err)
		}
		least = min(least, time.Since(began))
	}
	if least >= 200*time.Millisecond {
		t.Errorf("told after %v", least)
	}
}
