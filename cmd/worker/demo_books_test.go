package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// startDemo is a demo without a worker, and what it prints.
func startDemo(t *testing.T) (*demo, *bytes.Buffer) {
	t.Helper()
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(providers.close)
	var out bytes.Buffer
	d := newDemo(redistest.Start(t).Client(), providers, &lateness{}, &out)
	if err := operate.Publish(t.Context(), d.client, demoLimits()); err != nil {
		t.Fatal(err)
	}
	d.final = d.uses()
	return d, &out
}

// TestDevOutlastsAnUnansweredQuestion: worker dev goes on if Redis does not say in time how many jobs wait.
func TestDevOutlastsAnUnansweredQuestion(t *testing.T) {
	d, out := startDemo(t)
	if err := d.topUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.tell(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(d.waiting)
	d.client.AddHook(redistest.OnRequest(func(context.Context, []redis.Cmder, func() error) error { return context.DeadlineExceeded }))
	if err := d.tell(t.Context()); err != nil || !strings.Contains(out.String(), "asking again how many jobs wait: ") {
		t.Errorf("%v, %s", err, out)
	}
	if len(before) == 0 || !maps.Equal(d.waiting, before) {
		t.Errorf("%v wait; known was %v", d.waiting, before)
	}
}

// TestDevOutlastsAnUnansweredEnqueue: worker dev asks for half a minute whether Redis has taken its jobs, and one that
// was taken without an answer is one job of its own in the account.
func TestDevOutlastsAnUnansweredEnqueue(t *testing.T) {
	d, out := startDemo(t)
	var lost atomic.Bool // the first answer to a script
	var end time.Time    // of the patience of whoever asked
	d.client.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && lost.CompareAndSwap(false, true) {
			end, _ = ctx.Deadline()
			return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		return err
	}))
	began := time.Now()
	if err := d.topUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !lost.Load() || end.Before(began.Add(30*time.Second)) {
		t.Errorf("an answer was lost: %v; it is waited for until %v after the beginning", lost.Load(), end.Sub(began))
	}
	own := 0
	for _, n := range d.made {
		own += n
	}
	err := d.account(t.Context())
	want := fmt.Sprintf("  jobs: %d enqueued, 0 done, 0 failed for good, %d still waiting, 0 called twice, 0 unaccounted for\n", own, own)
	if err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
}

// TestDevCountsJobsFromOutside: jobs of a second terminal are counted apart, those of
// however many tenants are found again, and what somebody deleted is not lost.
func TestDevCountsJobsFromOutside(t *testing.T) {
	d, out := startDemo(t)
	ctx := t.Context()
	if err := d.topUp(ctx); err != nil {
		t.Fatal(err)
	}
	own := 0
	for _, n := range d.made {
		own += n
	}
	const outside = 450
	for i := range outside {
		job := d.providers.job(demoTenants[0], i)
		if job.Tenant = fmt.Sprint("outside-", i); i == 0 {
			job.At = time.Now().Add(time.Hour)
		}
		if _, err := d.enqueue.Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	// All but the first are done, as far as Redis knows.
	client, by := d.client, operate.Operator{Actor: "ann", Reason: "a test"}
	for i := 1; i < outside; i++ {
		filter := operate.Filter{Tenant: fmt.Sprint("outside-", i)}
		if _, err := operate.Apply(ctx, client, "webhook", operate.Cancel, filter, by, nil); err != nil {
			t.Fatal(err)
		}
	}
	client.Del(ctx, "asynq:{webhook}:archived")
	for i := 1; i < outside; i++ {
		countDone(t, client, fmt.Sprint("outside-", i))
	}
	err := d.account(ctx)
	want := fmt.Sprintf("  jobs: %d enqueued, %d of them from outside, %d done, 0 failed for good, %d still waiting, 0 called twice, 0 unaccounted for\n", own+outside, outside, outside-1, own+1)
	if err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}

	out.Reset()
	filter := operate.Filter{Tenant: "outside-0"}
	for _, verb := range []operate.Verb{operate.Cancel, operate.DeleteArchived} {
		if tally, err := operate.Apply(ctx, client, "webhook", verb, filter, by, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%s: %+v, %v", verb, tally, err)
		}
	}
	if err := d.account(ctx); err != nil || !strings.Contains(out.String(), fmt.Sprintf(" %d still waiting, 1 deleted, ", own)) {
		t.Errorf("one was deleted: %v\n%s", err, out)
	}
}

// TestDevTellsWhoBrokeALimit: calls that a provider refuses because an operator raised
// a limit or ran jobs past it are listed, and are not the demo's fault.
func TestDevTellsWhoBrokeALimit(t *testing.T) {
	d, out := startDemo(t)
	ctx := t.Context()
	tooMany := func(tenant string) {
		t.Helper()
		for range 20 {
			post(t, d.providers.web.URL()+"/"+tenant, tenant, "", nil)
		}
	}
	rate := throttle.PerSecond(1000)
	raised := operate.Override{Change: limits.Change{Rate: &rate}, Actor: "ann", Reason: "a test"}
	if err := operate.SetOverride(ctx, d.client, "webhook", "acme", "tenant", raised); err != nil {
		t.Fatal(err)
	}
	tooMany("acme")
	if err := d.account(ctx); err != nil || !strings.Contains(out.String(), "calls that an operator let past a limit, and that the provider refused: ") {
		t.Errorf("%v\n%s", err, out)
	}
	rate = throttle.PerSecond(20)
	if err := operate.SetOverride(ctx, d.client, "webhook", "globex", "tenant", raised); err != nil {
		t.Fatal(err)
	}
	tooMany("globex")
	if err := d.account(ctx); err == nil || !strings.Contains(err.Error(), " of globex at ") {
		t.Errorf("nobody raised a limit of globex: %v", err)
	}
}

// TestDevFails: a job that is nowhere is an error of the demo, and so is each of which the
// providers and Redis tell different things.
func TestDevFails(t *testing.T) {
	enqueued := func(t *testing.T, d *demo) string {
		t.Helper()
		job := d.providers.job(demoTenants[0], 1)
		job.Queue, job.At = job.Kind, time.Now().Add(time.Hour)
		result := d.enqueue.EnqueueMany(t.Context(), []queue.Job{job})[0]
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		d.sent++
		return result.Receipt.ID
	}
	// gone takes the job out of Redis.
	gone := func(t *testing.T, d *demo) {
		t.Helper()
		if n, err := d.client.Del(t.Context(), "asynq:{webhook}:scheduled").Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	done := func(t *testing.T, d *demo) {
		t.Helper()
		countDone(t, d.client, "acme")
	}
	for name, test := range map[string]struct {
		happens func(*testing.T, *demo)
		want    string // "": no error
	}{
		"a job for later": {func(t *testing.T, d *demo) { enqueued(t, d) }, ""},
		"a job that is done": {func(t *testing.T, d *demo) {
			id := enqueued(t, d)
			gone(t, d)
			post(t, d.providers.web.URL(), "acme", id, nil)
			done(t, d)
		}, ""},
		"a call by hand": {func(t *testing.T, d *demo) { post(t, d.providers.web.URL(), "acme", "", nil) }, ""},
		"a job that was lost": {func(t *testing.T, d *demo) {
			enqueued(t, d)
			gone(t, d)
		}, "1 jobs are unaccounted for"},
		"a job that Redis was never told of": {func(_ *testing.T, d *demo) { d.sent++ }, "1 jobs are unaccounted for"},
		"a job that an operator cancelled": {func(t *testing.T, d *demo) {
			id := enqueued(t, d)
			if _, err := operate.Apply(t.Context(), d.client, "webhook", operate.Cancel, operate.Filter{ID: id}, operate.Operator{Actor: "ann", Reason: "a test"}, nil); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"a call of which Redis does not know": {func(t *testing.T, d *demo) {
			post(t, d.providers.web.URL(), "acme", enqueued(t, d), nil)
		}, "the providers accepted 1 calls of jobs that are not done as far as Redis knows"},
		"a job that no provider saw": {func(t *testing.T, d *demo) {
			enqueued(t, d)
			gone(t, d)
			done(t, d)
		}, "1 jobs are done as far as Redis knows, and no provider saw their calls"},
		"too many calls": {func(t *testing.T, d *demo) { tooManyPayments(t, d) }, " violations, such as a call of "},
	} {
		t.Run(name, func(t *testing.T) {
			d, out := startDemo(t)
			test.happens(t, d)
			err := d.account(t.Context())
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q\n%s", err, test.want, out)
			case err != nil && program.ExitCode(err) != 1:
				t.Errorf("exit %d of %v", program.ExitCode(err), err)
			}
		})
	}
}

// TestDevOnABusyMachine: violations that the machine alone may have caused are not held
// against the demo, and do not pass for kept promises either. Nothing else is excused.
func TestDevOnABusyMachine(t *testing.T) {
	d, out := startDemo(t)
	tooManyPayments(t, d)
	d.pace = pace{Slots: 1000, Late: 1, Worst: 8 * time.Millisecond}
	if err := d.account(t.Context()); err == nil || program.ExitCode(err) != 1 {
		t.Errorf("one late moment excuses all: %v", err)
	}
	d.pace = pace{Slots: 1000, Late: 30, Missed: 20, Worst: 8 * time.Millisecond}
	err := d.account(t.Context())
	if err == nil || program.ExitCode(err) != 3 || !strings.Contains(err.Error(), "machine too busy to judge: ") {
		t.Errorf("exit %d: %v", program.ExitCode(err), err)
	}
	if want := "a process that only keeps time missed 20 of 1000 and was up to 8.0 ms late, so this machine was busy\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s\nwant %s", out, want)
	}
	d.sent++
	if err := d.account(t.Context()); err == nil || program.ExitCode(err) != 1 {
		t.Errorf("a job is lost: %v", err)
	}
}

func tooManyPayments(t *testing.T, d *demo) {
	t.Helper()
	for range 20 {
		post(t, d.providers.stripe.URL()+"/v1/payment_intents", "stark", "", nil)
	}
}

// countDone counts one more call of a tenant as succeeded.
func countDone(t *testing.T, client redis.UniversalClient, tenant string) {
	t.Helper()
	const key = "headgate:{webhook}:tenants"
	var waiting, done, jobs, units int64
	text, err := client.HGet(t.Context(), key, tenant).Result()
	if err == nil {
		_, err = fmt.Sscan(text, &waiting, &done, &jobs, &units)
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), key, tenant, fmt.Sprint(waiting, " ", done+1, " ", jobs, " ", units)).Err(); err != nil {
		t.Fatal(err)
	}
}
