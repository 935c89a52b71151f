package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// TestVerbsByState: for each verb, state and filter, the matching jobs move, all others
// stay, and none is lost.
func TestVerbsByState(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	to := map[operate.Verb]lifecycle.State{operate.Cancel: lifecycle.StateArchived, operate.RunNow: lifecycle.StatePending, operate.Wake: lifecycle.StateWaiting, operate.RetryArchived: lifecycle.StateWaiting, operate.DeleteArchived: ""}
	filters := map[string]operate.Filter{
		"all": {}, "tenant": {Tenant: "a b/%"}, "kind": {Kind: "other"}, "both": {Tenant: "a", Kind: "call"}, "nobody": {Tenant: "nobody"},
	}
	for verb, after := range to {
		for name, filter := range filters {
			t.Run(string(verb)+" "+name, func(t *testing.T) {
				s := stage(t)
				want := map[string]lifecycle.State{}
				var tally operate.Tally
				for id, what := range s.ids {
					parts := strings.Split(strings.Replace(what, "a b/%", "ab", 1), " ")
					tenant, kind, state := strings.Replace(parts[0], "ab", "a b/%", 1), parts[1], lifecycle.State(parts[2])
					want[id] = state
					if (filter.Tenant != "" && filter.Tenant != tenant) || (filter.Kind != "" && filter.Kind != kind) {
						continue
					}
					if slices.Contains(verb.States(), state) {
						want[id] = after
						tally.Jobs++
					} else if state == lifecycle.StateActive && (verb == operate.Cancel || verb == operate.RunNow) || state == lifecycle.StatePending && verb == operate.RunNow {
						tally.TooLate++
					}
				}
				maps.DeleteFunc(want, func(_ string, state lifecycle.State) bool { return state == "" })
				counted, err := operate.Count(t.Context(), s.server.Client(), s.queue, verb, filter)
				if err != nil || counted.Jobs != tally.Jobs || counted.TooLate != tally.TooLate {
					t.Errorf("Count = %+v, %v; want %+v", counted, err, tally)
				}
				if verb == operate.Wake {
					other := filter
					other.Reason = "a reason of no job"
					if none, err := operate.Apply(t.Context(), s.server.Client(), s.queue, verb, other, ann, nil); err != nil || none.Jobs != 0 {
						t.Errorf("Apply with another reason = %+v, %v", none, err)
					}
				}
				done, err := operate.Apply(t.Context(), s.server.Client(), s.queue, verb, filter, ann, nil)
				if err != nil || done.Jobs != tally.Jobs || done.TooLate != tally.TooLate || !maps.Equal(done.ByState, counted.ByState) {
					t.Errorf("Apply = %+v, %v; want %+v, as counted: %+v", done, err, tally, counted)
				}
				if got := s.account(t); !maps.Equal(got, want) {
					for id := range s.ids {
						if got[id] != want[id] {
							t.Errorf("%s is %q; want %q", s.ids[id], got[id], want[id])
						}
					}
				}
				if again, err := operate.Apply(t.Context(), s.server.Client(), s.queue, verb, filter, ann, nil); err != nil || again.Jobs != 0 {
					t.Errorf("a second time: %+v, %v", again, err)
				}
				entries, err := operate.Audit(t.Context(), s.server.Client(), s.queue, 10)
				verbs := slices.DeleteFunc(entries, func(e operate.AuditEntry) bool { return e.Action != string(verb) })
				if tally.Jobs == 0 && len(verbs) != 0 || tally.Jobs > 0 && (len(verbs) != 1 || verbs[0].Count != tally.Jobs || verbs[0].Actor != "ann") {
					t.Errorf("the audit says %+v, %v", entries, err)
				}
			})
		}
	}
}

// TestCancelledComesBack: a cancelled job has who cancelled it and why. It can be
// retried: it starts again, behind the jobs that wait.
func TestCancelledComesBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, limitsOf(perTenant(1000)), nil)
	first := r.add(t, nil)
	client := r.server.Client()
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: first}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if reason := r.archived(t)[first]; reason != "cancelled by ann: the campaign was a mistake" {
		t.Errorf("the job says %q", reason)
	}
	second := r.add(t, nil)
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.RetryArchived, operate.Filter{Tenant: "a"}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if lane := client.ZRange(t.Context(), asynqwire.Key(r.queue, "g:a;kind=call"), 0, -1).Val(); !slices.Equal(lane, []string{second, first}) {
		t.Errorf("the lane is %v; want %s last", lane, first)
	}
	r.run(t)
	r.receiver.wait(t)
	r.seen.wait(t, string(lifecycle.Done), 2)
	if r.jobs[first] != 1 || r.jobs[second] != 1 {
		t.Errorf("calls: %v", r.jobs)
	}
}

// TestRetryBeginsAnew: a job that a worker archived as failed starts again when it is
// retried: its failure is cleared and its retries no longer count.
func TestRetryBeginsAnew(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	client := r.server.Client()
	r.answer = func(context.Context, Running) error { return errors.New("no") }
	id := r.add(t, func(job *Job) { job.MaxAttempts = 1 })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Archived), 1)
	r.stop()
	task := asynqwire.Key(r.queue, "t:"+id)
	// As if it had failed often, and crashed workers.
	message := client.HGet(t.Context(), task, "msg").Val()
	client.HSet(t.Context(), task, "msg", message+"\x30\x83\x01", "hg_crashes", 3, "hg_error", "x", "hg_done", "0", "hg_beside", 2, "hg_called", "alone")
	if tally, err := operate.Apply(t.Context(), client, r.queue, operate.RetryArchived, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
	fields := client.HGetAll(t.Context(), task).Val()
	if fields["hg_base"] != "131" || fields["hg_crashes"]+fields["hg_error"]+fields["hg_done"]+fields["hg_beside"]+fields["hg_called"]+fields["hg_owner"] != "" {
		t.Errorf("the job is %v", fields)
	}
}

// TestRetriedJobBeginsWithItsFirstAttempt: the failures of a retried job no longer count, and
// it has all its attempts again.
func TestRetriedJobBeginsWithItsFirstAttempt(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	attempts := make(chan int, 1)
	r.answer = func(_ context.Context, job Running) error {
		attempts <- job.Attempt
		return nil
	}
	id := r.add(t, nil)
	r.release(t, r.dispatcher(), 1)
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_base", 2)
	message := r.field(t, id, "msg") + "\x30\x02" // it was retried twice
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "msg", message)
	r.run(t)
	if attempt := <-attempts; attempt != 1 {
		t.Errorf("attempt %d of a job whose two failures are forgiven", attempt)
	}
}

// TestVerbsLeaveWhatIsDone: a call that succeeded is never made again, whatever an
// operator wants.
func TestVerbsLeaveWhatIsDone(t *testing.T) {
	t.Parallel()
	s := stage(t)
	client := s.server.Client()
	for id := range s.ids {
		client.HSet(t.Context(), asynqwire.Key(s.queue, "t:"+id), "hg_done", "1")
	}
	before := s.account(t)
	for _, verb := range []operate.Verb{operate.Cancel, operate.RunNow} {
		if tally, err := operate.Apply(t.Context(), client, s.queue, verb, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 0 || tally.TooLate == 0 {
			t.Errorf("%s: %+v, %v", verb, tally, err)
		}
	}
	if after := s.account(t); !maps.Equal(before, after) {
		t.Errorf("they moved: %v, %v", before, after)
	}
	// When retried, the archived job goes to a worker to be put away.
	if tally, err := operate.Apply(t.Context(), client, s.queue, operate.RetryArchived, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 4 {
		t.Errorf("retry: %+v, %v", tally, err)
	}
	for id := range before {
		fields := client.HMGet(t.Context(), asynqwire.Key(s.queue, "t:"+id), "state", "hg_done").Val()
		if before[id] == lifecycle.StateArchived && (fields[0] != "pending" || fields[1] != "1") {
			t.Errorf("the done job is %v", fields)
		}
	}
}

// TestCancelWithFollowUps: a cancelled job with follow-ups is marked as ended, for a
// worker to put away.
func TestCancelWithFollowUps(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	id := r.add(t, nil)
	task := asynqwire.Key(r.queue, "t:"+id)
	client.HSet(t.Context(), task, "hg_next", "{}")
	if tally, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
	if fields := client.HMGet(t.Context(), task, "state", "hg_done", "hg_outcome", "hg_error").Val(); fields[0] != "pending" ||
		fields[1] != "0" || fields[2] != "cancelled" || fields[3] != "cancelled by ann: the campaign was a mistake" {
		t.Errorf("the job is %v", fields)
	}
	if tally, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 0 || tally.TooLate != 1 {
		t.Errorf("a second time: %+v, %v", tally, err)
	}
}

// TestCancelFreesOnePermit: a job with follow-ups that holds a permit is cancelled, and one lane goes on instead of it.
func TestCancelFreesOnePermit(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(inFlight(1)), nil)
	client, d := r.server.Client(), r.dispatcher()
	id := r.add(t, nil)
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_next", "{}")
	r.release(t, d, 1)
	for _, tenant := range []string{"b", "c"} {
		r.add(t, func(job *Job) { job.Tenant = tenant })
	}
	r.release(t, d, 10)
	r.giveBack(t, id)
	held := func() []int64 {
		return []int64{client.ZCard(t.Context(), store.Key(r.queue, "permits:x:")).Val(), client.SCard(t.Context(), store.Key(r.queue, "blocked:x:")).Val()}
	}
	if n := held(); n[0] != 1 || n[1] != 2 {
		t.Fatalf("%d permits are taken, and %d lanes wait for one; want 1 and 2", n[0], n[1])
	}
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: id}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if n := held(); n[0] != 0 || n[1] != 1 {
		t.Errorf("%d permits are taken, and %d lanes wait for one; want 0 and 1", n[0], n[1])
	}
	if permits, waits := r.field(t, id, "hg_permits"), client.HGet(t.Context(), store.TenantsKey(r.queue), "a").Val(); permits != "" || store.ReadCounts(waits).Waiting != 0 {
		t.Errorf("it holds %q, and the counts of its tenant are %q", permits, waits)
	}
}

// TestVerbsAndKeys: a key with KeyUntil Ended is free when its job is cancelled, and
// taken again when the job is retried.
func TestVerbsAndKeys(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	id := r.add(t, func(job *Job) { job.Key, job.KeyUntil = "k", Ended })
	name := store.Key(r.queue, "unique:a:k")
	for _, step := range []struct {
		verb operate.Verb
		want string
	}{{operate.Cancel, ""}, {operate.RetryArchived, id}, {operate.Cancel, ""}, {operate.DeleteArchived, ""}} {
		if tally, err := operate.Apply(t.Context(), client, r.queue, step.verb, operate.Filter{ID: id}, ann, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%s: %+v, %v", step.verb, tally, err)
		}
		if holder := client.Get(t.Context(), name).Val(); holder != step.want {
			t.Errorf("after %s the key is held by %q; want %q", step.verb, holder, step.want)
		}
	}
}

// TestVerbsOnForeignTasks: tasks of asynq's own client: without a lane, with or without
// Headgate's headers, and with retries counted by asynq.
func TestVerbsOnForeignTasks(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(100)), nil)
	client, foreign := r.server.Client(), asynq.NewClientFromRedisClient(r.server.Client())
	add := func(headers map[string]string, options ...asynq.Option) {
		t.Helper()
		if _, err := foreign.Enqueue(asynq.NewTaskWithHeaders("call", []byte(`{}`), headers), append(options, asynq.Queue(r.queue))...); err != nil {
			t.Fatal(err)
		}
	}
	add(map[string]string{asynqwire.HeaderTenant: "a b"})
	add(nil, asynq.Unique(time.Hour))
	add(nil, asynq.ProcessIn(time.Hour), asynq.MaxRetry(0), asynq.TaskID("x}:pending \x00\n%s"))
	add(nil, asynq.ProcessIn(time.Hour), asynq.TaskID("later"))
	// As asynq's own server leaves one whose call failed.
	client.ZRem(t.Context(), asynqwire.Key(r.queue, "scheduled"), "later")
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "retry"), redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: "later"})
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:later"), "state", "retry")
	for _, step := range []struct {
		verb   operate.Verb
		filter operate.Filter
		want   int64
	}{
		{operate.Wake, operate.Filter{ID: "later"}, 1},
		{operate.Cancel, operate.Filter{Tenant: "a b"}, 1}, {operate.Cancel, operate.Filter{Kind: "call", Tenant: asynqwire.NoTenant}, 3}, {operate.DeleteArchived, operate.Filter{Tenant: "a b"}, 1},
		{operate.RetryArchived, operate.Filter{}, 3},
	} {
		if tally, err := operate.Apply(t.Context(), client, r.queue, step.verb, step.filter, ann, nil); err != nil || tally.Jobs != step.want {
			t.Errorf("%s %+v: %+v, %v; want %d", step.verb, step.filter, tally, err, step.want)
		}
		if state, group := r.field(t, "later", "state"), r.field(t, "later", "group"); step.verb == operate.Wake && (state != "aggregating" || group != asynqwire.NoTenant+";kind=call") {
			t.Errorf("it is %s, in the lane %q", state, group)
		}
	}
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 3)
}

// TestVerbsByID: a job is found by its id in any state. If the verb is not for that
// state, the error says so.
func TestVerbsByID(t *testing.T) {
	t.Parallel()
	s := stage(t)
	client := s.server.Client()
	want := s.account(t)
	for id, what := range s.ids {
		state := want[id]
		for verb, after := range map[operate.Verb]lifecycle.State{operate.RunNow: lifecycle.StatePending, operate.Wake: lifecycle.StateWaiting, operate.RetryArchived: lifecycle.StateWaiting, operate.Cancel: lifecycle.StateArchived} {
			tally, err := operate.Apply(t.Context(), client, s.queue, verb, operate.Filter{ID: id}, ann, nil)
			may := slices.Contains(verb.States(), state)
			late := state == lifecycle.StateActive || state == lifecycle.StatePending && verb == operate.RunNow
			switch {
			case may && (err != nil || tally.Jobs != 1 || tally.ByState[state] != 1):
				t.Errorf("%s %s (%s): %+v, %v", verb, what, state, tally, err)
			case !may && tally.Jobs != 0:
				t.Errorf("%s %s (%s): %+v", verb, what, state, tally)
			case !may && !(late && verb != operate.RetryArchived) && (err == nil || !strings.Contains(err.Error(), "is "+string(state)+": "+string(verb)+" is for")):
				t.Errorf("%s %s (%s): %v", verb, what, state, err)
			}
			if may {
				state = after
			}
		}
		want[id] = state
	}
	if got := s.account(t); !maps.Equal(got, want) {
		t.Errorf("jobs are %v; want %v", got, want)
	}
	for _, filter := range []operate.Filter{{ID: "nobody"}, {ID: first(s.ids), Tenant: "nobody"}} {
		if _, err := operate.Count(t.Context(), client, s.queue, operate.Cancel, filter); err == nil {
			t.Errorf("%+v: no error", filter)
		}
	}
}

func first(ids map[string]string) string { return slices.Sorted(maps.Keys(ids))[0] }

func TestHostileFilters(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	r.enqueue(t, "a", 3)
	client := r.server.Client()
	for what, test := range map[string]struct {
		queue  string
		verb   operate.Verb
		filter operate.Filter
		by     operate.Operator
		want   string
	}{
		"queue":         {"nobody", operate.Cancel, operate.Filter{}, ann, "queue: there is no queue"},
		"queue injects": {r.queue + "}:t:x", operate.Cancel, operate.Filter{}, ann, "queue: there is no queue"},
		"verb":          {r.queue, "destroy", operate.Filter{}, ann, "verb: "},
		"tenant":        {r.queue, operate.Cancel, operate.Filter{Tenant: "a\nb"}, ann, "tenant: "},
		"long tenant":   {r.queue, operate.Cancel, operate.Filter{Tenant: strings.Repeat("x", 129)}, ann, "tenant: 129 bytes"},
		"kind":          {r.queue, operate.Cancel, operate.Filter{Kind: "*"}, ann, "kind: "},
		"id":            {r.queue, operate.Cancel, operate.Filter{ID: "a\x00"}, ann, "id: "},
		"state":         {r.queue, operate.Cancel, operate.Filter{State: lifecycle.StateArchived}, ann, "state: "},
		"no actor":      {r.queue, operate.Cancel, operate.Filter{}, operate.Operator{Reason: "x"}, "actor: it is empty"},
		"no reason":     {r.queue, operate.Cancel, operate.Filter{}, operate.Operator{Actor: "x"}, "reason: it is empty"},
		"reason":        {r.queue, operate.Cancel, operate.Filter{}, operate.Operator{Actor: "x", Reason: "\x1b[31m"}, "reason: "},
	} {
		_, err := operate.Apply(t.Context(), client, test.queue, test.verb, test.filter, test.by, nil)
		if _, invalid := errors.AsType[*validation.Error](err); !invalid || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v; want %s", what, err, test.want)
		}
	}
	for _, tenant := range []string{"*", "A", "a;", "a;x=1", "a*", "?", "[a]", "%61", ".*", "' or 1=1", "a}"} {
		if tally, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{Tenant: tenant}, ann, nil); err != nil || tally.Jobs+tally.TooLate != 0 {
			t.Errorf("tenant %q: %+v, %v", tenant, tally, err)
		}
	}
	if n := len(r.account(t)); n != 3 {
		t.Errorf("%d jobs are left of 3", n)
	}
}

// TestOperatorsAtOnce: two operators act at once while a worker goes on: every job ends
// once, and the two do not count the same job.
func TestOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	const jobs = 1500
	r := startRig(t, -1, limitsOf(perTenant(200)), nil)
	r.enqueue(t, "a", jobs/2)
	r.enqueue(t, "b", jobs/2)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 5)
	var wg sync.WaitGroup
	tallies := make([]operate.Tally, 4)
	for i := range tallies {
		wg.Go(func() {
			by := operate.Operator{Actor: fmt.Sprint("operator-", i), Reason: "test"}
			var err error
			if tallies[i], err = operate.Apply(context.Background(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, by, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// Jobs held by the worker end by themselves. Jobs that it gave back meanwhile
	// are cancelled now.
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil {
		t.Fatal(err)
	}
	entries, err := operate.Audit(t.Context(), r.server.Client(), r.queue, 100)
	if err != nil {
		t.Fatal(err)
	}
	cancelled := int64(0)
	for _, e := range entries {
		if e.Action == string(operate.Cancel) {
			cancelled += e.Count
		}
	}
	for i, tally := range tallies {
		for _, e := range entries {
			if e.Actor == fmt.Sprint("operator-", i) && e.Count != tally.Jobs {
				t.Errorf("the audit says %+v of an operator who cancelled %d", e, tally.Jobs)
			}
		}
	}
	where := r.account(t) // completed jobs without a key are not kept
	if sent := r.seen.outcomes(lifecycle.Done); int(cancelled)+sent != jobs || len(where) != int(cancelled) {
		t.Errorf("%d sent and %d cancelled of %d; %d are left", sent, cancelled, jobs, len(where))
	}
	for id := range where {
		if r.jobs[id] != 0 {
			t.Errorf("job %s was cancelled and sent", id)
		}
	}
}

// TestInterruptedVerb: a verb that is interrupted loses no job, and running it again does
// the rest.
func TestInterruptedVerb(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	r.enqueue(t, "a", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	tally, err := operate.Apply(ctx, r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, func(tally operate.Tally) {
		if tally.Jobs >= 300 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || tally.Jobs < 300 || tally.Jobs == 1000 {
		t.Fatalf("%+v, %v", tally, err)
	}
	again, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil)
	if err != nil || again.Jobs+tally.Jobs != 1000 {
		t.Errorf("%d and then %+v, %v", tally.Jobs, again, err)
	}
	entries, err := operate.Audit(t.Context(), r.server.Client(), r.queue, 2)
	if err != nil || len(entries) != 2 || entries[0].Count != again.Jobs || entries[1].Count != tally.Jobs {
		t.Errorf("the audit says %+v, %v", entries, err)
	}
	if where := r.account(t); len(where) != 1000 {
		t.Errorf("%d jobs of 1000", len(where))
	}
}

// TestCancelManyForgetsNone: asynq deletes archived tasks beyond 10,000. Cancelled jobs
// must not be deleted by that, and must not push others out.
func TestCancelManyForgetsNone(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	r.enqueue(t, "a", 5300)
	if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 5300 {
		t.Fatalf("%+v, %v", tally, err)
	}
	client := r.server.Client()
	theirs, ours := client.ZCard(t.Context(), asynqwire.Key(r.queue, "archived")).Val(), client.ZCard(t.Context(), store.Key(r.queue, "archive")).Val()
	if theirs != 5000 || ours != 300 {
		t.Errorf("%d in asynq's archive and %d in ours", theirs, ours)
	}
	for _, verb := range []operate.Verb{operate.RetryArchived, operate.Cancel, operate.DeleteArchived} {
		if tally, err := operate.Apply(t.Context(), client, r.queue, verb, operate.Filter{}, ann, nil); err != nil || tally.Jobs != 5300 {
			t.Errorf("%s: %+v, %v", verb, tally, err)
		}
	}
	if left := redistest.Keys(t, client, asynqwire.Key(r.queue, "t:*")); len(left) != 0 {
		t.Errorf("%d jobs were not deleted", len(left))
	}
}

// TestRunNowIsCharged: jobs that are run now go beyond their limits, and other jobs wait
// for the permits that they took.
func TestRunNowIsCharged(t *testing.T) {
	t.Parallel()
	slow := perTenant(1)
	slow.Rate = throttle.Rate{Count: 1, Period: time.Minute}
	r := startRig(t, 11, limitsOf(slow), nil)
	r.enqueue(t, "a", 10)
	if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{Tenant: "a"}, ann, nil); err != nil || tally.Jobs != 10 {
		t.Fatalf("%+v, %v", tally, err)
	}
	r.enqueue(t, "a", 1)
	r.enqueue(t, "b", 1)
	r.run(t)
	r.receiver.wait(t)
	if a, b := len(r.calls["a"]), len(r.calls["b"]); a != 10 || b != 1 {
		t.Errorf("%d calls of a and %d of b; want ten that ran at once, and one of the tenant that owes nothing", a, b)
	}
	r.stop()
	if waiting := r.states(t)["aggregating"]; waiting != 1 {
		t.Errorf("%d jobs wait for what the ten took", waiting)
	}
}

// TestVerbsOnEmbeddedRedis: the verbs also work on the embedded Redis.
func TestVerbsOnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Embedded(t)
	ctx := t.Context()
	limits := limits.Set{Queues: map[string]limits.Queue{"q": {Kinds: []string{"call", "other"}, Limits: []limits.Limit{perTenant(10), sharedBy(100)}}}}
	if err := operate.Publish(ctx, client, limits); err != nil {
		t.Fatal(err)
	}
	for i := range 90 {
		job := Job{Kind: []string{"call", "other"}[i%2], Tenant: fmt.Sprint("tenant ", i%3), Payload: i}
		if i%9 == 0 {
			job.In = time.Hour
		}
		if _, err := NewClient(client).Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		verb   operate.Verb
		filter operate.Filter
		want   int64
	}{
		{operate.Cancel, operate.Filter{Tenant: "tenant 0", Kind: "call"}, 15}, {operate.RunNow, operate.Filter{Kind: "call"}, 30}, {operate.Cancel, operate.Filter{State: lifecycle.StatePending}, 30},
		{operate.RetryArchived, operate.Filter{Tenant: "tenant 1"}, 15}, {operate.DeleteArchived, operate.Filter{}, 30}, {operate.Cancel, operate.Filter{}, 60},
	} {
		counted, err := operate.Count(ctx, client, "q", step.verb, step.filter)
		if err != nil || counted.Jobs != step.want {
			t.Errorf("Count(%s, %+v) = %+v, %v; want %d", step.verb, step.filter, counted, err, step.want)
		}
		if done, err := operate.Apply(ctx, client, "q", step.verb, step.filter, ann, nil); err != nil || done.Jobs != step.want {
			t.Errorf("%s %+v: %+v, %v; want %d", step.verb, step.filter, done, err, step.want)
		}
	}
	for _, scope := range []inspect.Scope{{}, {Tenant: "tenant 1"}, {Kind: "call"}} {
		if _, err := operate.PauseJobs(ctx, client, "q", scope, time.Time{}, ann); err != nil {
			t.Error(err)
		}
		if was, err := operate.ResumeJobs(ctx, client, "q", scope, ann); err != nil || !was {
			t.Errorf("%+v: %v, %v", scope, was, err)
		}
	}
	if entries, err := operate.Audit(ctx, client, "q", 100); err != nil || len(entries) != 13 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// TestRetryEnds: retried jobs that fail again at once are not retried again and again.
func TestRetryEnds(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(50)), nil)
	r.answer = func(context.Context, Running) error { return permanent{} }
	r.enqueue(t, "a", 500)
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{}, ann, nil); err != nil {
		t.Fatal(err)
	}
	r.run(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tally, err := operate.Apply(ctx, r.server.Client(), r.queue, operate.RetryArchived, operate.Filter{}, ann, func(tally operate.Tally) {
		if tally.Jobs > 700 {
			cancel()
		} else if tally.Jobs >= 500 {
			// From here on only jobs that failed again would be found.
			r.seen.wait(t, string(lifecycle.Archived), int(tally.Jobs)-500+60)
		}
	})
	if err != nil || tally.Jobs < 500 || tally.Jobs > 600 {
		t.Errorf("%+v, %v; want 500, and at most what failed again in the same second", tally, err)
	}
}

// TestRetryKeepsPriority: a retried job keeps its priority.
func TestRetryKeepsPriority(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(), nil)
	client := r.server.Client()
	var want []string
	for _, priority := range []Priority{High, Normal, Low} {
		first := r.add(t, func(job *Job) { job.Priority = priority })
		retried := r.add(t, func(job *Job) { job.Priority = priority })
		if _, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{ID: retried}, ann, nil); err != nil {
			t.Fatal(err)
		}
		second := r.add(t, func(job *Job) { job.Priority = priority })
		want = append(want, first, second, retried)
	}
	if _, err := operate.Apply(t.Context(), client, r.queue, operate.RetryArchived, operate.Filter{}, ann, nil); err != nil {
		t.Fatal(err)
	}
	if lane := client.ZRange(t.Context(), asynqwire.Key(r.queue, "g:a;kind=call"), 0, -1).Val(); !slices.Equal(lane, want) {
		t.Errorf("the lane is %v; want %v", lane, want)
	}
}

// TestCancelledLanesAreNotWoken: a permit that comes back wakes a lane that still has
// jobs, however many lanes that waited for it were emptied meanwhile.
func TestCancelledLanesAreNotWoken(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	one := limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1}
	r := startRig(t, 1, limitsOf(one), nil)
	d := r.dispatcher()
	first := r.add(t, nil)
	r.release(t, d, 1)
	const emptied = 30
	for i := range emptied {
		r.add(t, func(job *Job) { job.Tenant = fmt.Sprint("emptied", i) })
	}
	last := r.add(t, func(job *Job) { job.Tenant = "last" })
	r.release(t, d, 1)
	for i := range emptied {
		if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{Tenant: fmt.Sprint("emptied", i)}, ann, nil); err != nil || tally.ByState[lifecycle.StateWaiting] != 1 {
			t.Fatalf("%+v, %v", tally, err)
		}
	}
	r.giveBack(t, first)
	if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.Cancel, operate.Filter{ID: first}, ann, nil); err != nil || tally.ByState[lifecycle.StateWaiting] != 1 {
		t.Fatalf("%+v, %v", tally, err)
	}
	if ids := r.release(t, d, 1); !slices.Equal(ids, []string{last}) {
		t.Errorf("released: %v; want %s, the only one that waited for the permit", ids, last)
	}
}

// TestVerbThatFailsKeepsTheLane: a damaged job that a verb cannot read stays, and its lane is
// still found.
func TestVerbThatFailsKeepsTheLane(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(1000)), nil)
	client := r.server.Client()
	damaged := r.add(t, nil)
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+damaged), "hg_slot", "damaged")
	r.add(t, nil)
	tally, err := operate.Apply(t.Context(), client, r.queue, operate.Cancel, operate.Filter{}, ann, nil)
	if err != nil || tally.Jobs != 1 {
		t.Fatalf("%+v, %v; want one job cancelled", tally, err)
	}
	listed := client.SIsMember(t.Context(), asynqwire.Key(r.queue, "groups"), r.lane("a")).Val()
	if stands := client.ZScore(t.Context(), store.Key(r.queue, "waiting"), r.lane("a")).Err(); !listed || stands != nil {
		t.Errorf("the lane holds a job: listed %v, waiting %v", listed, stands)
	}
	behind := r.add(t, nil)
	if ids := r.release(t, r.dispatcher(), 1); !slices.Equal(ids, []string{behind}) {
		t.Errorf("%v went; want %s, which came later", ids, behind)
	}
}
