package queue

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func (r *rig) publish(t *testing.T, q limits.Queue) {
	t.Helper()
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: q}}); err != nil {
		t.Fatal(err)
	}
}

func inFlight(n int64, per ...string) limits.Limit {
	return limits.Limit{Name: "x", Algorithm: throttle.Concurrency, Concurrency: n, Per: per}
}

// TestLimitChangesItsNature: the algorithm of a limit changes while calls are in flight. They
// end, and other jobs go on.
func TestLimitChangesItsNature(t *testing.T) {
	rate := perTenant(1)
	rate.Name, rate.Rate.Period, rate.Rate.Count, rate.Burst = "x", time.Hour, 200, 200 // its bucket lives as long; a slot that is missed is lost
	for name, change := range map[string][2]limits.Limit{
		"a concurrency becomes a rate": {inFlight(5, "tenant"), rate},
		"a rate becomes a concurrency": {rate, inFlight(5, "tenant")},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(change[0]), nil)
			release := make(chan struct{})
			r.answer = func(context.Context, Running) error {
				<-release
				return nil
			}
			r.enqueue(t, "a", 5)
			r.run(t)
			r.seen.wait(t, "sent", 5)
			r.publish(t, limits.Queue{Limits: []limits.Limit{change[1]}})
			r.enqueue(t, "a", 1)
			r.seen.wait(t, "sent", 6) // the limit's new count is written
			close(release)
			r.seen.wait(t, string(lifecycle.Done), 6)
			r.enqueue(t, "a", 10)
			r.seen.wait(t, string(lifecycle.Done), 16)
		})
	}
	t.Run("a job that holds a permit is cancelled", func(t *testing.T) {
		r := startRig(t, -1, limitsOf(inFlight(5, "tenant")), nil)
		r.enqueue(t, "a", 3)
		ids := r.release(t, r.dispatcher(), 100)
		if len(ids) != 3 {
			t.Fatalf("%d jobs went", len(ids))
		}
		r.giveBack(t, ids...)
		r.publish(t, limits.Queue{Limits: []limits.Limit{rate}})
		r.enqueue(t, "a", 1)
		tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil)
		if states := r.states(t); err != nil || tally.Jobs != 4 || states["archived"] != 4 || states["pending"] != 0 {
			t.Errorf("%+v, %v; %v", tally, err, states)
		}
	})
}

// TestSecondKindIsPublished: a pause of a kind also holds its jobs that were enqueued before
// the queue got a second kind.
func TestSecondKindIsPublished(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(1000)), nil)
	r.publish(t, limits.Queue{Kinds: []string{"call"}, Limits: []limits.Limit{perTenant(1000)}})
	ids := make([]string, 5)
	for i := range ids {
		ids[i] = r.add(t, nil)
	}
	r.publish(t, limits.Queue{Kinds: []string{"call", "other"}, Limits: []limits.Limit{perTenant(1000)}})
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Kind: "call"}, time.Time{}, ann); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	r.seen.wait(t, "round", 20) // enough time for them to go, if they could
	if begun := r.seen.outcomes("to redis: script:begin"); begun != 0 || r.seen.outcomes("sent") != 0 {
		t.Errorf("jobs of a paused kind: %d were taken into hand, %d sent", begun, r.seen.outcomes("sent"))
	}
	if _, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, inspect.Scope{Kind: "call"}, ann); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, string(lifecycle.Done), len(ids))
}

// TestEndOfAnOverrideWakes: a lane that has to wait long because of an override goes on when
// the override ends.
func TestEndOfAnOverrideWakes(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(100)), nil)
	client := r.server.Client()
	slow := throttle.Rate{Count: 1, Period: 24 * time.Hour}
	until := time.Now().Add(2 * time.Second)
	override := operate.Override{Change: limits.Change{Rate: &slow}, Until: until, Actor: "ann", Reason: "a complaint"}
	if err := operate.SetOverride(t.Context(), client, r.queue, "a", "tenant", override); err != nil {
		t.Fatal(err)
	}
	r.enqueue(t, "a", 5)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5) // within 20 s
	if now := time.Now(); now.Before(until) {
		t.Errorf("all went %v before the end of the override", until.Sub(now))
	}
}

// TestRecoveryOfAnAdaptiveLimitWakes: a lane does not wait until midnight for a limit that a
// 429 has lowered and that rises again within seconds.
func TestRecoveryOfAnAdaptiveLimitWakes(t *testing.T) {
	daily := limits.Limit{Per: []string{"tenant"}, Adaptive: true, Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 4, Period: 24 * time.Hour}, Location: noon(t)}
	r := startRig(t, -1, limitsOf(daily), nil)
	client := r.server.Client()
	now := client.Time(t.Context()).Val()
	client.Set(t.Context(), store.Key(r.queue, "adapt:daily:a"), fmt.Sprintf("512 1024 %d 1024 0", now.UnixMicro()), 0)
	r.enqueue(t, "a", 4)
	if ids := r.release(t, r.dispatcher(), 100); len(ids) != 2 {
		t.Fatalf("%d jobs went under half of 4", len(ids))
	}
	lanes, err := client.ZRangeWithScores(t.Context(), store.Key(r.queue, "waiting"), 0, -1).Result()
	if err != nil || len(lanes) != 1 {
		t.Fatalf("%v wait for their time, %v; want one lane", lanes, err)
	}
	if wait := time.UnixMicro(int64(lanes[0].Score)).Sub(now); wait > 3*time.Second {
		t.Errorf("lane %v is asked again in %v; the limit rises in 2 s", lanes[0].Member, wait)
	}
}

// TestFreedPermitIsPassedOn: most lanes that wait for a permit are paused. The lane that is
// not paused gets a freed permit at once, and not only by a sweep.
func TestFreedPermitIsPassedOn(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(1)), nil)
	client := r.server.Client()
	release, called := make(chan struct{}), make(chan struct{})
	r.answer = func(_ context.Context, job Running) error {
		switch job.Tenant {
		case "first":
			<-release
		case "free":
			close(called)
		}
		return nil
	}
	r.enqueue(t, "first", 1)
	r.run(t)
	r.seen.wait(t, "sent", 1)
	// From now on this worker cannot watch the queue: a sweep would wake the lane, too.
	r.worker.redis.AddHook(redistest.Silent{Word: store.Key(r.queue, "watcher"), End: t.Context().Done()})
	for i := range 20 {
		r.enqueue(t, fmt.Sprint("paused", i), 1)
	}
	r.enqueue(t, "free", 1)
	blocked := store.Key(r.queue, "blocked:x:")
	until(t, "blocked", func() bool { return client.SCard(t.Context(), blocked).Val() == 21 })
	for i := range 20 {
		if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: fmt.Sprint("paused", i)}, time.Time{}, ann); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	select {
	case <-called:
	case <-time.After(hang):
		t.Fatal("the free permit is not used")
	}
}

// TestChangesWake: lanes that wait for a permit go on as soon as there are more permits. The
// worker makes no rounds by itself in this test.
func TestChangesWake(t *testing.T) {
	t.Parallel()
	more := operate.Override{Change: limits.Change{Concurrency: new(int64(4))}, Until: time.Now().Add(time.Hour), Actor: "ann", Reason: "a launch"}
	for name, change := range map[string]func(t *testing.T, r *rig) error{
		"limits are published": func(t *testing.T, r *rig) error {
			r.publish(t, limits.Queue{Limits: []limits.Limit{inFlight(4, "tenant")}})
			return nil
		},
		"an override is made": func(t *testing.T, r *rig) error {
			return operate.SetOverride(t.Context(), r.server.Client(), r.queue, "a", "x", more)
		},
		"a pause is ended": func(t *testing.T, r *rig) error {
			ctx, client := t.Context(), r.server.Client()
			if _, err := operate.PauseJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, ann); err != nil {
				return err
			}
			r.publish(t, limits.Queue{Limits: []limits.Limit{inFlight(4, "tenant")}})
			_, err := operate.ResumeJobs(ctx, client, r.queue, inspect.Scope{Tenant: "a"}, ann)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
			r.worker.poll = time.Hour
			release := make(chan struct{})
			defer close(release)
			r.answer = func(context.Context, Running) error {
				<-release
				return nil
			}
			r.enqueue(t, "a", 4)
			r.run(t)
			r.seen.wait(t, "sent", 1)
			client := r.server.Client()
			until(t, "blocked", func() bool { return len(redistest.Keys(t, client, store.Key(r.queue, "blocked:x:*"))) == 1 })
			r.heard(t, 1)
			if err := change(t, r); err != nil {
				t.Fatal(err)
			}
			r.seen.wait(t, "sent", 4)
		})
	}
}

// TestAnotherFirstJobWakesItsLane: a lane waits until the job at its head may go, which costs much. When a job that costs
// less comes to the head, it goes at once.
func TestAnotherFirstJobWakesItsLane(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit   func(*Job) // of the costly job
		behind bool       // another job waits behind it
		change func(t *testing.T, r *rig, costly, held string) (first string)
	}{
		"one of high priority comes": {change: func(t *testing.T, r *rig, _, _ string) string {
			return r.add(t, func(job *Job) { job.Priority = High })
		}},
		"one of normal priority comes before a low one": {edit: func(job *Job) { job.Priority = Low }, change: func(t *testing.T, r *rig, _, _ string) string {
			return r.add(t, nil)
		}},
		"one that was tried comes back at once": {change: func(t *testing.T, r *rig, _, held string) string {
			r.settles(t, settleQuestion{id: held, outcome: settleRefused, to: "lane"})
			return held
		}},
		"one that was tried comes back later": {change: func(t *testing.T, r *rig, _, held string) string {
			r.settles(t, settleQuestion{id: held, outcome: settleFree, to: "retry 1000 1"})
			r.retryNow(t, held)
			return held
		}},
		"the worker of one dies": {change: func(t *testing.T, r *rig, _, held string) string {
			r.recover(t, held, "10", false)
			return held
		}},
		"the costly one is cancelled": {behind: true, change: func(t *testing.T, r *rig, costly, _ string) string {
			if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{ID: costly}, ann, nil); err != nil || tally.Jobs != 1 {
				t.Fatal(tally, err)
			}
			return ""
		}},
		"the costly one expires": {behind: true, edit: func(job *Job) { job.Deadline = time.Now().Add(time.Hour) }, change: func(t *testing.T, r *rig, costly, _ string) string {
			past := time.Now().Add(-time.Second).UnixMicro()
			client := r.server.Client()
			client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+costly), "hg_deadline", past)
			client.ZAdd(t.Context(), store.Key(r.queue, "deadlines"), redis.Z{Score: float64(past), Member: costly})
			return ""
		}},
		"the costly one is done by a run that was lost": {behind: true, change: func(t *testing.T, r *rig, costly, _ string) string {
			r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+costly), "hg_lost", "lost:1=1")
			if done, err := store.LateScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, costly, "lost:1", "a", "call", "1", "", "ok", 1, 1); err != nil || done != int64(1) {
				t.Fatal(done, err)
			}
			return ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(perHour("tenant", 10)), nil)
			client := r.server.Client()
			held := r.add(t, nil)
			r.hold(t, held, "w:1")
			r.add(t, nil) // takes one of the ten permits
			costly := r.add(t, func(job *Job) {
				job.Cost = 10
				if test.edit != nil {
					test.edit(job)
				}
			})
			d := r.dispatcher()
			r.release(t, d, 10)
			if due := client.ZScore(t.Context(), store.Key(r.queue, "waiting"), r.lane("a")).Val(); due < float64(time.Now().Add(time.Minute).UnixMicro()) {
				t.Fatalf("the lane waits until %.0f", due)
			}
			first := ""
			if test.behind {
				first = r.add(t, nil)
			}
			first = cmp.Or(test.change(t, r, costly, held), first)
			if r.release(t, d, 10); r.field(t, first, "state") != "active" {
				t.Errorf("the first job is %s", r.field(t, first, "state"))
			}
		})
	}
}

// TestJobThatGoesBackIsAnnounced: a job goes straight back to its lane, which is empty. The worker that leads hears of it.
func TestJobThatGoesBackIsAnnounced(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	announced := r.announcements(t)
	const over = "until now"
	r.server.Client().Publish(t.Context(), store.WakeChannel(r.queue), over)
	hears(t, announced, over)
	r.settles(t, settleQuestion{id: id, outcome: settleRefused, to: "lane"})
	hears(t, announced, "")
}

// TestDeadlinesOfEndedJobs: no deadlines of ended jobs are kept.
func TestDeadlinesOfEndedJobs(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	r.answer = func(_ context.Context, job Running) error {
		if job.Tenant == "bad" {
			return permanent{}
		}
		return nil
	}
	for i := range 10 {
		r.add(t, func(job *Job) {
			job.Deadline = time.Now().Add(time.Hour)
			if i%2 == 0 {
				job.Tenant = "bad"
			}
		})
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5)
	r.seen.wait(t, string(lifecycle.Archived), 5)
	if left := r.server.Client().ZCard(t.Context(), store.Key(r.queue, "deadlines")).Val(); left != 0 {
		t.Errorf("%d deadlines are kept of 10 jobs that have ended", left)
	}
}

// TestWorkersOfDifferentKinds: each of two workers of a queue takes only jobs for which it
// has a handler.
func TestWorkersOfDifferentKinds(t *testing.T) {
	t.Parallel()
	const jobs = 60
	r := startRig(t, -1, limitsOf(perTenant(200)), nil)
	seen := newCounter()
	other := newWorker(t, Config{Redis: r.server.Options(), Queues: []string{r.queue}, Observer: seen})
	Handle(other, "other", func(context.Context, any) error { return nil })
	mine, theirs := r.run, (&rig{worker: other}).run
	mine(t)
	theirs(t)
	plain := asynq.NewClientFromRedisClient(r.server.Client())
	for range jobs {
		r.add(t, nil)
		r.add(t, func(job *Job) { job.Kind = "other" })
	}
	if _, err := plain.Enqueue(asynq.NewTask("other", []byte(`{}`)), asynq.Queue(r.queue)); err != nil {
		t.Fatal(err)
	}
	r.seen.wait(t, string(lifecycle.Done), jobs)
	seen.wait(t, string(lifecycle.Done), jobs+1)
	for name, counter := range map[string]*counter{"call": r.seen, "other": seen} {
		for _, outcome := range []lifecycle.Outcome{lifecycle.Retried, lifecycle.Parked, lifecycle.Lost} {
			if n := counter.outcomes(outcome); n > 0 {
				t.Errorf("the worker of %s: %d jobs %s", name, n, outcome)
			}
		}
	}
}

// TestGroupOfAnyName: a group of asynq's own client may have any name, and its permits come
// back.
func TestGroupOfAnyName(t *testing.T) {
	for _, group := range []string{"a b", "*", "~", "a\nb", "x;domain=y z;q=1", "%", "k:call", "}:x{"} {
		t.Run(group, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(inFlight(1, "tenant")), nil)
			client := r.server.Client()
			plain := asynq.NewClientFromRedisClient(client)
			for range 3 {
				if _, err := plain.Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(r.queue), asynq.Group(group)); err != nil {
					t.Fatal(err)
				}
			}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 3)
			for _, name := range redistest.Keys(t, client, "headgate:{"+r.queue+"}:*:x:*") {
				if client.Type(t.Context(), name).Val() == "zset" && client.ZCard(t.Context(), name).Val() > 0 {
					t.Errorf("permits are left in %q", name)
				}
			}
		})
	}
}

// TestWhatIsLeftExpires: the keys with the state of limits and fairness expire.
func TestWhatIsLeftExpires(t *testing.T) {
	tokens := sharedBy(10)
	tokens.Algorithm, tokens.Burst, tokens.Unit, tokens.Name, tokens.Adaptive = throttle.TokenBucket, 10, "tokens", "tokens", true
	mine := tokens
	mine.Name, mine.Per, mine.Rate = "mine", []string{"tenant"}, throttle.Rate{Count: 10, Period: time.Hour}
	r := startRig(t, -1, limitsOf(tokens, mine), nil)
	r.answer = func(_ context.Context, job Running) error {
		if job.Attempt == 1 && job.Tenant == "slow" {
			return throttled{time.Second}
		}
		return nil
	}
	for _, tenant := range []string{"a", "slow"} {
		for range 3 {
			r.add(t, func(job *Job) { job.Tenant, job.Costs = tenant, map[string]int64{"tokens": 6} })
		}
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Throttled), 1)
	client := r.server.Client()
	for _, name := range []string{"vtime", "adapt:mine:slow", "metered:mine:a"} {
		until(t, name+" is written", func() bool { return client.Exists(t.Context(), store.Key(r.queue, name)).Val() == 1 })
		if ttl := client.TTL(t.Context(), store.Key(r.queue, name)).Val(); ttl <= 0 {
			t.Errorf("%s never expires", name)
		}
	}
}
