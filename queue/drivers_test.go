package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// script runs a script written by the test, with the libraries before it.
func (r *rig) script(t *testing.T, body string, args ...any) string {
	t.Helper()
	reply, err := store.NewScript(body).Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), append([]any{r.queue}, args...)...)
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprint(reply)
}

// runByAsynq makes a waiting job pending, as asynq's tools do.
func (r *rig) runByAsynq(t *testing.T, id string) {
	t.Helper()
	if err := asynq.NewInspectorFromRedisClient(r.server.Client()).RunTask(r.queue, id); err != nil {
		t.Fatal(err)
	}
}

// TestForeignMessages: messages encoded by other programs can be read: with fields of fixed
// length, without a payload, and with a number first.
func TestForeignMessages(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	kind, payload := "\x0a\x04call", "\x12\x02{}"
	for msg, want := range map[string]string{
		kind + payload + "\x28\x05":                             "call 5 " + kind + "\x28\x05",
		kind + "\x1a\x01i\x28\x05":                              "call 5 " + kind + "\x1a\x01i\x28\x05",
		kind + "\x7912345678\x7d1234" + "\x28\x05":              "call 5 " + kind + "\x7912345678\x7d1234\x28\x05",
		"\x28\x05" + kind:                                       " 5 \x28\x05" + kind,
		kind + payload + "\x28\x85\x80\x80\x80\x80\x80\x80\x80": "call 5 " + kind + "\x28\x85\x80\x80\x80\x80\x80\x80\x80",
	} {
		if got := r.script(t, asynqwire.MessageLua+`return message_kind(ARGV[2]) .. ' ' .. message_read(ARGV[2]).retry .. ' ' .. message_light(ARGV[2])`, msg); got != want {
			t.Errorf("%q is read as %q; want %q", msg, got, want)
		}
	}
}

// TestUniqueTaskIsForgotten: the unique lock that asynq's client took for a task is freed
// when an operator deletes the task, unless another task holds the lock by then.
func TestUniqueTaskIsForgotten(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	enqueue := func() (*asynq.TaskInfo, error) {
		return asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(r.queue), asynq.Unique(time.Hour))
	}
	info, err := enqueue()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enqueue(); err == nil {
		t.Fatal("the task is not locked")
	}
	lock := r.field(t, info.ID, "unique_key")
	if lock == "" {
		t.Fatal("the task has no lock")
	}
	if err := asynq.NewInspectorFromRedisClient(client).ArchiveTask(r.queue, info.ID); err != nil {
		t.Fatal(err)
	}
	if tally, err := operate.Apply(t.Context(), client, r.queue, operate.DeleteArchived, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
	if n := client.Exists(t.Context(), lock).Val(); n != 0 {
		t.Error("its lock stays")
	}
}

// TestFaultsWhereNoneCanStand: a key of another type in place of the faults is replaced.
// Otherwise no fault would ever be reported.
func TestFaultsWhereNoneCanStand(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	client.Set(t.Context(), store.Key(r.queue, "faults"), "x", 0)
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+r.add(t, nil)), "hg_slot", "damaged")
	r.round(t, r.dispatcher())
	if faults, err := inspect.Faults(t.Context(), client, r.queue); err != nil || len(faults) != 1 {
		t.Errorf("%v, %v; want the one fault", faults, err)
	}
	if text := r.script(t, `attempt('it', function() plan('SET', headgate .. 'x', {}) end) return faults['it'] or ''`); !strings.Contains(text, "cannot write table") {
		t.Errorf("a write that Redis would refuse half-way: %q", text)
	}
}

// TestLoweredBelowACost: a limit is lowered below the cost of a waiting job. The job takes
// all permits of the limit, and the next job waits until all of them are back.
func TestLoweredBelowACost(t *testing.T) {
	large := perTenant(1)
	large.Rate, large.Burst = throttle.Rate{Count: 10, Period: time.Hour}, 10
	r := startRig(t, -1, limitsOf(large), nil)
	dear := r.add(t, func(job *Job) { job.Cost = 8 })
	next := r.add(t, nil)
	small := large
	small.Burst = 4
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{small}}}}); err != nil {
		t.Fatal(err)
	}
	if ids := r.release(t, r.dispatcher(), 10); !slices.Equal(ids, []string{dear}) {
		t.Errorf("%v went; want %s, and %s to wait", ids, dear, next)
	}
}

// TestDroppedPlansOfPauses: a script does not take a planned change of a pause that it
// dropped for done.
func TestDroppedPlansOfPauses(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	got := r.script(t, `
pause_set('a', '9000000000000000 ann why', 9e15)
attempt('it', function() pause_end('a') error('no', 0) end)
local known = pause_text('a')
attempt('it', function() pause_set('a', '1 x y', 1) error('no', 0) end)
return known .. ', ' .. pause_text('a')`)
	if want := "9000000000000000 ann why, 9000000000000000 ann why"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestHoldThatIsOverGrowsNotBack: a call that was in flight fails after the end of the hold.
// The next pause is not shorter than the last one.
func TestHoldThatIsOverGrowsNotBack(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	got := r.script(t, `
local now = clock()
hold_set('a:call', {ends = now - 1, length = 8000000, since = 5, probe = '-', reason = 'down'})
hold_begin('a:call', 1000000, false, false, 'still down', now)
local hold = hold_read(pause_text('a:call'))
return int(hold.length) .. ' ' .. int(hold.since) .. ' ' .. int(hold.ends - now)`)
	if want := "8000000 5 8000000"; got != want {
		t.Errorf("length, since and what is left: %s; want %s", got, want)
	}
}

// TestBehindTheLastOpening: a time after all known openings of a window gets the last known
// opening. By then the limits are read again.
func TestBehindTheLastOpening(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	if got := r.script(t, `return {open_at({10, 20, 30, 40}, 5), open_at({10, 20, 30, 40}, 20), open_at({10, 20, 30, 40}, 40)}`); got != "[10 30 40]" {
		t.Errorf("the openings from 5, 20 and 40 on are %s", got)
	}
}

// TestResumedKindIsNotHeld: resuming a kind also ends the hold of its account after a
// failure.
func TestResumedKindIsNotHeld(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(1000)), nil)
	r.holdBack(t, store.AccountScope("call"), time.Now().Add(time.Hour), "-")
	if _, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Kind: "call"}, ann); err != nil {
		t.Fatal(err)
	}
	if held := r.held(t); len(held) != 0 {
		t.Errorf("%v is still held", held)
	}
	id := r.add(t, nil)
	if ids := r.release(t, r.dispatcher(), 10); !slices.Equal(ids, []string{id}) {
		t.Errorf("%v went", ids)
	}
}

// TestTicksOutOfOrder: two workers are at different ticks of an entry. A tick before the
// chosen one is not fired, and marking it as fired keeps the choice.
func TestTicksOutOfOrder(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	fired := "test:" + r.queue
	defer client.Del(t.Context(), fired)
	ask := func(script *redisscript.Script, args ...any) string {
		t.Helper()
		reply, err := script.Run(t.Context(), client, []string{fired}, args...)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(reply)
	}
	for _, step := range []struct {
		script *redisscript.Script
		args   []any
		want   string
	}{
		{store.PeriodicChooseScript, []any{"e", 200, "q", "job"}, "[[q 0]]"},
		{store.PeriodicChooseScript, []any{"e", 100, "other", "job"}, "[[ 199]]"},
		{store.PeriodicMarkScript, []any{"e", 100}, "1"},
		{store.PeriodicChooseScript, []any{"e", 200, "other", "job"}, "[[q 0]]"},
		{store.PeriodicChooseScript, []any{"e", 200, "other", "another"}, "[[ 200]]"},
		{store.PeriodicMarkScript, []any{"e", 200}, "1"},
		{store.PeriodicChooseScript, []any{"e", 200, "other", "job"}, "[[ 200]]"},
	} {
		if got := ask(step.script, step.args...); got != step.want {
			t.Errorf("%v: %s; want %s", step.args, got, step.want)
		}
	}
}

// TestMovedJobsAreNotActedOn: verbs do not act on a job that is not where its state says, or
// that is in two places.
func TestMovedJobsAreNotActedOn(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	for _, state := range []string{"pending", "retry", "aggregating"} {
		id := r.add(t, nil)
		client.ZRem(ctx, asynqwire.Key(r.queue, "g:"+r.lane("a")), id)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", state)
		if tally, err := operate.Apply(ctx, client, r.queue, operate.Cancel, operate.Filter{ID: id}, ann, nil); err == nil || tally.Jobs != 0 || r.field(t, id, "state") != state {
			t.Errorf("%s, and not there: %+v, %v; it is %s", state, tally, err, r.field(t, id, "state"))
		}
	}
	twice := r.add(t, nil)
	r.runByAsynq(t, twice)
	client.LPush(ctx, asynqwire.Key(r.queue, "pending"), twice)
	if tally, err := operate.Apply(ctx, client, r.queue, operate.Cancel, operate.Filter{State: lifecycle.StatePending}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Errorf("%+v, %v; want the one job", tally, err)
	}
}

// TestRecoverWithoutAState: a task whose state is gone is not taken from its worker.
func TestRecoverWithoutAState(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.server.Client().HDel(t.Context(), asynqwire.Key(r.queue, "t:"+id), "state")
	if n := r.recover(t, id, "10", true); n != 0 {
		t.Errorf("%d were taken", n)
	}
	if err := r.server.Client().ZScore(t.Context(), asynqwire.Key(r.queue, "lease"), id).Err(); err != nil || r.fault(t, "job "+id) == "" {
		t.Errorf("its lease: %v; the fault: %q", err, r.fault(t, "job "+id))
	}
}

// TestManyEndpoints: a sweep sums nothing for a tenant with more endpoints than it can sum.
func TestManyEndpoints(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	r.add(t, nil)
	for i := range 101 {
		client.SAdd(t.Context(), store.Key(r.queue, "endpoints:a"), fmt.Sprint("a;endpoint=", i, ";kind=call"))
	}
	countWaiting(t, client, r.queue, "a", 6)
	r.sweep(t, 1)
	if n := countsOf(t, client, r.queue, "a").Waiting; n != 7 {
		t.Errorf("the count is %d; want what it was", n)
	}
}

// TestSweepOfABlockedLane: a lane that waits for a time, but has no permits left, is moved
// to the lanes that wait for a permit.
func TestSweepOfABlockedLane(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(1)), nil)
	client := r.server.Client()
	r.add(t, nil)
	r.round(t, r.dispatcher()) // it has the permit
	r.add(t, nil)
	far := float64(time.Now().Add(time.Hour).UnixMicro())
	client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), redis.Z{Member: r.lane("a"), Score: far})
	if err := effective.Replan(t.Context(), client, r.queue, ""); err != nil {
		t.Fatal(err)
	}
	blocked := client.SIsMember(t.Context(), store.Key(r.queue, "blocked:x:"), r.lane("a")).Val()
	if err := client.ZScore(t.Context(), store.Key(r.queue, "waiting"), r.lane("a")).Err(); err == nil || !blocked {
		t.Errorf("it waits for a moment: %v; for a permit: %v", err == nil, blocked)
	}
}

// TestJobsThatComeTogether: jobs that ended at the same time are listed in the order of
// their ids, newest first, and a job in both archives is listed once.
func TestJobsThatComeTogether(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client, ctx := r.server.Client(), t.Context()
	fields := client.HGetAll(ctx, asynqwire.Key(r.queue, "t:"+r.add(t, nil))).Val()
	for _, id := range []string{"x", "xy", "xyz"} {
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), fields)
		client.HSet(ctx, asynqwire.Key(r.queue, "t:"+id), "state", "archived")
	}
	client.ZAdd(ctx, asynqwire.Key(r.queue, "archived"), zOf("x", 5), zOf("xyz", 5))
	client.ZAdd(ctx, store.Key(r.queue, "archive"), zOf("xy", 5e6), zOf("xyz", 5e6))
	page, err := inspect.New(client).ListJobs(ctx, r.queue, inspect.JobQuery{State: lifecycle.StateArchived})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, job := range page.Jobs {
		ids = append(ids, job.ID)
	}
	if want := []string{"xyz", "xy", "x"}; !slices.Equal(ids, want) {
		t.Errorf("%v; want %v", ids, want)
	}
}

// TestPagesOfPendingJobs: a page of pending jobs ends when it is full.
func TestPagesOfPendingJobs(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	for range 5 {
		r.runByAsynq(t, r.add(t, nil))
	}
	seen := map[string]bool{}
	query := inspect.JobQuery{State: lifecycle.StatePending, Limit: 2}
	for range 4 {
		page, err := inspect.New(r.server.Client()).ListJobs(t.Context(), r.queue, query)
		if err != nil || len(page.Jobs) > 2 {
			t.Fatalf("%d jobs, %v; want 2 at most", len(page.Jobs), err)
		}
		for _, job := range page.Jobs {
			seen[job.ID] = true
		}
		if query.Cursor = page.Next; query.Cursor == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d of 5 jobs were listed", len(seen))
	}
}

// TestLongLogLines: a single line that is longer than a log may be is kept whole.
func TestLongLogLines(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	if got := r.script(t, store.Lua("record")+`return #log_add('1\tenqueued\n', '2\t' .. string.rep('x', 3000) .. '\n')`); got < "3000" || len(got) != 4 {
		t.Errorf("the log has %s bytes; want the 3,003 of its last line and a little more", got)
	}
}

// TestExplainLog: a job under a sliding window log that is used goes one window after the first use.
func TestExplainLog(t *testing.T) {
	log := perTenant(1)
	log.Algorithm, log.Rate = throttle.SlidingWindowLog, throttle.Rate{Count: 2, Period: time.Hour}
	r := startRig(t, -1, limitsOf(log), nil)
	r.served(t)
	now := r.server.Client().Time(t.Context()).Val()
	first, second := now.Add(-50*time.Minute), now.Add(-20*time.Minute)
	key := store.BucketKey(r.queue, log, &store.Lane{Tenant: "a", Kind: "call"})
	if err := r.server.Client().RPush(t.Context(), key, fmt.Sprintf("@%d", second.UnixMicro()), first.UnixMicro(), second.UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	e := r.explain(t, r.add(t, nil))
	if e.HeldBy == nil || e.HeldBy.Limit != "tenant" || e.HeldBy.Scope != "tenant a" || e.HeldBy.Rule != "2/h" {
		t.Fatalf("held by %v; want tenant a's 2/h", e.HeldBy)
	}
	// All that a forecast reads is not read at the same time.
	near := func(at time.Time) bool { return at.Sub(first.Add(time.Hour)).Abs() < time.Minute }
	if !near(e.HeldBy.Next) || !near(e.At) {
		t.Errorf("the limit admits the next job at %v, and it goes at %v; want %v", e.HeldBy.Next, e.At, first.Add(time.Hour))
	}
}

// TestVerbsOfLargeJobs: a step ends when it has read large messages, also between two
// lanes and among pending jobs.
func TestVerbsOfLargeJobs(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	for _, state := range []lifecycle.State{lifecycle.StateWaiting, lifecycle.StatePending} {
		for _, tenant := range []string{"a", "a", "a", "b", "b", "b"} {
			id := r.add(t, func(job *Job) { job.Tenant, job.Payload = tenant, strings.Repeat("x", 800<<10) })
			if state == lifecycle.StatePending {
				r.runByAsynq(t, id)
			}
		}
		steps := 0
		tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{State: state}, ann, func(operate.Tally) { steps++ })
		if err != nil || tally.Jobs != 6 || steps < 2 {
			t.Errorf("%s: %+v in %d steps, %v; want 6 jobs in 2 steps or more", state, tally, steps, err)
		}
	}
}

// TestLapsedPermit: a job whose permit was already freed gives none back.
func TestLapsedPermit(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	permits := store.Key(r.queue, "permits:x:a")
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_permits", permits)
	client.ZAdd(t.Context(), permits, zOf("another", 9e15))
	r.recover(t, id, "10", true)
	if n := client.ZCard(t.Context(), permits).Val(); n != 1 || r.field(t, id, "hg_permits") != "" {
		t.Errorf("%d permits are taken, and it says %q", n, r.field(t, id, "hg_permits"))
	}
}

// TestDamagedTenantsInLine: lanes of unknown tenants are in line, and wait for a time, before
// a lane that waits longer.
func TestDamagedTenantsInLine(t *testing.T) {
	r := startRig(t, -1, limitsOf(inFlight(5)), nil)
	client := r.server.Client()
	for i := range 3 {
		tenant := fmt.Sprint("t", i)
		client.HSet(t.Context(), store.Key(r.queue, "limits"), "t:"+tenant, "x")
		id := r.add(t, func(job *Job) { job.Tenant = tenant })
		if i == 0 { // in line, with only a ghost
			client.Del(t.Context(), asynqwire.Key(r.queue, "t:"+id))
			client.ZRem(t.Context(), store.Key(r.queue, "waiting"), r.lane(tenant))
			client.ZAdd(t.Context(), store.Key(r.queue, "ready"), zOf(r.lane(tenant), 0))
		}
	}
	r.round(t, r.dispatcher())
	later := r.add(t, nil)
	soon := client.Time(t.Context()).Val().Add(30 * time.Second)
	client.ZAdd(t.Context(), store.Key(r.queue, "waiting"), zOf(r.lane("a"), float64(soon.UnixMicro())), zOf(r.lane("t1"), 1), zOf(r.lane("t2"), 2))
	r.round(t, r.dispatcher())
	if r.field(t, later, "state") != "aggregating" {
		t.Error("the lane that waits was not left to wait")
	}
	for _, lane := range []string{"t1", "t2"} {
		if at := client.ZScore(t.Context(), store.Key(r.queue, "waiting"), r.lane(lane)).Val(); at < float64(time.Now().UnixMicro()) {
			t.Errorf("%s is asked again at once", lane)
		}
	}
}
