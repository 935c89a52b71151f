package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func TestWaitingSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	const jobs = 60
	r := startRig(t, jobs, limitsOf(perTenant(40)), nil)
	for range jobs {
		r.add(t, func(job *Job) { job.MaxAttempts = 1 })
	}
	r.run(t)
	r.receiver.wait(t)
	r.seen.wait(t, string(lifecycle.Done), jobs)
	for id, calls := range r.jobs {
		if calls != 1 {
			t.Errorf("job %s was called %d times", id, calls)
		}
	}
	if states := r.states(t); states["archived"] != 0 {
		t.Errorf("states = %v; want nothing archived", states)
	}
}

func TestAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, limitsOf(), nil)
	var attempts []int
	r.answer = func(_ context.Context, job Running) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		attempts = append(attempts, job.Attempt)
		if job.IdempotencyKey != job.ID {
			t.Errorf("idempotency key %q of job %q", job.IdempotencyKey, job.ID)
		}
		return errors.New("500 from the provider")
	}
	id := r.add(t, func(job *Job) { job.MaxAttempts = 3 })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.stop()
	if fmt.Sprint(attempts) != "[1 2 3]" {
		t.Errorf("attempts = %v", attempts)
	}
	if reason := r.archived(t)[id]; !strings.Contains(reason, "attempt 3 of 3: 500 from the provider") {
		t.Errorf("archived with %q", reason)
	}
}

var errPanic = errors.New("panics")

type unknown struct{}

func (unknown) Error() string { return "connection lost" }
func (unknown) Unknown() bool { return true }

type throttled struct{ after time.Duration }

func (throttled) Error() string               { return "429" }
func (e throttled) RetryAfter() time.Duration { return e.after }

func TestThrottledPausesTheTenantAndSpendsNoAttempt(t *testing.T) {
	r := startRig(t, 6, limitsOf(perTenant(10)), nil) // the next slots come during the pause
	var refused time.Time
	r.answer = func(_ context.Context, job Running) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if refused.IsZero() {
			refused = time.Now()
			return throttled{600 * time.Millisecond}
		}
		if job.Attempt != 1 {
			t.Errorf("attempt %d after a 429", job.Attempt)
		}
		if since := time.Since(refused); since < 600*time.Millisecond && since > 50*time.Millisecond {
			t.Errorf("a call %v after the provider asked for 600 ms", since)
		}
		return nil
	}
	for range 5 {
		r.add(t, func(job *Job) { job.MaxAttempts = 1 })
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5)
	// The pause is for every worker, not only this one.
	text, err := r.server.Client().HGet(t.Context(), store.Key(r.queue, "pauses"), "a").Result()
	var pause int64
	if err == nil {
		_, err = fmt.Sscanf(text, "%d provider 429", &pause)
	}
	if err != nil || time.UnixMicro(pause).Before(refused.Add(550*time.Millisecond)) {
		t.Errorf("paused until %v, %v; refused at %v", time.UnixMicro(pause), err, refused)
	}
	if n := r.seen.outcomes(lifecycle.Throttled); n != 1 {
		t.Errorf("%d throttled", n)
	}
}

func TestExpiry(t *testing.T) {
	r := startRig(t, 2, limitsOf(perTenant(1)), nil)
	first := r.add(t, nil)
	expiring := r.add(t, func(job *Job) { job.Deadline = time.Now().Add(400 * time.Millisecond) })
	last := r.add(t, nil)
	r.run(t)
	r.receiver.wait(t)
	r.seen.wait(t, string(lifecycle.Expired), 1)
	r.stop()
	if r.jobs[first] != 1 || r.jobs[last] != 1 || r.jobs[expiring] != 0 {
		t.Errorf("calls = %v; want the expiring job %s not called", r.jobs, expiring)
	}
	if reason := r.archived(t)[expiring]; !strings.Contains(reason, "expired") {
		t.Errorf("archived with %q", reason)
	}
	// They would be two seconds apart if it had.
	if gap := r.calls["a"][1].Sub(r.calls["a"][0]); gap > 1900*time.Millisecond {
		t.Errorf("the job that expired took a slot: %v between the others at 1/s", gap)
	}
}

func TestScheduledJobsGoThroughTheirLane(t *testing.T) {
	t.Parallel()
	const jobs = 20
	r := startRig(t, jobs, limitsOf(perTenant(20)), nil)
	due := time.Now().Add(1200 * time.Millisecond)
	for range jobs {
		r.add(t, func(job *Job) { job.At = due })
	}
	if states := r.states(t); states["scheduled"] != jobs {
		t.Fatalf("states = %v", states)
	}
	r.run(t)
	r.receiver.wait(t)
	for _, at := range r.all() {
		if at.Before(due) {
			t.Errorf("a call %v before its time", due.Sub(at))
		}
	}
}

func TestStopGivesBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	const jobs = 200
	r := startRig(t, jobs, limitsOf(perTenant(100)), nil)
	r.enqueue(t, "a", jobs)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 40)
	r.stop()
	states := r.states(t)
	if left := jobs - r.seen.outcomes(lifecycle.Done); states["aggregating"]+states["pending"] != left || states["aggregating"] == 0 ||
		states["retry"] != 0 || states["active"] != 0 {
		t.Errorf("after the stop: %v; want the %d jobs that were not called in their lane", states, left)
	}

	next := newWorker(t, Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: r.seen})
	next.handlers = r.worker.handlers
	r.worker = next
	r.run(t)
	r.receiver.wait(t)
	for id, calls := range r.jobs {
		if calls != 1 {
			t.Errorf("job %s was called %d times", id, calls)
		}
	}
}

// TestHeldSlotsAreUsedByAnotherWorker: stopping a worker wastes no slots while another worker
// runs.
func TestHeldSlotsAreUsedByAnotherWorker(t *testing.T) {
	r := startRig(t, 100, limitsOf(perTenant(8)), nil)
	ctx := t.Context()
	client := r.server.Client()
	r.add(t, nil)
	id := r.add(t, nil)
	announced := r.announcements(t)
	// The first job goes at once, the second has a slot 125 ms later.
	round := r.dispatcher()
	if _, err := round.round(ctx, 100); err != nil {
		t.Fatal(err)
	}
	const over = "the round is over"
	client.Publish(ctx, store.WakeChannel(r.queue), over)
	hears(t, announced, over)
	slot := func() string { return client.HGet(ctx, asynqwire.Key(r.queue, "t:"+id), "hg_slot").Val() }
	given := slot()
	if e, c := parseSlot(t, given); e == 0 || c < e {
		t.Fatalf("slot = %q", given)
	}
	// The worker stops and gives the job back with its slot, and others hear of it before that is over.
	r.giveBack(t, id)
	if state := r.field(t, id, "state"); state != "aggregating" {
		t.Fatalf("it is %s after the stop", state)
	}
	hears(t, announced, "")
	r.release(t, round, 100)
	if again := slot(); !sameSlot(t, given, again) {
		t.Errorf("slot = %q after a stop, %q before", again, given)
	}
	if state := client.HGet(ctx, asynqwire.Key(r.queue, "t:"+id), "state").Val(); state != "active" {
		t.Errorf("state = %s; want it handed over again", state)
	}
}

// TestUnusedSlotIsGivenBack: if a job comes back with its slot, because its worker stops, and the slot is over before
// the job goes again, the sweep gives its permits back. So it uses them once, however often that happens. A slot that
// may have been used is not given back.
func TestUnusedSlotIsGivenBack(t *testing.T) {
	t.Parallel()
	day := limits.Limit{Name: "day", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: 24 * time.Hour}, Per: []string{"tenant"}}
	r := startRig(t, -1, limitsOf(perTenant(20), day), nil)
	ctx, client := t.Context(), r.server.Client()
	r.add(t, nil)
	id := r.add(t, nil)
	task, round := asynqwire.Key(r.queue, "t:"+id), r.dispatcher()
	r.release(t, round, 100)
	over := func() {
		t.Helper()
		_, latest := parseSlot(t, client.HGet(ctx, task, "hg_slot").Val())
		until(t, "the slot is over", func() bool { return client.Time(ctx).Val().UnixMicro() > latest })
	}
	used := func(want int64) {
		t.Helper()
		// A log has an entry beside its permits.
		if n := client.LLen(ctx, store.Key(r.queue, "b:day:a")).Val() - 1; n != want {
			t.Errorf("%d permits are used; want %d", n, want)
		}
	}
	back := func() {
		t.Helper()
		r.giveBack(t, id)
		if state := r.field(t, id, "state"); state != "aggregating" {
			t.Fatalf("it is %s after the stop", state)
		}
	}
	replan := func() {
		t.Helper()
		if err := effective.Replan(ctx, client, r.queue, "a"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		used(2)
		back()
		over()
		// As if its tenant had been paused until now: nobody looks at its lane for an hour.
		for _, lane := range client.SMembers(ctx, asynqwire.Key(r.queue, "groups")).Val() {
			client.ZAdd(ctx, store.Key(r.queue, "waiting"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: lane})
		}
		replan()
		used(1)
		until(t, "it goes again", func() bool {
			r.release(t, round, 100)
			return r.field(t, id, "state") == "active"
		})
	}
	used(2)
	back()
	over()
	slot := strings.Fields(client.HGet(ctx, task, "hg_slot").Val())
	client.HSet(ctx, task, "hg_slot", strings.Join(slot[:3], " "))
	r.release(t, round, 100)
	replan()
	r.release(t, round, 100)
	used(2)
	if state := r.field(t, id, "state"); state != "aggregating" {
		t.Errorf("it is %s, beyond its quota", state)
	}
}

// TestPassedSlotIsGivenBack: a job that its worker gives back after its slot, because it is paused or the worker stops,
// has not used its permits.
func TestPassedSlotIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, day := range map[string]limits.Limit{
		"log":      {Name: "day", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 1, Period: 24 * time.Hour}, Per: []string{"tenant"}},
		"calendar": {Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1, Months: 1}, Location: noon(t), Per: []string{"tenant"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(day), nil)
			id, round := r.add(t, nil), r.dispatcher()
			for range 3 {
				until(t, "it goes", func() bool {
					r.release(t, round, 100)
					return r.field(t, id, "state") == "active"
				})
				if !r.settles(t, settleQuestion{id: id, owner: r.field(t, id, "hg_owner"), outcome: settleKeep, text: "passed", to: "lane"}).mine {
					t.Fatal("nobody has it")
				}
				if marks := r.field(t, id, "hg_marks"); marks != "" {
					t.Errorf("it still has marks %q", marks)
				}
			}
		})
	}
}

// TestSlotThatIsOverIsGivenBack: a job that its worker gives back before its slot goes again after it, though the permits
// of the first slot were the last ones.
func TestSlotThatIsOverIsGivenBack(t *testing.T) {
	t.Parallel()
	day := limits.Limit{Name: "day", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: 24 * time.Hour}, Per: []string{"tenant"}}
	r := startRig(t, -1, limitsOf(perTenant(20), day), nil)
	ctx, client := t.Context(), r.server.Client()
	r.add(t, nil)
	id, round := r.add(t, nil), r.dispatcher()
	for range 3 {
		until(t, "it goes", func() bool {
			r.release(t, round, 100)
			return r.field(t, id, "state") == "active"
		})
		r.giveBack(t, id)
		_, latest := parseSlot(t, r.field(t, id, "hg_slot"))
		until(t, "the slot is over", func() bool { return client.Time(ctx).Val().UnixMicro() > latest })
	}
	// A log has an entry beside its permits.
	if n := client.LLen(ctx, store.Key(r.queue, "b:day:a")).Val() - 1; n != 2 {
		t.Errorf("%d permits are used; want 2", n)
	}
}

// TestSlotIsGivenBackOnce: however often a call of dispatch looks at a job whose slot is over, its permits come back once.
func TestSlotIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	season := limits.Limit{Name: "season", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 100, Period: 100 * 24 * time.Hour}, Per: []string{"tenant"}}
	r := startRig(t, -1, limitsOf(sharedBy(1000), season), nil)
	ctx, client, round := t.Context(), r.server.Client(), r.dispatcher()
	var jobs []string
	for range 3 {
		for _, tenant := range []string{"a", "b"} { // which have their turns one after the other
			jobs = append(jobs, r.add(t, func(j *Job) { j.Tenant = tenant }))
		}
	}
	all := func() bool {
		r.release(t, round, 100)
		return !slices.ContainsFunc(jobs, func(id string) bool { return r.field(t, id, "state") != "active" })
	}
	until(t, "they go", all)
	r.giveBack(t, jobs...)
	for _, id := range jobs {
		_, latest := parseSlot(t, r.field(t, id, "hg_slot"))
		until(t, "the slot is over", func() bool { return client.Time(ctx).Val().UnixMicro() > latest })
	}
	until(t, "they go again", all)
	for _, tenant := range []string{"a", "b"} {
		if fields := strings.Fields(client.Get(ctx, store.Key(r.queue, "b:season:"+tenant)).Val()); len(fields) < 4 || fields[3] != "3" {
			t.Errorf("the window of %s holds %q; want 3 permits used", tenant, fields)
		}
	}
}

// TestSlotAheadIsWaitedFor: a job that its worker gives back long before its slot goes when the slot comes, though its
// limits are used up: they count it already.
func TestSlotAheadIsWaitedFor(t *testing.T) {
	t.Parallel()
	day := limits.Limit{Name: "day", Algorithm: throttle.SlidingWindowLog, Rate: throttle.Rate{Count: 2, Period: 24 * time.Hour}, Per: []string{"tenant"}}
	r := startRig(t, -1, limitsOf(perTenant(4), day), nil) // a slot each 250 ms, which dispatch does not look ahead
	ctx, client, round := t.Context(), r.server.Client(), r.dispatcher()
	r.add(t, nil)
	r.release(t, round, 1)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	if answer := r.slotOf(t, id); answer != "go" {
		t.Fatal(answer)
	}
	r.giveBack(t, id)
	r.release(t, round, 100)
	for _, lane := range client.ZRangeWithScores(ctx, store.Key(r.queue, "waiting"), 0, -1).Val() {
		if wait := time.UnixMicro(int64(lane.Score)).Sub(client.Time(ctx).Val()); wait > time.Second {
			t.Errorf("lane %v is looked at in %v", lane.Member, wait)
		}
	}
	until(t, "it goes", func() bool {
		r.release(t, round, 100)
		return r.field(t, id, "state") == "active"
	})
}

// TestSlotAheadIsNotAskedFor: a lane whose job has a slot ahead is not looked at until then, whatever its limits admit.
func TestSlotAheadIsNotAskedFor(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(sharedBy(1000)), nil)
	ctx, client := t.Context(), r.server.Client()
	tries := 0
	until(t, "it was looked at in time", func() bool {
		tries++
		tenant := fmt.Sprint("t", tries)
		id, now := r.add(t, func(j *Job) { j.Tenant = tenant }), client.Time(ctx).Val().UnixMicro()
		slot := now + (2*store.Horizon - 50*time.Millisecond).Microseconds()
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "hg_slot", fmt.Sprintf("%d %d %d %d", slot, slot, now, now))
		r.release(t, r.dispatcher(), 100)
		if client.Time(ctx).Val().UnixMicro() > slot-store.Horizon.Microseconds() {
			return false
		}
		lanes := client.ZRangeWithScores(ctx, store.Key(r.queue, "waiting"), 0, -1).Val()
		if !slices.ContainsFunc(lanes, func(lane redis.Z) bool {
			return strings.HasPrefix(lane.Member.(string), tenant) && int64(lane.Score) == slot
		}) {
			t.Errorf("waiting: %v; want %s at %d", lanes, tenant, slot)
		}
		return true
	})
}

func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	const jobs, most = 30, 3
	set := limitsOf(limits.Limit{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: most, Per: []string{"tenant"}})
	r := startRig(t, jobs, set, nil)
	running, peak := 0, 0
	r.answer = func(context.Context, Running) error {
		r.mu.Lock()
		running++
		peak = max(peak, running)
		r.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // the call itself
		r.mu.Lock()
		running--
		r.mu.Unlock()
		return nil
	}
	r.enqueue(t, "a", jobs)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), jobs)
	if peak != most {
		t.Errorf("%d calls at once; want %d", peak, most)
	}
}

func TestTimedSharedLimitIsDividedByWeight(t *testing.T) {
	t.Parallel()
	set := limitsOf(sharedBy(200))
	set.Tenants = map[string]limits.Tenant{"b": {Weight: 3}}
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, 1200, set, nil)
		r.enqueue(t, "a", 600)
		r.enqueue(t, "b", 1200)
		began := time.Now()
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 600)
		r.mu.Lock()
		a, b := len(r.calls["a"]), len(r.calls["b"])
		r.mu.Unlock()
		run.Number("calls of a that are not its quarter, in percent", began, time.Now(), 100*math.Abs(4*float64(a)/float64(a+b)-1), 2)
		run.Law("shared", r.all(), 200, 1)
	})
}

// TestTimedAttributesShareAcrossTenants: a limit per domain has one bucket for all tenants, and no
// tenant starves another one there.
func TestTimedAttributesShareAcrossTenants(t *testing.T) {
	t.Parallel()
	domain := limits.Limit{Name: "domain", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(50), Per: []string{"domain"}}
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, 100, limitsOf(domain), nil)
		for i := range 100 {
			r.add(t, func(job *Job) {
				job.Tenant = []string{"a", "b"}[i%2]
				job.Attributes = map[string]string{"domain": "example.com"}
			})
		}
		began := time.Now()
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 50)
		r.mu.Lock()
		a, b := len(r.calls["a"]), len(r.calls["b"])
		r.mu.Unlock()
		run.Number("calls of a at half time that are not its half, in percent", began, time.Now(), 100*math.Abs(2*float64(a)/float64(a+b)-1), 5)
		r.receiver.wait(t)
		run.Law("domain", r.all(), 50, 1)
	})
}

func TestTimedLimitsAreLive(t *testing.T) {
	t.Parallel()
	measured(t, func(t *testing.T, run *pacer.Run) {
		r := startRig(t, 1000, limitsOf(perTenant(10)), nil)
		r.enqueue(t, "a", 1000)
		r.run(t)
		r.seen.wait(t, string(lifecycle.Done), 5)
		fast := throttle.PerSecond(400)
		override := operate.Override{Change: limits.Change{Rate: &fast}, Reason: "a test", Actor: "the test"}
		if err := operate.SetOverride(t.Context(), r.server.Client(), r.queue, "a", "tenant", override); err != nil {
			t.Fatal(err)
		}
		changed := time.Now()
		r.seen.wait(t, string(lifecycle.Done), 400)
		run.Took("395 jobs after the limit was raised from 10/s to 400/s", changed, time.Now(), 2*time.Second)
		if _, err := operate.ClearOverride(t.Context(), r.server.Client(), r.queue, "a", "tenant", operate.Operator{Actor: "the test", Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		cleared := time.Now()
		after := func() []time.Time { // slots given ahead are at the old rate
			return slices.DeleteFunc(r.all(), func(at time.Time) bool { return at.Before(cleared.Add(2 * store.Horizon)) })
		}
		until(t, "calls after the override was cleared", func() bool { return len(after()) > 20 })
		run.Law("after the override was cleared", after(), 10, 1)
	})
}

// TestRaisedQuotaWakesLanes: a lane that has to wait long goes on when its limit is raised,
// by publishing or by an override.
func TestRaisedQuotaWakesLanes(t *testing.T) {
	t.Parallel()
	zone := noon(t)
	daily := func(n int64) limits.Set {
		return limitsOf(limits.Limit{Per: []string{"tenant"}, Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: n, Period: 24 * time.Hour}, Location: zone})
	}
	r := startRig(t, 100, daily(10), nil)
	r.enqueue(t, "a", 50)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 10)
	more := daily(20)
	more.Queues = map[string]limits.Queue{r.queue: more.Queues[""]}
	if err := operate.Publish(t.Context(), r.server.Client(), more); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, string(lifecycle.Done), 20)
	rate := throttle.Rate{Count: 50, Period: 24 * time.Hour}
	if err := operate.SetOverride(t.Context(), r.server.Client(), r.queue, "a", "daily", operate.Override{Change: limits.Change{Rate: &rate}, Reason: "a test", Actor: "the test"}); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, string(lifecycle.Done), 50)
}

// TestPermitsOfDeletedJobsComeBack: permits of jobs deleted by asynq's tools come back.
func TestPermitsOfDeletedJobsComeBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}), nil)
	client := r.server.Client()
	deleted := r.add(t, nil)
	kept := r.add(t, nil)
	d := r.dispatcher()
	if _, err := d.round(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	r.giveBack(t, deleted)
	if err := asynq.NewInspectorFromRedisClient(client).DeleteTask(r.queue, deleted); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	r.receiver.wait(t)
	if r.jobs[kept] != 1 {
		t.Errorf("calls = %v", r.jobs)
	}
}

func TestRefusesRedisThatEvicts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	worker := newWorker(t, Config{Redis: server.Options(), Queues: []string{"q"}})
	Handle(worker, "call", func(context.Context, struct{}) error { return nil })
	if err := worker.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "set maxmemory-policy noeviction") {
		t.Errorf("Run = %v; want it to refuse and to name the remedy", err)
	}
}
