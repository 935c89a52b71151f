package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/queuetest"
	"github.com/headgate/headgate/throttle"
)

// trial is a user's test, which may fail.
type trial struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (t *trial) Helper() {}

func (t *trial) Cleanup(fn func()) { t.cleanups = append(t.cleanups, fn) }

func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// try runs a user's test to its end and returns its failures.
func try(t *testing.T, test func(t testing.TB, q *queuetest.Queue), queues ...string) string {
	t.Helper()
	if len(queues) == 0 {
		queues = []string{"sms"}
	}
	user := &trial{TB: t}
	var run sync.WaitGroup
	run.Go(func() {
		defer func() {
			for _, cleanup := range slices.Backward(user.cleanups) {
				cleanup()
			}
		}()
		test(user, queuetest.Start(user, queues...))
	})
	run.Wait()
	return strings.Join(user.failures, "\n")
}

func enqueue(t testing.TB, q *queuetest.Queue, jobs ...queue.Job) {
	t.Helper()
	for _, result := range q.Client.EnqueueMany(t.Context(), jobs) {
		if result.Err != nil {
			t.Fatalf("Enqueue: %v", result.Err)
		}
	}
}

func in(d time.Duration, job queue.Job) queue.Job {
	job.In = d
	return job
}

func text(to string) queue.Job { return SendSMS.Job("shop", SMS{To: to}) }

type permanent struct{}

func (permanent) Error() string   { return "no such number" }
func (permanent) Permanent() bool { return true }

type throttled struct{ after time.Duration }

func (throttled) Error() string               { return "429" }
func (e throttled) RetryAfter() time.Duration { return e.after }

// TestFailures: when a user's test fails, and with which message.
func TestFailures(t *testing.T) {
	answer := func(q *queuetest.Queue, err error) {
		queue.Handle(q.Worker, SendSMS, func(context.Context, SMS) error { return err })
	}
	tests := map[string]struct {
		test func(t testing.TB, q *queuetest.Queue)
		want string // "": it passes
	}{
		"nothing happens": {func(testing.TB, *queuetest.Queue) {}, ""},
		"a job was run": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			enqueue(t, q, text("a"))
			q.Drain()
		}, ""},
		"a job is left": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"))
		}, "left over: sms for shop in queue sms, job "},
		"a job is left for later": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			enqueue(t, q, in(time.Hour, text("a")))
			q.Drain()
		}, ", due in "},
		"a job failed": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, errors.New("503"))
			enqueue(t, q, text("a"))
			q.Drain()
		}, "s: 503"},
		"a job failed for good": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, permanent{})
			enqueue(t, q, text("a"))
			q.Drain()
		}, ", attempt 1: archived: no such number"},
		"a job panicked for good": {func(t testing.TB, q *queuetest.Queue) {
			queue.Handle(q.Worker, SendSMS, func(context.Context, SMS) error { panic("boom") })
			job := text("a")
			job.MaxAttempts = 1
			enqueue(t, q, job)
			q.Drain()
		}, "archived: panic: boom"},
		"a job expired": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			job := text("a")
			job.Deadline = time.Now().Add(50 * time.Millisecond)
			enqueue(t, q, job)
			<-time.After(time.Until(job.Deadline))
			q.Drain()
		}, "failed for good: sms in queue sms: expired"},
		"it failed, and the test looked": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, permanent{})
			enqueue(t, q, text("a"))
			q.Drain()
			if runs := q.Outcomes(); len(runs) != 1 || runs[0].Outcome != lifecycle.Archived || !errors.Is(runs[0].Err, permanent{}) || runs[0].Tenant != "shop" {
				t.Errorf("Outcomes = %v", runs)
			}
		}, ""},
		"it failed after the test looked": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, permanent{})
			q.Outcomes()
			enqueue(t, q, text("a"))
			q.Drain()
		}, "failed for good"},
		"as required": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"), text("b"))
			queuetest.RequireEnqueued(q, SendSMS, SMS{To: "a"}, SMS{To: "b"})
			queuetest.RequireEnqueued[string](q, "email")
		}, ""},
		"one too few": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"))
			queuetest.RequireEnqueued(q, SendSMS, SMS{To: "a"}, SMS{To: "b"})
		}, "jobs of kind sms:\n\tgot  {\"To\":\"a\",\"Text\":\"\"}\n\twant {\"To\":\"a\",\"Text\":\"\"}\n\t     {\"To\":\"b\",\"Text\":\"\"}"},
		"another": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("b"))
			queuetest.RequireEnqueued(q, SendSMS, SMS{To: "a"})
		}, "got  {\"To\":\"b\",\"Text\":\"\"}\n\twant {\"To\":\"a\""},
		"one too many": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"))
			queuetest.RequireEnqueued(q, SendSMS)
		}, "want none"},
		"another type": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"))
			queuetest.Enqueued[int](q, "sms")
		}, "decode the payload of sms"},
		"a queue that nobody serves": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			enqueue(t, q, queue.Job{Kind: "email", Tenant: "a"})
			q.Drain()
		}, `the worker serves sms: queuetest.Start(t, …, "email")`},
		"another queue than the kind's": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			job := text("a")
			job.Queue = "provider"
			enqueue(t, q, job)
			q.Drain()
			t.Fatalf("Drain returned")
		}, `Drain: sms for shop in queue provider, job ID; the worker serves sms: queuetest.Start(t, …, "provider")`},
		"another queue, later": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			job := in(time.Hour, text("a"))
			job.Queue = "provider"
			enqueue(t, q, job)
			q.Drain()
			t.Fatalf("Drain returned")
		}, `Drain: sms for shop in queue provider, job ID; the worker serves sms: queuetest.Start(t, …, "provider")`},
		"a kind without a handler": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			enqueue(t, q, queue.Job{Kind: "fax", Queue: "sms", Tenant: "a"})
			q.Drain()
		}, `the worker has no handler for kind "fax"`},
		"no handlers": {func(t testing.TB, q *queuetest.Queue) {
			enqueue(t, q, text("a"))
			q.Drain()
		}, "Drain: queue: the worker has no handlers"},
		"no handler to work with": {func(t testing.TB, q *queuetest.Queue) {
			q.Work(text("a"))
		}, `Work: kind: no handler for "sms"`},
		"work that cannot be enqueued": {func(t testing.TB, q *queuetest.Queue) {
			answer(q, nil)
			q.Work(SendSMS.Job("", SMS{}))
		}, "Work: tenant: it is empty"},
		"back in time": {func(t testing.TB, q *queuetest.Queue) { q.Advance(-1) }, "Advance: -1ns is negative"},
		"without end": {func(t testing.TB, q *queuetest.Queue) {
			queue.Handle(q.Worker, SendSMS, func(ctx context.Context, _ SMS) error {
				_, err := q.Client.Enqueue(ctx, text("again"))
				return err
			})
			enqueue(t, q, text("a"))
			q.DrainAtMost(300 * time.Millisecond)
			q.Drain()
		}, "jobs still run after 300ms; do handlers enqueue each other without end?\n\tsms for shop"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := jobID.ReplaceAllString(try(t, test.test), "job ID")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("fails with %q; want %q", got, test.want)
			}
		})
	}
	if got := try(t, func(testing.TB, *queuetest.Queue) {}, "a b"); !strings.Contains(got, `Config.Queues: "a b" is not`) {
		t.Errorf("a wrong name: %q", got)
	}
}

var jobID = regexp.MustCompile(`job [0-9a-f-]{36}`)

// TestDrainFollowsLimits: Drain runs a kind in the queue whose limits list it, and in the
// queues that the test names.
func TestDrainFollowsLimits(t *testing.T) {
	for name, queues := range map[string][]string{"no queue is named": nil, "another is named": {"sms"}} {
		t.Run(name, func(t *testing.T) {
			q := queuetest.Start(t, queues...)
			var called []string
			queue.Handle(q.Worker, SendSMS, func(ctx context.Context, _ SMS) error {
				job, _ := queue.Current(ctx)
				called = append(called, job.Queue)
				return nil
			})
			enqueue(t, q, text("before the limits")) // in queue sms
			q.Drain()
			if err := operate.Publish(t.Context(), q.Redis, limits.Set{Queues: map[string]limits.Queue{"provider": {Kinds: []string{"sms"}}}}); err != nil {
				t.Fatal(err)
			}
			q.Client = queue.NewClient(q.Redis) // the client knows the new limits within 5 s
			enqueue(t, q, text("after"))
			if len(queues) > 0 {
				job := text("by name")
				job.Queue = queues[0]
				enqueue(t, q, job)
			}
			q.Drain()
			slices.Sort(called[1:])
			if want := append([]string{"sms", "provider"}, queues...); !slices.Equal(called, want) {
				t.Errorf("jobs of the queues %v were called, want %v", called, want)
			}
		})
	}
}

// TestDrain: handlers that enqueue jobs in several queues; one job runs at a time, in
// order.
func TestDrain(t *testing.T) {
	q := queuetest.Start(t, "sms", "email")
	const SendEmail queue.Kind[string] = "email"
	var calls []string
	queue.Handle(q.Worker, SendSMS, func(ctx context.Context, sms SMS) error {
		calls = append(calls, "sms "+sms.To)
		_, err := q.Client.Enqueue(ctx, SendEmail.Job("shop", sms.To))
		return err
	})
	queue.Handle(q.Worker, SendEmail, func(_ context.Context, to string) error {
		calls = append(calls, "email "+to)
		return nil
	})
	const jobs = 20
	for i := range jobs {
		enqueue(t, q, text(fmt.Sprintf("%02d", i)))
	}
	q.Drain()
	var texts []string
	for _, call := range calls {
		if strings.HasPrefix(call, "sms") {
			texts = append(texts, call)
		}
	}
	if len(calls) != 2*jobs || len(texts) != jobs || !slices.IsSorted(texts) {
		t.Errorf("calls = %v; want %d texts in order, and as many emails", calls, jobs)
	}
	if runs := q.Outcomes(); len(runs) != 2*jobs {
		t.Errorf("%d outcomes", len(runs))
	}
	q.Drain() // no job is left, and none runs twice
	if len(calls) != 2*jobs {
		t.Errorf("%d calls after another Drain", len(calls))
	}
}

// TestDrainTakesNoTime: jobs for later stay, even if the others take longer.
func TestDrainTakesNoTime(t *testing.T) {
	q := queuetest.Start(t, "sms")
	var calls []string
	queue.Handle(q.Worker, SendSMS, func(ctx context.Context, sms SMS) error {
		calls = append(calls, sms.To)
		switch sms.To {
		case "slow":
			// Times are rounded up to the second. At its start, the job is later for almost all of
			// it; at its end it could be due before Drain has seen it, and then it may go.
			<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			if _, err := q.Client.Enqueue(ctx, in(time.Millisecond, text("later"))); err != nil {
				return err
			}
		case "slower":
			<-time.After(1200 * time.Millisecond) // times are rounded to the second
		}
		return nil
	})
	enqueue(t, q, text("slow"), text("slower"), text("last"))
	q.Drain()
	if want := []string{"slow", "slower", "last"}; !slices.Equal(calls, want) {
		t.Errorf("calls = %q; want %q", calls, want)
	}
	jobs := queuetest.RequireEnqueued(q, SendSMS, SMS{To: "later"})
	if due := time.Until(jobs[0].Due).Abs(); due > time.Minute {
		t.Errorf("due %v from now; want about now", due)
	}
	q.Drain()
	if len(calls) != 4 {
		t.Errorf("calls = %q; want the later one, too", calls)
	}
}

// TestEnqueuedOrder: jobs of all tenants in the order in which they came, then by their
// time.
func TestEnqueuedOrder(t *testing.T) {
	q := queuetest.Start(t, "sms")
	for i, tenant := range []string{"b", "a", "c", "a"} {
		job := SendSMS.Job(tenant, SMS{To: fmt.Sprint(i)})
		job.Headers = map[string]string{"n": fmt.Sprint(i)}
		enqueue(t, q, in(2*time.Hour, SendSMS.Job(tenant, SMS{To: fmt.Sprint("later ", i)})), job)
	}
	enqueue(t, q, in(time.Hour, text("soon")))
	jobs := queuetest.Enqueued(q, SendSMS)
	var order []string
	for _, job := range jobs {
		order = append(order, job.Payload.To)
	}
	if len(jobs) != 9 || !slices.Equal(order[:5], []string{"0", "1", "2", "3", "soon"}) {
		t.Fatalf("order = %q", order)
	}
	if job := jobs[0]; job.Tenant != "b" || job.Queue != "sms" || len(job.Headers) != 1 || job.Headers["n"] != "0" || !job.Due.IsZero() || job.Attempt != 1 {
		t.Errorf("first = %+v", job)
	}
	if wait := time.Until(jobs[4].Due); wait > time.Hour+time.Second || wait < 59*time.Minute {
		t.Errorf("due in %v; want an hour", wait)
	}
}

// TestAdvance: waiting jobs become due step by step, and no other job goes.
func TestAdvance(t *testing.T) {
	q := queuetest.Start(t, "sms")
	var calls []string
	paused := false
	queue.Handle(q.Worker, SendSMS, func(ctx context.Context, sms SMS) error {
		job, _ := queue.Current(ctx)
		calls = append(calls, fmt.Sprint(sms.To, job.Attempt))
		switch {
		case sms.To == "fails" && job.Attempt < 3:
			return errors.New("503")
		case sms.To == "throttled" && !paused:
			paused = true
			return throttled{time.Hour}
		}
		return nil
	})
	check := func(what string, want ...string) {
		t.Helper()
		q.Drain()
		if !slices.Equal(calls, want) {
			t.Fatalf("%s: calls = %q; want %q", what, calls, want)
		}
		calls = nil
	}
	enqueue(t, q, in(2*time.Hour, text("later")))
	check("at once")
	q.Advance(time.Hour)
	check("after an hour")
	enqueue(t, q, in(2*time.Hour, text("much later")))
	q.Advance(time.Hour)
	check("after two", "later1")
	q.Advance(time.Hour)
	check("after three", "much later1")

	enqueue(t, q, text("fails"))
	check("the first attempt", "fails1")
	if job := queuetest.Enqueued(q, SendSMS)[0]; job.Attempt != 2 || job.Err != "503" || job.Due.IsZero() {
		t.Errorf("a failed job = %+v", job)
	}
	q.Advance(time.Hour)
	check("the second attempt", "fails2")
	q.Advance(time.Hour)
	check("the third attempt", "fails3")

	enqueue(t, q, text("throttled"), text("behind"))
	check("a provider that wants fewer calls", "throttled1")
	check("its pause lasts")
	q.Advance(time.Hour)
	q.Drain()
	if slices.Sort(calls); !slices.Equal(calls, []string{"behind1", "throttled1"}) {
		t.Errorf("after the pause: calls = %q", calls)
	}
}

// TestDrainUnderLimits: a test may publish limits. Drain waits for limits that admit a
// job soon, and leaves jobs that limits hold for longer.
func TestDrainUnderLimits(t *testing.T) {
	redistest.Slow(t)
	for _, per := range [][]string{{"tenant"}, nil} {
		q := queuetest.Start(t, "sms")
		limits := limits.Set{Queues: map[string]limits.Queue{"sms": {Limits: []limits.Limit{
			{Name: "short", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10)},
			{Name: "long", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 4, Period: time.Hour}, Burst: 4, Per: per},
		}}}}
		if err := operate.Publish(t.Context(), q.Redis, limits); err != nil {
			t.Fatal(err)
		}
		calls := 0
		queue.Handle(q.Worker, SendSMS, func(context.Context, SMS) error { calls++; return nil })
		for i := range 6 {
			enqueue(t, q, text(fmt.Sprint(i)))
		}
		q.Drain()
		if left := queuetest.Enqueued(q, SendSMS); calls != 4 || len(left) != 2 {
			t.Errorf("limit per %v: %d calls, %d jobs left; want 4 and 2", per, calls, len(left))
		}
	}
}

// TestReplicatedQueue: a test may publish the limits of production, which require a replica.
func TestReplicatedQueue(t *testing.T) {
	q := queuetest.Start(t, "sms")
	set := limits.Set{Queues: map[string]limits.Queue{"sms": {Durability: limits.Replicated}}}
	if err := operate.Publish(t.Context(), q.Redis, set); err != nil {
		t.Fatal(err)
	}
	calls := 0
	queue.Handle(q.Worker, SendSMS, func(context.Context, SMS) error { calls++; return nil })
	next := text("second")
	first := text("first")
	first.OnSuccess = &next
	receipt, err := q.Client.Enqueue(t.Context(), first)
	if err != nil || receipt.Durability != limits.Replicated {
		t.Fatalf("%+v, %v", receipt, err)
	}
	q.Drain()
	if calls != 2 {
		t.Errorf("%d calls; want the job and its follow-up", calls)
	}
}

func TestWork(t *testing.T) {
	q := queuetest.Start(t, "sms")
	queue.Handle(q.Worker, SendSMS, func(ctx context.Context, sms SMS) error {
		switch sms.To {
		case "panic":
			panic("boom")
		case "bad":
			return permanent{}
		}
		return nil
	})
	last := text("panic")
	last.MaxAttempts = 1
	for _, test := range []struct {
		job  queue.Job
		want lifecycle.Outcome
	}{{text("good"), lifecycle.Done}, {text("bad"), lifecycle.Archived}, {text("panic"), lifecycle.Retried}, {last, lifecycle.Archived}} {
		run := q.Work(test.job)
		if run.Outcome != test.want || run.Tenant != "shop" || run.ID == "" || (run.Err == nil) != (test.want == lifecycle.Done) {
			t.Errorf("Work(%v) = %v; want %s", test.job.Payload, run, test.want)
		}
	}
	if runs := q.Outcomes(); len(runs) > 0 {
		t.Errorf("Work is no run of the queue: %v", runs)
	}
	queuetest.RequireEnqueued(q, SendSMS)
}

// TestPartitions: a queue in partitions is one queue.
func TestPartitions(t *testing.T) {
	t.Parallel()
	q := queuetest.Start(t)
	if err := operate.Publish(t.Context(), q.Redis, limits.Set{Queues: map[string]limits.Queue{"sms": {Partitions: 5}}}); err != nil {
		t.Fatal(err)
	}
	called := map[string]int{}
	queue.Handle(q.Worker, SendSMS, func(ctx context.Context, _ SMS) error {
		job, _ := queue.Current(ctx)
		called[job.Queue+" "+job.Tenant]++
		return nil
	})
	for i := range 8 {
		enqueue(t, q, queue.Job{Kind: "sms", Tenant: fmt.Sprint("t", i), Payload: SMS{To: "now"}})
		later := queue.Job{Kind: "sms", Tenant: fmt.Sprint("t", i), Payload: SMS{To: "later"}}
		later.In = time.Hour
		enqueue(t, q, later)
	}
	jobs := queuetest.Enqueued(q, SendSMS)
	if len(jobs) != 16 || slices.ContainsFunc(jobs, func(job queuetest.Job[SMS]) bool { return job.Queue != "sms" }) {
		t.Errorf("%+v", jobs)
	}
	for n := range 2 {
		q.Drain()
		for i := range 8 {
			if who := fmt.Sprint("sms t", i); called[who] != n+1 || len(called) != 8 {
				t.Errorf("after %d drains: %v", n+1, called)
			}
		}
		q.Advance(time.Hour)
	}
}

// TestOrderInPartitions: Enqueued lists the jobs of a queue in one order, however its tenants are spread.
func TestOrderInPartitions(t *testing.T) {
	t.Parallel()
	listed := func(n int) (all []string) {
		q := queuetest.Start(t)
		if err := operate.Publish(t.Context(), q.Redis, limits.Set{Queues: map[string]limits.Queue{"sms": {Partitions: n}}}); err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			tenant := fmt.Sprint("t", i%6)
			enqueue(t, q, queue.Job{Kind: "sms", Tenant: tenant, Payload: SMS{To: fmt.Sprint("now ", i)}})
			enqueue(t, q, queue.Job{Kind: "sms", Tenant: tenant, Payload: SMS{To: fmt.Sprint("later ", i)}, In: time.Duration(12-i) * time.Hour})
		}
		for _, job := range queuetest.Enqueued(q, SendSMS) {
			all = append(all, job.Tenant+": "+job.Payload.To)
		}
		return all
	}
	if one, four := listed(1), listed(4); len(one) != 24 || !slices.Equal(one, four) {
		t.Errorf("one partition: %q\nfour: %q", one, four)
	}
}
