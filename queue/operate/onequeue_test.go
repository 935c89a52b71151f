package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestActsOnPartitions: each act on a queue of four partitions gives the same answer, and leaves the same jobs
// and the same audit, as on an undivided queue. It is logged once, as the audit has it.
func TestActsOnPartitions(t *testing.T) {
	t.Parallel()
	one, four := acted(t, 1), acted(t, 4)
	if len(one) != len(four) || len(one) < 500 {
		t.Fatalf("%d and %d answers", len(one), len(four))
	}
	for i := range one {
		if one[i] != four[i] {
			t.Errorf("one partition: %s\nfour:          %s", one[i], four[i])
		}
	}
}

const tenantsOfActs = 8

// busy makes a queue with jobs of all tenants in each state in which verbs change them.
func busy(t *testing.T, n int, by Operator) (*redis.Client, partition.Layout) {
	t.Helper()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	set := limits.Set{
		Queues: map[string]limits.Queue{"q": {Partitions: n, Kinds: []string{"call", "other"}, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Burst: 5, Per: []string{"tenant"}},
		}}},
		Tenants: map[string]limits.Tenant{"t1": {Partition: n}},
	}
	if err := PublishBy(ctx, client, set, by); err != nil {
		t.Fatal(err)
	}
	enqueue := func(jobs ...queue.Job) {
		t.Helper()
		for _, result := range queue.NewClient(client).EnqueueMany(ctx, jobs) {
			if result.Err != nil {
				t.Fatal(result.Err)
			}
		}
	}
	var fail, rest []queue.Job
	for i := range tenantsOfActs {
		tenant := fmt.Sprint("t", i)
		for j, kind := range []string{"call", "other"} {
			job := func(key string) queue.Job { return queue.Job{Kind: kind, Tenant: tenant, Key: fmt.Sprint(key, j)} }
			gone, again, later := job("gone"), job("again"), job("later")
			gone.Payload, gone.MaxAttempts = "answered 503", 1
			again.Payload = "answered 429"
			later.In = time.Hour
			fail, rest = append(fail, gone, again), append(rest, job("a"), job("b"), later)
		}
	}
	enqueue(fail...)
	worker, err := queue.New(queue.Config{Redis: server.Options(), Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"call", "other"} {
		queue.Handle(worker, queue.Kind[string](kind), func(_ context.Context, reason string) error { return errors.New(reason) },
			queue.Backoff(func(int) time.Duration { return time.Hour })) // so that all are in the retry set at once
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		o, err := inspect.New(client).Overview(ctx, "q")
		_, slow := errors.AsType[*inspect.AwayError](err) // on a busy machine
		if err != nil && !slow || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", o, err)
		}
		if o.Archived == int64(len(fail)/2) && o.Retry == int64(len(fail)/2) {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	enqueue(rest...)
	l, err := store.ReadLayout(ctx, client, "q")
	if err != nil || l.N != n {
		t.Fatalf("%+v, %v", l, err)
	}
	return client, l
}

// acted returns what acts on a busy queue of n partitions say.
func acted(t *testing.T, n int) (said []string) {
	t.Helper()
	ctx := t.Context()
	var logged []string
	log := func(e AuditEntry) { logged = append(logged, e.text()) }
	ann, bob := Operator{"ann", "a test", log}, Operator{"cli:bob", "another", log}
	client, l := busy(t, n, ann)
	say := func(what string, value any, err error) {
		t.Helper()
		text, marshalErr := json.Marshal(value)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		said = append(said, fmt.Sprintf("%s: %s, %v, wrong state: %v; %d acts are logged", what, text, err, errors.Is(err, ErrState), len(logged)))
		if strings.Contains(said[len(said)-1], "q@") {
			t.Errorf("it names a partition: %s", said[len(said)-1])
		}
	}

	// All filters are counted, before and after what is changed.
	verbs := []Verb{Cancel, RunNow, Wake, RetryArchived, DeleteArchived}
	group := &inspect.FailureKey{Outcome: lifecycle.Archived, Kind: "call", Reason: "answered 503"}
	count := func(when string) {
		t.Helper()
		counted := func(verb Verb, f Filter) {
			t.Helper()
			tally, err := Count(ctx, client, "q", verb, f)
			of := ""
			if f.Group != nil {
				of = fmt.Sprint(*f.Group)
			}
			say(fmt.Sprint(when, " ", verb, " ", f.Tenant, "/", f.Kind, "/", f.State, "/", f.ID, "/", f.Reason, "/", of), tally, err)
		}
		for _, verb := range verbs {
			for _, tenant := range []string{"", "t1", "t2", "nobody"} {
				for _, kind := range []string{"", "other"} {
					for _, state := range append(verb.States(), "", lifecycle.StateActive) {
						counted(verb, Filter{Tenant: tenant, Kind: kind, State: state})
						counted(verb, Filter{Tenant: tenant, Kind: kind, State: state, Reason: "503"})
					}
				}
				counted(verb, Filter{Tenant: tenant, Group: group})
				for _, id := range []string{"t1:a0", "t2:gone1", "t2:none", "0198f6a2-0000-7000-8000-000000000000", "t%zz:x"} {
					counted(verb, Filter{Tenant: tenant, ID: id})
				}
			}
		}
	}
	count("before")
	for _, act := range []struct {
		verb   Verb
		filter Filter
	}{
		{Wake, Filter{Reason: "429", Tenant: "t3"}}, {Wake, Filter{Kind: "other"}}, {Wake, Filter{Reason: "nothing"}},
		{RetryArchived, Filter{Tenant: "t4"}}, {RetryArchived, Filter{Group: group}}, {RetryArchived, Filter{ID: "t5:gone1"}}, {RetryArchived, Filter{ID: "t5:gone1"}},
		{Cancel, Filter{ID: "t6:later0"}}, {Cancel, Filter{State: lifecycle.StateScheduled, Kind: "other"}}, {Cancel, Filter{Tenant: "t7"}},
		{RunNow, Filter{State: lifecycle.StateRetry}}, {RunNow, Filter{ID: "t0:a1"}}, {Cancel, Filter{ID: "t0:none"}}, {Cancel, Filter{State: lifecycle.StatePending}},
		{DeleteArchived, Filter{Reason: "another"}}, {DeleteArchived, Filter{State: lifecycle.StateArchived}}, {DeleteArchived, Filter{}},
	} {
		last := int64(-1)
		tally, err := Apply(ctx, client, "q", act.verb, act.filter, bob, func(now Tally) {
			if now.Jobs < last {
				t.Errorf("%s: %d jobs after %d", act.verb, now.Jobs, last)
			}
			last = now.Jobs
		})
		if err == nil && last != tally.Jobs {
			t.Errorf("%s %+v: progress ends at %d of %d", act.verb, act.filter, last, tally.Jobs)
		}
		say(fmt.Sprint(act.verb), tally, err)
	}
	count("after")

	// Pauses and holds. Partitions find out about receivers by themselves, so not all have a hold.
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	held := func(home, scope string) {
		client.HSet(ctx, store.Key(home, "pauses"), scope, fmt.Sprintf("%d provider down", until.Add(time.Hour).UnixMicro()))
	}
	endpoint := rediskey.Escape("example.com:443")
	held(l.Home("t1"), store.EndpointScope("t1", endpoint))
	held(l.Home("t2"), store.OwnAccountScope("call", "t2"))
	for _, i := range []int{max(n-1, 1), n} {
		held(l.Name(i), store.HostScope(endpoint))
		held(l.Name(i), store.AccountScope("call"))
	}
	held(l.Name(1), store.WholeQueue)
	pause := func(scope inspect.Scope, until time.Time) {
		t.Helper()
		p, err := PauseJobs(ctx, client, "q", scope, until, ann)
		say(fmt.Sprintf("pause %+v", scope), []any{p.Scope, p.Until.IsZero(), p.By, p.Reason}, err)
	}
	resume := func(scope inspect.Scope) {
		t.Helper()
		for range 2 {
			was, err := ResumeJobs(ctx, client, "q", scope, ann)
			say(fmt.Sprintf("resume %+v", scope), was, err)
		}
	}
	scopes := []inspect.Scope{{}, {Tenant: "t1"}, {Tenant: "t2"}, {Kind: "other"}, {Kind: "call"}, {Tenant: "t1", Kind: "call"}, {Endpoint: "example.com:443"}}
	for _, scope := range scopes {
		pause(scope, until)
		pause(scope, time.Time{})
		pause(scope, until)
		pause(scope, time.Now().Add(-time.Hour).Truncate(24*time.Hour))
	}
	tally, err := Apply(ctx, client, "q", RunNow, Filter{}, bob, nil)
	say("run what is paused", tally, err)
	for _, scope := range append(scopes, inspect.Scope{Tenant: "t1", Endpoint: "example.com:443"}, inspect.Scope{Tenant: "t2", Kind: "call"}) {
		resume(scope)
	}
	for _, home := range l.Names() {
		if left := client.HGetAll(ctx, store.Key(home, "pauses")).Val(); len(left) > 0 {
			t.Errorf("%s is left with %v", home, left)
		}
	}

	burst := func(n int64) limits.Change { return limits.Change{Burst: &n} }
	set := func(queue, tenant, limit string, o Override) {
		t.Helper()
		o.Log = log
		say(fmt.Sprint("override ", queue, tenant, limit), nil, SetOverride(ctx, client, queue, tenant, limit, o))
	}
	for i := range tenantsOfActs {
		set("q", fmt.Sprint("t", i), "tenant", Override{Change: burst(int64(6 + i)), Reason: "a test", Actor: "ann", Until: until})
	}
	set("q", "t1", "tenant", Override{Change: burst(2), Reason: "a test", Actor: "bob", Lower: true})
	set("q", "t1", "tenant", Override{Change: burst(9), Reason: "a test", Actor: "ann", Lower: true})
	set("q", "t1", "tenannt", Override{Change: burst(9), Reason: "a test", Actor: "ann"})
	set("q", "t1", "tenant", Override{Reason: "a test", Actor: "ann"})
	set("qq", "t1", "tenant", Override{Change: burst(9), Reason: "a test", Actor: "ann"})
	for _, clear := range []func() (bool, error){
		func() (bool, error) { return ClearOwnOverride(ctx, client, "q", "t2", "tenant", bob) },
		func() (bool, error) { return ClearOwnOverride(ctx, client, "q", "t2", "tenant", ann) },
		func() (bool, error) { return ClearOverride(ctx, client, "q", "t2", "tenant", bob) },
		func() (bool, error) { return ClearOverride(ctx, client, "q", "t3", "tenant", bob) },
		func() (bool, error) { return ClearOverride(ctx, client, "q", "t3", "tenannt", bob) },
	} {
		was, err := clear()
		say("clear", was, err)
	}
	for i := range tenantsOfActs {
		rules, err := inspect.LimitsInForce(ctx, client, "q", fmt.Sprint("t", i))
		for j := range rules {
			rules[j].Until = time.Time{}
		}
		say(fmt.Sprint("limits of t", i), rules, err)
		if own := client.HExists(ctx, store.Key(l.Home(fmt.Sprint("t", i)), "overrides"), fmt.Sprint("t", i)).Val(); own != (i != 2 && i != 3) {
			t.Errorf("the partition of t%d has an override: %v", i, own)
		}
	}
	say("record", nil, Record(ctx, client, AuditEntry{Action: "periodic set", Queue: "q", Tenant: "t5", ID: "nightly"}, ann))

	in := inspect.New(client)
	for _, state := range []lifecycle.State{lifecycle.StateWaiting, lifecycle.StateScheduled, lifecycle.StateRetry, lifecycle.StatePending, lifecycle.StateArchived} {
		page, err := in.ListJobs(ctx, "q", inspect.JobQuery{State: state, Limit: 200})
		var ids []string
		for _, job := range page.Jobs {
			ids = append(ids, job.ID)
		}
		slices.Sort(ids)
		say(fmt.Sprint("jobs that are ", state), ids, err)
	}

	audited := func(what string, want []string) {
		t.Helper()
		entries, err := Audit(ctx, client, "q", 100)
		var texts []string
		for _, e := range slices.Backward(entries) {
			texts = append(texts, e.text())
		}
		if err != nil || !slices.Equal(texts, want) {
			t.Errorf("%d partitions, %s: the audit has %v\n%s\nand the log\n%s", n, what, err, strings.Join(texts, "\n"), strings.Join(want, "\n"))
		}
		some, err := Audit(ctx, client, "q", 3)
		for i, e := range some {
			if e.text() != want[len(want)-1-i] {
				t.Errorf("%d partitions, %s: the newest three are %+v, %v", n, what, some, err)
			}
		}
		for _, e := range entries {
			if e.Action != "publish" { // that of the partitions
				e.At, e.Until = time.Time{}, time.Time{}
				say("audit", e, err)
			}
		}
	}
	audited("at the end", logged)

	say("unregister", nil, Unregister(ctx, client, "q", ann))
	for _, verb := range []Verb{Cancel, DeleteArchived} {
		tally, err := Apply(ctx, client, "q", verb, Filter{}, bob, nil)
		say("at last "+string(verb), tally, err)
	}
	kept := slices.Clone(logged)
	for range 2 {
		say("unregister", nil, Unregister(ctx, client, "q", ann))
	}
	audited("after the queue was removed", kept)
	if err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: 2}}}); err != nil {
		t.Fatal(err)
	}
	entries, err := Audit(ctx, client, "q", 100)
	if err != nil || len(entries) != len(kept)+1 || entries[0].Action != "publish" || entries[1].text() != kept[len(kept)-1] {
		t.Errorf("%d partitions, published again: %d entries, %v; want one more than %d", n, len(entries), err, len(kept))
	}
	return said
}

var errCut = errors.New("the connection is cut")

// cut returns a hook with which requests fail that have a command for which off returns true.
func cut(off func(redis.Cmder) bool) redis.Hook {
	return redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if slices.ContainsFunc(cmds, off) {
			return errCut
		}
		return send()
	})
}

// TestPartitionThatDoesNotAnswer: an act on a whole queue reaches the other partitions, its error says what to
// do, and doing that does the rest.
func TestPartitionThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	logged := 0
	by := Operator{"ann", "a test", func(AuditEntry) { logged++ }}
	client, l := busy(t, 4, Operator{Actor: "ann", Reason: "a test"})
	var away atomic.Bool
	away.Store(true)
	client.AddHook(cut(func(cmd redis.Cmder) bool { return away.Load() && strings.Contains(fmt.Sprint(cmd.Args()...), "{q@2}") }))
	jobs := func(of func(home string) bool) (n int64) {
		for i := range tenantsOfActs {
			if of(l.Home(fmt.Sprint("t", i))) {
				n += 10 - 2 // but for the archived ones
			}
		}
		return n
	}
	there, missing := jobs(func(home string) bool { return home != "q@2" }), jobs(func(home string) bool { return home == "q@2" })
	if there == 0 || missing == 0 {
		t.Fatalf("%d jobs are there, and %d away", there, missing)
	}
	says := func(what string, err error, want string) {
		t.Helper()
		if !errors.Is(err, errCut) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "q@") {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	paused := func(home string) bool { return client.HExists(ctx, store.Key(home, "pauses"), store.WholeQueue).Val() }

	_, err := PauseJobs(ctx, client, "q", inspect.Scope{}, time.Time{}, by)
	says("pause", err, `pause queue "q": 1 of its 4 partitions`)
	for _, home := range []string{"q", "q@3", "q@4"} {
		if !paused(home) {
			t.Errorf("%s is not paused", home)
		}
	}
	tally, err := Apply(ctx, client, "q", Cancel, Filter{}, by, nil)
	says("cancel", err, fmt.Sprintf(`cancel in queue "q" stopped in 1 of its 4 partitions, after %d jobs in all; run it again for the rest`, there))
	if tally.Jobs != there {
		t.Errorf("%d jobs are cancelled; want %d", tally.Jobs, there)
	}
	// Acts of a tenant need its partition only.
	for i := range tenantsOfActs {
		tenant := fmt.Sprint("t", i)
		burst, scope, silent := int64(7), inspect.Scope{Tenant: tenant}, Operator{Actor: "key1", Reason: "a test"}
		_, err1 := Count(ctx, client, "q", Cancel, Filter{Tenant: tenant})
		_, err2 := Apply(ctx, client, "q", Wake, Filter{Tenant: tenant}, silent, nil)
		_, err3 := PauseJobs(ctx, client, "q", scope, time.Time{}, silent)
		_, err4 := ResumeJobs(ctx, client, "q", scope, silent)
		err5 := SetOverride(ctx, client, "q", tenant, "tenant", Override{Change: limits.Change{Burst: &burst}, Actor: "key1", Reason: "a test"})
		_, err6 := ClearOverride(ctx, client, "q", tenant, "tenant", silent)
		_, err7 := Count(ctx, client, "q", Cancel, Filter{ID: tenant + ":a0"})
		for j, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			if lost := l.Home(tenant) == "q@2"; lost != errors.Is(err, errCut) || !lost && err != nil && !errors.Is(err, ErrState) {
				t.Errorf("act %d of %s, which is in %s: %v", j+1, tenant, l.Home(tenant), err)
			}
		}
	}
	away.Store(false)
	if _, err := PauseJobs(ctx, client, "q", inspect.Scope{}, time.Time{}, by); err != nil || !paused("q@2") {
		t.Errorf("again: %v", err)
	}
	if tally, err := Apply(ctx, client, "q", Cancel, Filter{}, by, nil); err != nil || tally.Jobs != missing {
		t.Errorf("again: %+v, %v; want %d jobs", tally, err, missing)
	}
	away.Store(true)
	_, err = ResumeJobs(ctx, client, "q", inspect.Scope{}, by)
	says("resume", err, `resume queue "q": 1 of its 4 partitions`)
	away.Store(false)
	if was, err := ResumeJobs(ctx, client, "q", inspect.Scope{}, by); err != nil || !was || paused("q@2") {
		t.Errorf("again: %v, %v", was, err)
	}
	entries, err := Audit(ctx, client, "q", 100)
	var acts []string
	for _, e := range entries {
		if e.Actor == "ann" {
			acts = append(acts, fmt.Sprint(e.Action, " ", e.Count))
		}
	}
	want := []string{"resume 0", "resume 0", fmt.Sprint("cancel ", missing), "pause 0", fmt.Sprint("cancel ", there), "pause 0", "publish 0"}
	if err != nil || !slices.Equal(acts, want) || logged != len(want)-1 {
		t.Errorf("the audit has %q, %v, and the log %d; want %q", acts, err, logged, want)
	}
}

// TestResumeBesideAPartitionAway: lanes that a pause put off go on in the partitions that answer.
func TestResumeBesideAPartitionAway(t *testing.T) {
	t.Parallel()
	ctx, by := t.Context(), Operator{Actor: "ann", Reason: "a test"}
	client, l := busy(t, 4, by)
	if _, err := PauseJobs(ctx, client, "q", inspect.Scope{}, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	lanes := func(home string) []redis.Z {
		return client.ZRangeWithScores(ctx, store.Key(home, "waiting"), 0, -1).Val()
	}
	later := float64(time.Now().Add(time.Hour).UnixMicro())
	for _, home := range l.Names() { // as dispatch does
		for _, lane := range lanes(home) {
			client.ZAdd(ctx, store.Key(home, "waiting"), redis.Z{Score: later, Member: lane.Member})
		}
	}
	client.AddHook(cut(func(cmd redis.Cmder) bool { return strings.Contains(fmt.Sprint(cmd.Args()...), "{q@2}") }))
	if _, err := ResumeJobs(ctx, client, "q", inspect.Scope{}, by); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	seen := 0
	for _, home := range l.Names() {
		for _, lane := range lanes(home) {
			if seen++; lane.Score >= later {
				t.Errorf("lane %v of %s sleeps on", lane.Member, home)
			}
		}
	}
	if seen == 0 {
		t.Error("no lanes")
	}
}

// TestChangesOfUnknownOutcomeAreLogged: a change of which Redis gave no answer is logged as such, because it may be in
// force; one that was never sent is not.
func TestChangesOfUnknownOutcomeAreLogged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client, _ := busy(t, 1, Operator{Actor: "ann", Reason: "a test"})
	failure := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	var away, lost atomic.Bool
	client.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if away.Load() {
			return failure
		}
		err := send()
		beside := func(cmd redis.Cmder) bool { return cmd.Name() == "expire" } // of limits that are not in force yet
		if last := cmds[len(cmds)-1]; lost.Load() && err == nil && (last.Name() == "exec" && !slices.ContainsFunc(cmds, beside) || strings.HasPrefix(last.Name(), "eval") && strings.Contains(last.String(), "a test")) {
			return failure
		}
		return err
	}))
	var logged []AuditEntry
	by := Operator{"ann", "a test", func(e AuditEntry) { logged = append(logged, e) }}
	burst := int64(3)
	for name, change := range map[string]func() error{
		"pause": func() error {
			_, err := PauseJobs(ctx, client, "q", inspect.Scope{}, time.Time{}, by)
			return err
		},
		"override": func() error {
			return SetOverride(ctx, client, "q", "t1", "tenant", Override{Change: limits.Change{Burst: &burst}, Actor: by.Actor, Reason: by.Reason, Log: by.Log})
		},
		"publish": func() error {
			return PublishBy(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "other"}, MaxBacklog: 1000, Limits: []limits.Limit{
				{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1000), Burst: 5, Per: []string{"tenant"}},
			}}}}, by)
		},
		"cancel": func() error {
			_, err := Apply(ctx, client, "q", Cancel, Filter{Tenant: "t2"}, by, nil)
			return err
		},
		"record":            func() error { return Record(ctx, client, AuditEntry{Action: "record"}, by) },
		"record of a queue": func() error { return Record(ctx, client, AuditEntry{Action: "record of a queue", Queue: "q"}, by) },
	} {
		for what, fail := range map[string]*atomic.Bool{"is away": &away, "loses its reply": &lost} {
			logged = nil
			fail.Store(true)
			err := change()
			fail.Store(false)
			made := strings.HasPrefix(name, "record") // whatever Redis says
			if err == nil {
				t.Errorf("%s, and Redis %s: no error", name, what)
			}
			if !made && fail == &away {
				if len(logged) > 0 {
					t.Errorf("%s, which was not sent, is in the log: %+v", name, logged)
				}
			} else if len(logged) != 1 || logged[0].Action != name || logged[0].Unsure == made || logged[0].Actor != "ann" || logged[0].At.IsZero() {
				t.Errorf("%s, and Redis %s: the log has %+v", name, what, logged)
			}
		}
	}
}

// TestInterruptedUnregister: wherever the removal of a queue is interrupted, repeating it removes the rest, and
// its audit stays whole. Then the queue can have other partitions at once; before, its tenants have to move.
func TestInterruptedUnregister(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	by := Operator{Actor: "ann", Reason: "a test"}
	var left atomic.Int64 // commands until one fails; < 0: none does
	left.Store(-1)
	// Partitions that are asked beside others may be so after another one has answered.
	client.AddHook(cut(func(redis.Cmder) bool { return left.Load() >= 0 && left.Add(-1) < 0 }))
	set := func(n int) limits.Set { return limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n}}} }
	for after := 0; ; after++ {
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := Publish(ctx, client, set(4)); err != nil {
			t.Fatal(err)
		}
		for i := range tenantsOfActs {
			if _, err := PauseJobs(ctx, client, "q", inspect.Scope{Tenant: fmt.Sprint("t", i)}, time.Time{}, by); err != nil {
				t.Fatal(err)
			}
		}
		left.Store(int64(after))
		err := Unregister(ctx, client, "q", by)
		whole := left.Swap(-1) >= 0
		// Where the first partition does not say how many there are, another one does.
		if madeUp := after == 2; (whole || madeUp) != (err == nil) {
			t.Fatalf("after %d commands: %v", after, err)
		}
		if err != nil && !strings.Contains(err.Error(), "the change is made") {
			known := len(client.Keys(ctx, "headgate:{q*}:limits").Val()) > 0
			if after%2 == 0 { // tenants may be in any partition that is there
				err := Publish(ctx, client, set(2))
				l, unread := store.ReadLayout(ctx, client, "q")
				if err != nil || unread != nil || l.N != 2 || known != (l.From != nil) || known && l.From.N != 4 {
					t.Errorf("after %d commands, two partitions: %+v, %v, %v", after, l, err, unread)
				}
				continue
			}
			if err := Unregister(ctx, client, "q", by); err != nil {
				t.Errorf("after %d commands, repeated: %v", after, err)
			}
		}
		if names := client.SMembers(ctx, asynqwire.Queues).Val(); len(names) > 0 {
			t.Errorf("after %d commands: %v are left", after, names)
		}
		if left := client.Keys(ctx, "headgate:{q*}:limits").Val(); len(left) > 0 {
			t.Errorf("after %d commands: %v are left", after, left)
		}
		if entries, err := Audit(ctx, client, "q", 100); err != nil || len(entries) != tenantsOfActs+1 {
			t.Errorf("after %d commands: %d entries in the audit, %v; want %d", after, len(entries), err, tenantsOfActs+1)
		}
		if err := Publish(ctx, client, set(2)); err != nil {
			t.Errorf("after %d commands: %v", after, err)
		}
		if whole {
			t.Logf("the removal has %d commands", after)
			return
		}
	}
}

// TestAuditForgetsAlike: of an act that one partition has forgotten, the audit does not show what others know.
func TestAuditForgetsAlike(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	if err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: 2}}}); err != nil {
		t.Fatal(err)
	}
	push := func(home string, minute int, count int64) {
		e := AuditEntry{At: time.Unix(int64(60*minute), 0), Actor: "cli:ann", Action: "cancel", Queue: "q", Count: count}
		if err := store.Transaction(ctx, client, func(p redis.Pipeliner) error { pushAudit(ctx, p, home, e); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	push("q", 0, 5)
	push("q@2", 0, 7)
	for i := range maxShare {
		push("q@2", i+1, 1)
	}
	entries, err := Audit(ctx, client, "q", MaxAudit)
	acts := 0
	for _, e := range entries {
		if e.Action == "cancel" {
			acts++
		}
		if e.Count == 5 {
			t.Errorf("%+v is shown without the 7 jobs of the other partition", e)
		}
	}
	if err != nil || acts != maxShare {
		t.Errorf("%d acts, %v; want %d", acts, err, maxShare)
	}
}

// TestLostLimitsKeepPartitions: as long as one partition has limits, a queue has as many as it says, and tenants
// move from there to those that are published.
func TestLostLimitsKeepPartitions(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Start(t).Client(), t.Context()
	for lost := 1; lost <= 3; lost++ {
		for _, n := range []int{1, 2, 3, 4, 5} {
			queue := fmt.Sprintf("q-%d-%d", lost, n)
			publish := func(n int) {
				t.Helper()
				if err := Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{queue: {Partitions: n}}}); err != nil {
					t.Error(err)
				}
			}
			publish(4)
			was := partition.Layout{Queue: queue, N: 4}
			for i := range lost {
				client.Del(ctx, store.Key(was.Name(i+1), "limits"))
			}
			publish(n)
			want := partition.Layout{Queue: queue, N: n}
			if n != 4 {
				want.From = &was
			}
			for _, home := range want.Names() {
				text, err := client.HMGet(ctx, store.Key(home, "limits"), "*", store.PinsField).Result()
				if err != nil {
					t.Fatal(err)
				}
				fields := store.Texts(text)
				if l, err := store.LayoutOf(queue, fields[0], fields[1]); err != nil || !l.Equal(want) {
					t.Errorf("%d of 4 partitions had lost their limits, and %d are published: %s has %+v, %v", lost, n, home, l, err)
				}
			}
		}
	}
}
