package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// chain is a rig whose worker also serves the follow-ups of its jobs.
type chain struct {
	*rig
	mu        sync.Mutex
	children  []Running
	callbacks []string // bodies
}

func startChain(t *testing.T, edit func(*Config)) *chain {
	t.Helper()
	return startChainAt(t, redistest.Any(t), edit)
}

// startChainAt begins a chain on another Redis than the shared one, which has one queue for a kind at a time.
func startChainAt(t *testing.T, server *redistest.Redis, edit func(*Config)) *chain {
	t.Helper()
	set := limitsOf()
	set.Queues[""] = limits.Queue{Kinds: []string{"call", "child", "webhook"}}
	c := &chain{rig: startRigAt(t, server, 1, set, edit)}
	client := c.server.Client()
	t.Cleanup(func() { client.HDel(context.Background(), store.RoutesKey, "call", "child", "webhook") })
	Handle(c.worker, "child", func(ctx context.Context, _ any) error {
		job, _ := Current(ctx)
		c.mu.Lock()
		c.children = append(c.children, job)
		c.mu.Unlock()
		c.seen.count("child")
		return nil
	})
	Handle(c.worker, "webhook", func(_ context.Context, payload map[string]json.RawMessage) error {
		c.mu.Lock()
		c.callbacks = append(c.callbacks, string(payload["url"])+" "+string(payload["body"]))
		c.mu.Unlock()
		c.seen.count("webhook")
		return nil
	})
	return c
}

// withFollowUps gives a job the follow-ups of these tests.
func withFollowUps(job *Job) {
	job.OnSuccess = &Job{Kind: "child", Payload: "success"}
	job.OnFailure = &Job{Kind: "child", Payload: "failure"}
	job.Callback = "https://example.com/ended"
}

func TestChain(t *testing.T) {
	tests := map[string]struct {
		answer func(context.Context, Running) error
		edit   func(*Job)
		parent Running // what the follow-up sees
		body   string
	}{
		"done": {
			func(ctx context.Context, _ Running) error { return SetResult(ctx, json.RawMessage(`{"n": 1}`)) }, nil,
			Running{ParentResult: []byte(`{"n": 1}`)},
			`"state":"completed","outcome":"done","attempt":1,"result":{"n":1}}`,
		},
		"done with a text": {
			func(ctx context.Context, _ Running) error { return SetResult(ctx, []byte("<é>")) }, nil,
			Running{ParentResult: []byte("<é>")},
			`"state":"completed","outcome":"done","attempt":1,"result":"\u003cé\u003e"}`,
		},
		"done with bytes": {
			func(ctx context.Context, _ Running) error { return SetResult(ctx, []byte{0xff}) }, nil,
			Running{ParentResult: []byte{0xff}},
			`"state":"completed","outcome":"done","attempt":1,"result":"/w=="}`,
		},
		"failed": {
			func(context.Context, Running) error { return permanent{} }, nil,
			Running{ParentError: permanent{}.Error()},
			`"state":"archived","outcome":"archived","attempt":1,"error":"the provider will never take it"}`,
		},
		"unknown": {
			func(context.Context, Running) error { return unknown{} }, nil,
			Running{ParentError: "outcome unknown: connection lost"},
			`"state":"archived","outcome":"unknown","attempt":1,"error":"outcome unknown: connection lost"}`,
		},
		"expired": {
			nil, func(job *Job) { job.Deadline = time.Now().Add(time.Microsecond) },
			Running{ParentError: errExpired.Error()},
			`"state":"archived","outcome":"expired","attempt":1,"error":"` + errExpired.Error() + `"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := startChain(t, nil)
			c.answer = test.answer
			var deadline time.Time
			id := c.add(t, func(job *Job) {
				withFollowUps(job)
				if test.edit != nil {
					test.edit(job)
					deadline = time.Now().Add(300 * time.Millisecond)
					job.Deadline = deadline
				}
			})
			if !deadline.IsZero() {
				time.Sleep(time.Until(deadline))
			}
			c.run(t)
			c.seen.wait(t, "child", 1)
			c.seen.wait(t, "webhook", 1)
			c.stop()
			if len(c.children) != 1 || len(c.callbacks) != 1 {
				t.Fatalf("%d children, callbacks %v; want one of each", len(c.children), c.callbacks)
			}
			child := c.children[0]
			if child.Parent != id || string(child.ParentResult) != string(test.parent.ParentResult) || child.ParentError != test.parent.ParentError ||
				child.Tenant != "a" {
				t.Errorf("the child sees %+v", child)
			}
			want := `"https://example.com/ended" {"id":"` + id + `","queue":"` + c.queue + `","kind":"call","tenant":"a",` + test.body
			if c.callbacks[0] != want {
				t.Errorf("callback %s\nwant     %s", c.callbacks[0], want)
			}
		})
	}
}

// TestFollowUpsComeOnce kills the worker, or loses a reply, at each step between the end of
// a call and the end of its job. Each follow-up is enqueued once.
func TestFollowUpsComeOnce(t *testing.T) {
	t.Parallel()
	type step struct {
		word  func(c *chain, id string) string // reply to lose
		crash bool                             // the worker is taken for dead
	}
	steps := map[string]step{
		"crash before it goes away": {crash: true},
		"reply to the mark": {word: func(c *chain, _ string) string {
			if c.answer(t.Context(), Running{}) == nil {
				return "done"
			}
			return "failed"
		}},
		"reply to what follows": {word: func(*chain, string) string { return "hg_next" }},
		"reply to the enqueueing": {word: func(c *chain, id string) string {
			e := end{outcome: lifecycle.Done, next: c.field(t, id, "hg_next")}
			if c.answer(t.Context(), Running{}) != nil {
				e.outcome = lifecycle.Archived
			}
			_, jobs, err := e.nextOf(c.queue, &Running{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return "a:" + jobs[0].Key
		}},
		"reply to its going away": {word: func(*chain, string) string { return "away" }},
	}
	for name, step := range steps {
		for _, answer := range []error{nil, permanent{}} {
			t.Run(fmt.Sprintf("%s: %v", name, answer), func(t *testing.T) {
				wire, edit := wired()
				c := startChain(t, edit)
				c.answer = func(context.Context, Running) error { return answer }
				id := c.add(t, withFollowUps)
				// It was retried twice, and an operator retried it since.
				task := asynqwire.Key(c.queue, "t:"+id)
				c.server.Client().HSet(t.Context(), task, "msg", c.field(t, id, "msg")+"\x30\x02", "hg_base", 2)
				outcome := lifecycle.Done
				if answer != nil {
					outcome = lifecycle.Archived
				}
				if step.crash {
					wire.Refuse("away")
				} else {
					wire.LoseReply(step.word(c, id))
				}
				c.run(t)
				c.seen.wait(t, "child", 1)
				c.seen.wait(t, "webhook", 1)
				if step.crash {
					until(t, "refused", func() bool { return wire.Refused() > 0 })
					c.takeOver(t, id)
					wire.Refuse("")
					until(t, "put away", func() bool { return c.field(t, id, "state") != "pending" && c.field(t, id, "state") != "active" })
				} else {
					until(t, "lost", func() bool { return wire.Lost() == 1 })
				}
				c.stop()
				if c.jobs[id] != 1 || len(c.children) != 1 || len(c.callbacks) != 1 {
					t.Errorf("%d calls, %d children, callbacks %v; want one of each", c.jobs[id], len(c.children), c.callbacks)
				}
				if r, err := c.client.Result(t.Context(), c.queue, id); err != nil || r.Outcome != outcome || r.EndedAt.IsZero() {
					t.Errorf("Result = %+v, %v", r, err)
				}
			})
		}
	}
}

// TestCrashAfterTheMark: the worker died after it marked the job's outcome and before it
// enqueued the follow-ups.
func TestCrashAfterTheMark(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"done", "failed"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			c := startChainAt(t, redistest.Own(t), nil)
			id := c.add(t, withFollowUps)
			c.hold(t, id, "w")
			text := map[string]string{"done": "[1]", "failed": "expired it was\nlate"}[outcome]
			if got := c.settles(t, settleQuestion{id: id, owner: "w", outcome: settlement(outcome), text: text}); got != (settled{mine: true, follow: true}) {
				t.Fatalf("settle = %+v", got)
			}
			c.recover(t, id, "", true)
			c.run(t)
			c.seen.wait(t, "child", 1)
			c.seen.wait(t, "webhook", 1)
			c.stop()
			if c.jobs[id] != 0 || len(c.children) != 1 || len(c.callbacks) != 1 {
				t.Errorf("%d calls, %d children, %d callbacks", c.jobs[id], len(c.children), len(c.callbacks))
			}
			if child := c.children[0]; outcome == "done" && string(child.ParentResult) != "[1]" || outcome == "failed" && child.ParentError != "it was\nlate" {
				t.Errorf("the child sees %+v", child)
			}
		})
	}
}

// TestFollowUpsWithKeysThatFreeThemselves: a follow-up with KeyUntil Ended is enqueued once,
// although its key is free again when it has ended.
func TestFollowUpsWithKeysThatFreeThemselves(t *testing.T) {
	wire, edit := wired()
	c := startChain(t, edit)
	id := c.add(t, func(job *Job) { job.OnSuccess = &Job{Kind: "child", Payload: 1, Key: "k", KeyUntil: Ended} })
	wire.Refuse("away")
	c.run(t)
	c.seen.wait(t, "child", 1)
	until(t, "refused", func() bool { return wire.Refused() > 0 })
	c.takeOver(t, id)
	wire.Refuse("")
	c.seen.wait(t, string(lifecycle.Done), 2)
	until(t, "completed", func() bool { return c.field(t, id, "state") == "completed" })
	c.stop()
	if n := c.server.Client().Exists(t.Context(), store.Key(c.queue, "unique:a:k")).Val(); n != 0 {
		t.Error("the key is not free")
	}
	if states := c.states(t); len(c.children) != 1 || states["aggregating"]+states["pending"]+states["active"] != 0 {
		t.Errorf("%d children, states %v", len(c.children), states)
	}
}

// TestEveryEndIsFollowed: an archived job that an operator runs again ends again.
func TestEveryEndIsFollowed(t *testing.T) {
	c := startChain(t, nil)
	answers := make(chan error, 3)
	answers <- permanent{}
	answers <- permanent{}
	answers <- nil
	c.answer = func(context.Context, Running) error { return <-answers }
	id := c.add(t, withFollowUps)
	c.run(t)
	inspector := asynq.NewInspectorFromRedisClient(c.server.Client())
	for n := range 3 {
		c.seen.wait(t, "child", n+1)
		c.seen.wait(t, "webhook", n+1)
		if n < 2 {
			until(t, "archived", func() bool { return c.field(t, id, "state") == "archived" })
			if err := inspector.RunTask(c.queue, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.stop()
	if len(c.children) != 3 || c.children[1].ParentError == "" || c.children[2].ParentError != "" {
		t.Errorf("children: %+v", c.children)
	}
}

// TestCancelledJobsAreFollowed: a waiting job that is cancelled has ended, so its follow-ups
// are enqueued. Its own call is never made.
func TestCancelledJobsAreFollowed(t *testing.T) {
	c := startChain(t, nil)
	id := c.add(t, withFollowUps)
	if tally, err := operate.Apply(t.Context(), c.server.Client(), c.queue, operate.Cancel, operate.Filter{ID: id}, ann, nil); err != nil || tally.Jobs != 1 {
		t.Fatal(tally, err)
	}
	c.run(t)
	c.seen.wait(t, "child", 1)
	c.seen.wait(t, "webhook", 1)
	c.seen.wait(t, string(lifecycle.Cancelled), 1)
	c.stop()
	const reason = "cancelled by ann: the campaign was a mistake"
	if child := c.children[0]; child.Parent != id || child.ParentError != reason || c.jobs[id] != 0 {
		t.Errorf("the child sees %+v after %d calls", child, c.jobs[id])
	}
	if r, err := c.client.Result(t.Context(), c.queue, id); err != nil || r.Outcome != lifecycle.Cancelled || r.Err != reason || r.State != "archived" {
		t.Errorf("Result = %+v, %v", r, err)
	}
}

// other makes a queue that nobody serves, with room for n jobs.
func (c *chain) other(t *testing.T, n int64) string {
	t.Helper()
	name := c.queue + "-other"
	set := limits.Set{Queues: map[string]limits.Queue{name: {Limits: []limits.Limit{perTenant(1)}, MaxBacklog: n}}}
	if err := operate.Publish(t.Context(), c.server.Client(), set); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestFollowUpWaitsForRoom: a full backlog of a follow-up blocks neither the worker nor the
// call.
func TestFollowUpWaitsForRoom(t *testing.T) {
	defer func(d time.Duration) { followPause = d }(followPause)
	followPause = 10 * time.Millisecond
	for _, answer := range []error{nil, permanent{}} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			c := startChain(t, nil)
			c.answer = func(context.Context, Running) error { return answer }
			other := c.other(t, 1)
			first := c.add(t, func(job *Job) { job.Queue = other })
			id := c.add(t, func(job *Job) {
				job.OnSuccess = &Job{Kind: "child", Queue: other}
				job.OnFailure = job.OnSuccess
			})
			c.run(t)
			c.seen.wait(t, string(lifecycle.Parked), 2)
			if r, err := c.client.Result(t.Context(), c.queue, id); err != nil || r.Outcome == "" {
				t.Errorf("Result = %+v, %v while it waits; want its outcome", r, err)
			}
			if err := asynq.NewInspectorFromRedisClient(c.server.Client()).DeleteTask(other, first); err != nil {
				t.Fatal(err)
			}
			sweepBacklog(t, c.server.Client(), other)
			until(t, "followed", func() bool {
				return c.server.Client().ZCard(t.Context(), asynqwire.Key(other, "g:a;kind=child")).Val() == 1
			})
			outcome := lifecycle.Done
			if answer != nil {
				outcome = lifecycle.Archived
			}
			c.seen.wait(t, string(outcome), 1)
			c.stop()
			if c.jobs[id] != 1 {
				t.Errorf("%d calls", c.jobs[id])
			}
		})
	}
}

// sweepBacklog corrects the count of waiting jobs like a worker's sweep.
func sweepBacklog(t *testing.T, client redis.UniversalClient, queue string) {
	t.Helper()
	client.SAdd(t.Context(), asynqwire.Key(queue, "groups"), "a")
	client.HDel(t.Context(), store.TenantsKey(queue), "a", "*")
}

// TestRefusedFollowUp: a job whose follow-up is rejected is archived with the reason.
func TestRefusedFollowUp(t *testing.T) {
	for _, answer := range []error{nil, permanent{}} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			c := startChain(t, nil)
			c.answer = func(context.Context, Running) error { return answer }
			other := c.other(t, 10)
			taken := c.add(t, func(job *Job) { job.Queue, job.Key = other, "taken" })
			id := c.add(t, func(job *Job) {
				withFollowUps(job)
				job.OnSuccess = &Job{Kind: "child", Queue: other, Key: "taken"}
				job.OnFailure = job.OnSuccess
			})
			c.run(t)
			c.seen.wait(t, string(lifecycle.Archived), 1)
			c.seen.wait(t, "webhook", 1)
			until(t, "archived", func() bool { return c.field(t, id, "state") == "archived" })
			reason := c.archived(t)[id]
			field, own := "on_success: another job has this key", "the call was made"
			if answer != nil {
				field, own = "on_failure: another job has this key", answer.Error()
			}
			if !strings.Contains(reason, field) || !strings.Contains(reason, own) {
				t.Errorf("archived with %q", reason)
			}
			if answer != nil {
				return
			}
			// Once the cause is gone, the job is retried, and only its follow-ups are enqueued.
			inspector := asynq.NewInspectorFromRedisClient(c.server.Client())
			if err := inspector.DeleteTask(other, taken); err != nil {
				t.Fatal(err)
			}
			if err := inspector.RunTask(c.queue, id); err != nil {
				t.Fatal(err)
			}
			until(t, "completed", func() bool { return c.field(t, id, "state") == "completed" })
			c.stop()
			r, err := c.client.Result(t.Context(), other, taken)
			if err != nil || r.Kind != "child" || c.jobs[id] != 1 || len(c.callbacks) != 1 {
				t.Errorf("the follow-up: %+v, %v; %d calls, %d callbacks", r, err, c.jobs[id], len(c.callbacks))
			}
		})
	}
}

// TestFollowUpsOfADayAgo: one follow-up is done and forgotten before the other one is enqueued, or before an operator
// runs the archived job again. It is not called again.
func TestFollowUpsOfADayAgo(t *testing.T) {
	defer func(d time.Duration) { followPause = d }(followPause)
	followPause = 10 * time.Millisecond
	for _, conflict := range []bool{false, true} {
		t.Run(fmt.Sprintf("conflict %v", conflict), func(t *testing.T) {
			c := startChain(t, nil)
			other := c.other(t, 1)
			first := c.add(t, func(job *Job) { job.Queue, job.Key = other, "taken" })
			id := c.add(t, func(job *Job) {
				withFollowUps(job)
				job.OnSuccess = &Job{Kind: "child", Queue: other}
				if conflict {
					job.OnSuccess.Key = "taken"
				}
			})
			c.run(t)
			c.seen.wait(t, "webhook", 1)
			inspector := asynq.NewInspectorFromRedisClient(c.server.Client())
			until(t, "forgotten", func() bool {
				done, err := inspector.ListCompletedTasks(c.queue)
				return err == nil && len(done) == 1 && inspector.DeleteTask(c.queue, done[0].ID) == nil
			})
			if conflict {
				until(t, "archived", func() bool { return c.field(t, id, "state") == "archived" })
			} else {
				c.seen.wait(t, string(lifecycle.Parked), 3)
			}
			if err := inspector.DeleteTask(other, first); err != nil {
				t.Fatal(err)
			}
			sweepBacklog(t, c.server.Client(), other)
			if conflict {
				if err := inspector.RunTask(c.queue, id); err != nil {
					t.Fatal(err)
				}
			}
			until(t, "completed", func() bool { return c.field(t, id, "state") == "completed" })
			c.stop()
			if n := c.server.Client().ZCard(t.Context(), asynqwire.Key(other, "g:a;kind=child")).Val(); n != 1 || len(c.callbacks) != 1 || c.jobs[id] != 1 {
				t.Errorf("%d jobs on_success, %d callbacks, %d calls; want one each", n, len(c.callbacks), c.jobs[id])
			}
		})
	}
}

// TestFollowUpsThatCannotBeChecked: a worker died while it enqueued follow-ups, and nobody went on for longer than
// their ids are certain to be known. They are not enqueued, until an operator decides it.
func TestFollowUpsThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	c := startChainAt(t, redistest.Own(t), nil)
	ctx, client := t.Context(), c.server.Client()
	id := c.add(t, withFollowUps)
	c.hold(t, id, "w")
	if got := c.settles(t, settleQuestion{id: id, owner: "w", outcome: settleDone}); !got.follow {
		t.Fatalf("settle = %+v", got)
	}
	if since := c.field(t, id, "hg_followed"); since == "" {
		t.Error("the end of the call has no time")
	}
	client.HSet(ctx, asynqwire.Key(c.queue, "t:"+id), "hg_followed", fmt.Sprint(time.Now().Add(-keyRetention).Unix(), " callback"))
	c.recover(t, id, "", true)
	c.run(t)
	until(t, "put away", func() bool { return c.field(t, id, "state") == "archived" })
	if reason := c.archived(t)[id]; !strings.Contains(reason, "on_success: may have been enqueued and called since") || len(c.children) > 0 {
		t.Errorf("archived with %q, and %d children", reason, len(c.children))
	}
	if err := asynq.NewInspectorFromRedisClient(client).RunTask(c.queue, id); err != nil {
		t.Fatal(err)
	}
	until(t, "completed", func() bool { return c.field(t, id, "state") == "completed" })
	c.seen.wait(t, "child", 1)
	c.stop()
	if c.jobs[id] != 0 || len(c.children) != 1 || len(c.callbacks) != 0 {
		t.Errorf("%d calls, %d children, %d callbacks", c.jobs[id], len(c.children), len(c.callbacks))
	}
}

// TestFollowUpRefusedAfterNoAnswer: Redis does not answer while a follow-up is enqueued, and then it is too late for it.
// It may have been enqueued, so that stays known of the job.
func TestFollowUpRefusedAfterNoAnswer(t *testing.T) {
	t.Parallel()
	wire, edit := wired()
	c := startChainAt(t, redistest.Own(t), edit)
	id := c.add(t, func(job *Job) {
		job.OnSuccess = &Job{Kind: "child", Payload: 1, Key: "k", Deadline: time.Now().Add(time.Second)}
	})
	wire.Refuse("a:k")
	c.run(t)
	until(t, "archived", func() bool { return c.field(t, id, "state") == "archived" })
	c.stop()
	if wire.Refused() == 0 {
		t.Error("Redis answered")
	}
	if text := c.field(t, id, "hg_followed"); !strings.HasSuffix(text, "?") || strings.HasPrefix(text, "0") {
		t.Errorf("it is known as certainly not enqueued: %q; archived with %q", text, c.archived(t)[id])
	}
}

// TestFollowUpsOfAJobThatMoved: follow-ups that may be enqueued already have the same ids after their parent's tenant
// has moved to another partition.
func TestFollowUpsOfAJobThatMoved(t *testing.T) {
	e := end{outcome: lifecycle.Done, next: `{"callback":"https://example.com/ended"}`}
	var keys []string
	for _, home := range []string{"q", "q@2"} {
		_, jobs, err := e.nextOf(home, &Running{ID: "j"})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		keys = append(keys, jobs[0].Key, jobs[0].parent.child)
	}
	if len(slices.Compact(keys)) != 1 {
		t.Errorf("ids: %v", keys)
	}
}

func TestHostileFollowUps(t *testing.T) {
	c := startChain(t, nil)
	cycle := &Job{Kind: "child"}
	cycle.OnSuccess, cycle.OnFailure = cycle, cycle
	deep := func(n int) *Job {
		job := &Job{Kind: "child"}
		for range n - 1 {
			job = &Job{Kind: "child", OnFailure: job}
		}
		return job
	}
	tests := map[string]struct {
		edit func(*Job)
		want []string // none: accepted
	}{
		"no kind":           {func(job *Job) { job.OnSuccess = &Job{} }, []string{"on_success.kind: "}},
		"two wrong":         {func(job *Job) { job.OnFailure = &Job{Kind: "child", MaxAttempts: -1, Cost: -1} }, []string{"on_failure.max_attempts: ", "on_failure.cost: "}},
		"nested":            {func(job *Job) { job.OnSuccess = &Job{Kind: "child", OnFailure: &Job{Kind: "child", MaxAttempts: -1}} }, []string{"on_success.on_failure.max_attempts: "}},
		"its own, too":      {func(job *Job) { job.Cost = -1; job.OnSuccess = &Job{Kind: "child", Cost: -1} }, []string{"cost: -1", "on_success.cost: "}},
		"no such kind":      {func(job *Job) { job.OnSuccess = &Job{Kind: "chlid"} }, []string{"on_success.kind: no queue serves"}},
		"deadline":          {func(job *Job) { job.OnSuccess = &Job{Kind: "child", Deadline: time.Now()} }, []string{"on_success.deadline: "}},
		"payload":           {func(job *Job) { job.OnSuccess = &Job{Kind: "child", Payload: func() {}} }, []string{"on_success.payload: "}},
		"8 deep":            {func(job *Job) { job.OnFailure = deep(8) }, nil},
		"9 deep":            {func(job *Job) { job.OnFailure = deep(9) }, []string{"on_failure: more than 8"}},
		"a cycle":           {func(job *Job) { job.OnSuccess = cycle }, []string{"on_success: more than 8"}},
		"large":             {func(job *Job) { job.OnSuccess = &Job{Kind: "child", Payload: strings.Repeat("x", 255<<10)} }, nil},
		"too large":         {func(job *Job) { job.OnSuccess = &Job{Kind: "child", Payload: strings.Repeat("x", 256<<10)} }, []string{"on_success: the follow-ups take 262"}},
		"callback":          {func(job *Job) { job.Callback = "http://[::1]:8080/x?y#z" }, nil},
		"callback path":     {func(job *Job) { job.Callback = "/x" }, []string{"callback: it is not an absolute http or https URL"}},
		"callback ftp":      {func(job *Job) { job.Callback = "ftp://x/" }, []string{"callback: "}},
		"callback host":     {func(job *Job) { job.Callback = "http:///x" }, []string{"callback: it has no host"}},
		"callback opaque":   {func(job *Job) { job.Callback = "http:x" }, []string{"callback: it has no host"}},
		"callback password": {func(job *Job) { job.Callback = "https://u:secret@x/" }, []string{"callback: must not contain a user or password"}},
		"callback port":     {func(job *Job) { job.Callback = "https://x:0/" }, []string{"callback: its port"}},
		"callback control":  {func(job *Job) { job.Callback = "https://x/\n" }, []string{"callback: it is not a URL"}},
		"callback length":   {func(job *Job) { job.Callback = "https://x/" + strings.Repeat("x", maxCallback) }, []string{"callback: 8202 bytes"}},
		"callback below":    {func(job *Job) { job.OnSuccess = &Job{Kind: "child", Callback: "x"} }, []string{"on_success.callback: "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := Job{Kind: "call", Queue: c.queue, Tenant: "a"}
			test.edit(&job)
			_, err := c.client.Enqueue(t.Context(), job)
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("%q; want %q", lines, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(lines[i], want) || strings.Contains(lines[i], "secret") {
					t.Errorf("%q; want %q", lines[i], want)
				}
			}
		})
	}

	// If no queue serves webhooks, a callback is impossible.
	c.server.Client().HDel(t.Context(), store.RoutesKey, "webhook")
	_, err := NewClient(c.server.Client()).Enqueue(t.Context(), Job{Kind: "call", Tenant: "a", Callback: "https://x/"})
	if invalid, ok := errors.AsType[*validation.Error](err); !ok || invalid.Field != "callback" {
		t.Errorf("without a queue for webhooks: %v", err)
	}
}

// TestFollowUpsKeepAllFields: a stored follow-up has all fields of its job.
func TestFollowUpsKeepAllFields(t *testing.T) {
	var job Job
	value := reflect.ValueOf(&job).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if !field.IsExported() || field.Type == reflect.TypeFor[*Job]() || field.Name == "Payload" {
			continue
		}
		fill(t, value.Field(i))
	}
	job.Payload = []byte("\x00\xff")
	job.OnSuccess = &Job{Kind: "k", Tenant: "other", Payload: json.RawMessage(`{ "a" : "<é>" }`)}
	job.OnFailure = &Job{Kind: "k", Tenant: job.Tenant, Payload: json.RawMessage{}}
	encoded, err := encodeNext(&job, "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var decoded nextJob
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	if got := *decoded.job(); !reflect.DeepEqual(got, job) {
		t.Errorf("%s\n got %+v\nwant %+v", text, got, job)
	}
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1e9, 7000).UTC()))
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.CanInt():
		v.SetInt(7)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		name, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, name)
		fill(t, value)
		v.SetMapIndex(name, value)
	default:
		t.Fatalf("a field of type %s: see that followUps keeps it", v.Type())
	}
}
